"""Pictures with captions to one sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ignite_hooks.drawing.images import Picture
from ignite_hooks.drawing.theme import (
    FAINT,
    GAP,
    INK,
    PAPER,
    SMALLEST_SIDE,
    TEXT_SIZE,
    TITLE_SIZE,
    Colour,
    font,
    readable,
)

MARGIN = 12
MARK_WIDTH = 12
FRAME = 3
TEXT_WIDTH = 240
"""Width of a sheet of narrow pictures if its texts need it."""


@dataclass(frozen=True)
class Tile:
    """A picture on a sheet.

    Args:
        picture: Height x width x 3, uint8.
        caption: Lines below it.
        colour: Colour of its frame and of the mark before the first line; None for neither.
    """

    picture: Picture
    caption: Sequence[str] = ()
    colour: Colour | None = None


def full_rows(tiles: int, columns: int) -> int:
    """Return the number of columns, one more or one less where that leaves no row with gaps.

    Example:
        >>> full_rows(16, 3), full_rows(8, 3), full_rows(7, 3), full_rows(2, 1), full_rows(0, 0)
        (4, 4, 3, 1, 1)
    """
    columns = max(1, columns)
    near = [number for number in (columns, columns + 1, max(columns - 1, 2)) if tiles % number == 0]
    return near[0] if near else columns


def sheet(
    tiles: Sequence[Tile],
    *,
    title: str = "",
    note: str = "",
    columns: int | None = None,
    legend: Sequence[tuple[str, Colour]] = (),
) -> Picture:
    """Arrange tiles in rows and columns, with a title above and a legend below.

    Args:
        tiles: The pictures; without any, the sheet says that there is nothing to show.
        title: Line above all tiles.
        note: Fainter line below the title.
        columns: Number of tiles in a row; by default about as many as rows.
        legend: Names with their colours.
    """
    from PIL import Image, ImageDraw

    columns = columns or full_rows(len(tiles), math.ceil(math.sqrt(len(tiles))))
    shown = [tile.picture for tile in tiles]
    lines = max((len(tile.caption) for tile in tiles), default=0)
    frame = FRAME if any(tile.colour for tile in tiles) else 0
    line_height = TEXT_SIZE + 4
    width = max((picture.shape[1] for picture in shown), default=TEXT_WIDTH) + 2 * frame
    if width < SMALLEST_SIDE:
        captions = [text for tile in tiles for text in tile.caption]
        width = max(width, min(TEXT_WIDTH, _widest(captions) + MARK_WIDTH))
    rows = [shown[at : at + columns] for at in range(0, len(shown), columns)]
    heights = [max(picture.shape[0] for picture in row) + 2 * frame + lines * line_height + 2 for row in rows]
    columns = min(columns, max(1, len(tiles)))
    note = note if tiles else note or "nothing to show"
    inner = columns * width + (columns - 1) * GAP
    if inner < TEXT_WIDTH:
        inner = max(inner, min(TEXT_WIDTH, max(_widest([title], TITLE_SIZE), _widest([note]))))
    header = wrapped(title, inner, TITLE_SIZE)
    notes = wrapped(note, inner, TEXT_SIZE)
    legend = [(fitted(name, inner - 16), colour) for name, colour in legend]
    top = MARGIN + len(header) * (TITLE_SIZE + 6) + len(notes) * line_height + (4 if header or notes else 0)
    places, foot = _legend_places(legend, inner)
    height = top + sum(heights) + GAP * max(0, len(rows) - 1) + foot + MARGIN

    paper = Image.new("RGB", (inner + 2 * MARGIN, height), PAPER)
    draw = ImageDraw.Draw(paper)
    y = MARGIN
    for text in header:
        draw.text((MARGIN, y), text, INK, font(text, TITLE_SIZE))
        y += TITLE_SIZE + 6
    for text in notes:
        draw.text((MARGIN, y), text, FAINT, font(text))
        y += line_height
    y = top
    for row, of_row in enumerate(rows):
        for column, picture in enumerate(of_row):
            tile = tiles[row * columns + column]
            x = MARGIN + column * (width + GAP)
            high, wide = picture.shape[:2]
            if tile.colour is not None:
                draw.rectangle((x, y, x + wide + 2 * frame - 1, y + high + 2 * frame - 1), tile.colour)
            paper.paste(Image.fromarray(picture), (x + frame, y + frame))
            for number, text in enumerate(tile.caption):
                below = x, y + high + 2 * frame + 2 + number * line_height
                mark = tile.colour if number == 0 else None
                _caption(draw, below, text, width, mark)
        y += heights[row] + GAP
    for (name, colour), (x, down) in zip(legend, places, strict=True):
        top_of = height - MARGIN - foot + down + 6
        draw.rectangle((MARGIN + x, top_of + 2, MARGIN + x + 10, top_of + 12), colour)
        draw.text((MARGIN + x + 16, top_of), name, INK, font(name))
    return np.asarray(paper)


def _caption(draw: Any, at: tuple[int, int], text: str, width: int, mark: Colour | None) -> None:
    x, y = at
    if mark is not None:
        draw.rectangle((x, y + 4, x + 7, y + 11), mark)
        x, width = x + 11, width - 11
    text = fitted(text, width)
    draw.text((x, y), text, INK, font(text))


def fitted(text: str, width: float, size: int = TEXT_SIZE) -> str:
    """Return the text, cut with an ellipsis if it is wider than this."""
    text = readable(text)
    face = font(text, size)
    if face.getlength(text) <= width:
        return text
    for length in range(len(text) - 1, 0, -1):
        if face.getlength(text[:length] + "…") <= width:
            return text[:length].rstrip() + "…"
    return ""


def wrapped(text: str, width: float, size: int) -> list[str]:
    """Break a text into lines; a word that is too long for a line continues in the next.

    Example:
        >>> wrapped("backbone.layer4 of all", 80, 13)
        ['backbone.la', 'yer4 of all']
    """
    lines: list[str] = []
    text = readable(text)
    face = font(text, size)
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and face.getlength(longer) <= width:
            lines[-1] = longer
            continue
        while len(word) > 1 and face.getlength(word) > width:
            end = next((n for n in range(len(word) - 1, 1, -1) if face.getlength(word[:n]) <= width), 1)
            lines.append(word[:end])
            word = word[end:]
        lines.append(word)
    return lines


def _widest(texts: Sequence[str], size: int = TEXT_SIZE) -> int:
    return max((math.ceil(font(text, size).getlength(text)) for text in map(readable, texts)), default=0)


def _legend_places(legend: Sequence[tuple[str, Colour]], width: int) -> tuple[list[tuple[int, int]], int]:
    """Return the place of each entry, and the height of the legend."""
    places, x, y = [], 0, 0
    for name, _ in legend:
        wide = 16 + int(font(name).getlength(name)) + 18
        if x and x + wide - 18 > width:
            x, y = 0, y + TEXT_SIZE + 6
        places.append((x, y))
        x += wide
    return places, (y + TEXT_SIZE + 12 if places else 0)


def save(picture: Any, path: Path, *, smallest: bool = False) -> None:
    """Save a picture or a matplotlib figure as PNG; an existing file is replaced atomically.

    Args:
        picture: Height x width x 3, or a figure.
        path: File to write; its folder is created.
        smallest: Whether to take ten times as long for a file that is a tenth smaller.
    """
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    try:
        Image.fromarray(as_pixels(picture)).save(unfinished, "PNG", compress_level=9 if smallest else 1)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def as_pixels(picture: Any) -> Picture:
    """Return a picture as it is, and a matplotlib figure as a picture."""
    if isinstance(picture, np.ndarray):
        return picture
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # Not `savefig`: ClearML patches it and would upload the picture a second time.
    canvas: Any = FigureCanvasAgg(picture)
    canvas.draw()
    return keep_pixels(picture, canvas)[:, :, :3]


def keep_pixels(figure: Any, canvas: Any) -> Picture:
    """Return what was drawn of a figure, and keep it with the figure for writers, which would draw it again.

    Only for figures of this package, which nobody changes afterwards.
    """
    figure.pixels_of_ignite_hooks = np.array(canvas.buffer_rgba())
    return figure.pixels_of_ignite_hooks  # type: ignore[no-any-return]
