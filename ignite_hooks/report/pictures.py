"""Which pictures a page shows, and in how many bytes."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 3_000_000
"""All of them together, as they stand in the page; the whole of it stays under 5 MB."""
LARGE = 250_000
"""Files larger than this are made smaller."""
WIDEST = 900
_STEP = re.compile(r"_\d{6,}$")


@dataclass(frozen=True)
class Shown:
    """A picture in a page."""

    name: str
    step: int | None
    data: str
    """As it stands in ``src``."""
    file: str


@dataclass
class Album:
    """The newest picture of every name; a file that has not changed is read once."""

    _known: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def look(self, folders: Iterable[Path], root: Path, most: int, since: float = 0.0) -> tuple[list[Shown], int]:
        """The pictures to show, and how many there are besides.

        Args:
            folders: Where hooks put them.
            root: The folder of the page; names are relative to it.
            most: So many are shown.
            since: Files that are older belong to another run.
        """
        newest: dict[str, tuple[float, Path, int | None]] = {}
        total = 0
        for folder in dict.fromkeys(folders):
            for path in sorted(folder.rglob("*.png")) if folder.is_dir() else ():
                at = path.stat().st_mtime
                if path.name.startswith(".") or not path.is_file() or path.is_symlink() or at < since:
                    continue
                total += 1
                step = _STEP.search(path.stem)
                name = _STEP.sub("", str(path.relative_to(folder).with_suffix("")))
                if name != "history" and (name not in newest or at >= newest[name][0]):
                    newest[name] = at, path, int(step.group()[1:]) if step else None
                total -= name == "history"
        shown: list[Shown] = []
        known: dict[tuple[str, int, int], str] = {}
        left = MOST_BYTES
        for name, (_, path, at_step) in sorted(newest.items(), key=lambda item: -item[1][0])[:most]:
            key = (str(path), path.stat().st_mtime_ns, path.stat().st_size)
            data = self._known.get(key) or embedded(path)
            known[key] = data
            if data and len(data) <= left:
                left -= len(data)
                file = str(path.relative_to(root)) if path.is_relative_to(root) else ""
                shown.append(Shown(name, at_step, data, file))
        self._known = known
        return sorted(shown, key=lambda picture: place_of(picture.name)), total - len(shown)


FIRST = ("val", "test", "train")


def place_of(name: str) -> tuple[int, bool, str]:
    """Where a picture stands: what the model makes of the data first, and how it comes to it after that.

    Example:
        >>> sorted(["feature_map/a", "train/cam", "val/cam", "val/predictions"], key=place_of)
        ['val/predictions', 'val/cam', 'train/cam', 'feature_map/a']
    """
    first, _, rest = name.partition("/")
    return FIRST.index(first) if first in FIRST else len(FIRST), rest != "predictions", name


def embedded(path: Path) -> str:
    """A picture as ``src`` takes it, smaller than its file where that is large; empty where it is none."""
    data, kind = path.read_bytes(), "png"
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ""
    if len(data) > LARGE:
        from PIL import Image

        smaller = io.BytesIO()
        try:
            with Image.open(io.BytesIO(data)) as picture:
                if picture.width > WIDEST:
                    picture.thumbnail((WIDEST, 4 * WIDEST))
                picture.convert("RGB").save(smaller, "JPEG", quality=85)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            # Still being written, or none: the page goes without it, and looks again when the file has changed.
            return ""
        data, kind = smaller.getvalue(), "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
