"""Sounds and videos of a page: the newest of each name, within the page as far as there is room."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ignite_hooks.report.markup import Markup, joined, link, tag
from ignite_hooks.writers.media import FOLDER, TYPES

MAX_BYTES: Final = 1_500_000
"""Size of all of them together in a page, so that it stays below 5 MB; larger ones are links."""
MOST: Final = 24
_STEP: Final = re.compile(r"_(\d{6,})$")


@dataclass(frozen=True)
class PageMedia:
    """A sound or a video in a page."""

    name: str
    step: int | None
    kind: str
    """audio, video, or image: a video that browsers show as a picture."""
    file: str
    """The path relative to the page."""
    data: str = ""
    """The value of ``src``; empty where there is no room for it."""


def newest_media(root: Path, since: float = 0.0) -> list[PageMedia]:
    """Return the newest sound or video of each name.

    Args:
        root: The folder of the page.
        since: Files before this time belong to another run.
    """
    folder = root / FOLDER
    newest: dict[str, tuple[float, Path, int | None]] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix[1:] not in TYPES or path.name.startswith(".") or not path.is_file() or path.is_symlink():
            continue
        step, at = _STEP.search(path.stem), path.stat().st_mtime
        name = _STEP.sub("", str(path.relative_to(folder).with_suffix("")))
        if at >= since and (name not in newest or at >= newest[name][0]):
            newest[name] = at, path, int(step[1]) if step else None
    left, found = MAX_BYTES, []
    for name, (_, path, at_step) in sorted(newest.items(), key=lambda item: -item[1][0])[:MOST]:
        of_kind, content_type = TYPES[path.suffix[1:]]
        data = ""
        if path.stat().st_size * 4 / 3 <= left:
            data = f"data:{content_type};base64,{base64.b64encode(path.read_bytes()).decode()}"
            left -= len(data)
        kind = "image" if content_type.startswith("image/") else of_kind
        found.append(PageMedia(name, at_step, kind, str(path.relative_to(root)), data))
    return sorted(found, key=lambda one: one.name)


def media(found: Sequence[PageMedia]) -> Markup | str:
    """Return sounds and videos with what plays them."""
    shown = [
        tag(
            "figure",
            _player(one),
            tag(
                "figcaption",
                one.name,
                "" if one.step is None else f", iteration {one.step:,}",
                " · ",
                link(one.file, "file" if one.data else "file, which is too large for this page"),
            ),
        )
        for one in found
    ]
    return tag("div", *shown, class_="pictures") if shown else ""


def _player(one: PageMedia) -> Markup:
    if not one.data:
        return joined([])
    if one.kind == "image":
        return tag("img", src=one.data, alt=f"{one.name}, a video")
    return tag(one.kind, src=one.data, controls="", preload="metadata", aria_label=one.name)
