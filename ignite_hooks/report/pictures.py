"""The choice of the pictures of a page, and their size in bytes."""

from __future__ import annotations

import base64
import io
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MAX_BYTES = 3_000_000
"""Maximum size of all pictures in a page together, so that the page stays below 5 MB."""
LARGE = 250_000
"""Files larger than this are reduced."""
MAX_WIDTH = 900
"""Width of a reduced picture."""
OF_CURVES = ("history", "curves")
"""Show what the page draws itself."""
_STEP = re.compile(r"_\d{6,}$")


@dataclass(frozen=True)
class PagePicture:
    """A picture in a page."""

    name: str
    step: int | None
    data: str
    """The value of ``src``."""
    file: str
    """The path relative to the page; empty if the file is elsewhere."""
    width: int | None = None
    height: int | None = None
    """In pixels of the file, which keep the place of a picture that is not drawn yet."""

    @property
    def is_broad(self) -> bool:
        """Whether its words can only be read in twice the width of the other pictures."""
        return self.width is not None and self.height is not None and self.width > max(MAX_WIDTH, 1.2 * self.height)


@dataclass
class PictureFinder:
    """A search for the newest picture of every name, which reads a file again only if it has changed."""

    _known: dict[tuple[str, int, int], tuple[str, tuple[int, int] | None]] = field(default_factory=dict)

    def newest(
        self, folders: Iterable[Path], root: Path, most: int, since: float = 0.0
    ) -> tuple[list[PagePicture], int]:
        """Return the pictures to show, and the number of the others.

        Args:
            folders: Folders of the pictures of hooks.
            root: Folder of the page; paths are relative to it.
            most: Maximum number of pictures to show.
            since: Files before this time belong to another run.
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
                if name not in OF_CURVES and (name not in newest or at >= newest[name][0]):
                    newest[name] = at, path, int(step.group()[1:]) if step else None
                total -= name in OF_CURVES
        shown: list[PagePicture] = []
        known: dict[tuple[str, int, int], tuple[str, tuple[int, int] | None]] = {}
        left = MAX_BYTES
        for name, (_, path, at_step) in sorted(newest.items(), key=lambda item: -item[1][0])[:most]:
            key = (str(path), path.stat().st_mtime_ns, path.stat().st_size)
            known[key] = data, size = self._known.get(key) or (embedded(path), size_of(path))
            if data and len(data) <= left:
                left -= len(data)
                file = str(path.relative_to(root)) if path.is_relative_to(root) else ""
                shown.append(PagePicture(name, at_step, data, file, *(size or (None, None))))
        self._known = known
        return sorted(shown, key=lambda picture: place_of(picture.name)), total - len(shown)


FIRST = ("val", "test", "train")


def place_of(name: str) -> tuple[int, bool, str]:
    """Return the sort key of a picture: predictions before their explanations, evaluations before training.

    Example:
        >>> sorted(["feature_map/a", "train/cam", "val/cam", "val/predictions"], key=place_of)
        ['val/predictions', 'val/cam', 'train/cam', 'feature_map/a']
    """
    first, _, rest = name.partition("/")
    return FIRST.index(first) if first in FIRST else len(FIRST), rest != "predictions", name


def size_of(path: Path) -> tuple[int, int] | None:
    """Return width and height of a PNG, which are at the beginning of its file; None if that is too short."""
    with path.open("rb") as file:
        head = file.read(24)
    return struct.unpack(">II", head[16:]) if len(head) == 24 else None


def embedded(path: Path) -> str:
    """Return a picture as a value of ``src``, reduced if its file is large; empty if the file is not a picture."""
    data, kind = path.read_bytes(), "png"
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ""
    if len(data) > LARGE:
        from PIL import Image

        smaller = io.BytesIO()
        try:
            with Image.open(io.BytesIO(data)) as picture:
                if picture.width > MAX_WIDTH:
                    picture.thumbnail((MAX_WIDTH, 4 * MAX_WIDTH))
                picture.convert("RGB").save(smaller, "JPEG", quality=85)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            # Not yet complete, or not a picture: the page omits it, and reads it again when the file has changed.
            return ""
        data, kind = smaller.getvalue(), "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
