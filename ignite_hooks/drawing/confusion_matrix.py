"""Draws a confusion matrix: a row for each true class, a column for each predicted one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ignite_hooks.drawing.images import Picture
from ignite_hooks.drawing.layout import Tile, fitted, sheet
from ignite_hooks.drawing.theme import BLUE, FAINT, INK, PAPER, TEXT_SIZE, Colour, font, ink_on, name_of, readable

CELL, SMALL_CELL = 44, 8
MOST_WRITTEN = 20
"""With more classes, cells are small and have no numbers, and not every class has its name."""
NAME_WIDTH = 110


def confusion(counts: Any, class_names: Sequence[str] | None = None, *, title: str = "", note: str = "") -> Picture:
    """Draw a confusion matrix; the darker a cell, the larger its share of the true class.

    Args:
        counts: Classes x classes: how many samples of the class of the row were taken for that of the column.
        class_names: Names of the classes.
        title: Line above the picture.
        note: Fainter line below the title.
    """
    from PIL import Image, ImageDraw

    values = np.asarray(counts, float)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"a confusion matrix is a square of classes, not an array of {values.shape}")
    count = len(values)
    if not count:
        return sheet([], title=title)
    written = count <= MOST_WRITTEN
    cell = CELL if written else SMALL_CELL
    # Names that would overlap are left out.
    step = 1 if written else -(-(TEXT_SIZE + 4) // cell)
    names = [readable(name_of(index, class_names), str(index)) for index in range(count)]
    names = [fitted(name, NAME_WIDTH) for name in names]
    wide = max(int(font(name).getlength(name)) for name in names) + 8
    paper = Image.new("RGB", (wide + count * cell + 1, wide + count * cell + 1), PAPER)
    draw = ImageDraw.Draw(paper)
    for index in range(0, count, step):
        text, middle = names[index], index * cell + cell // 2
        draw.text((wide - 6, wide + middle), text, INK, font(text), anchor="rm")
        # Upright: names are longer than cells are wide.
        column = Image.new("RGB", (wide, TEXT_SIZE + 6), PAPER)
        ImageDraw.Draw(column).text((4, (TEXT_SIZE + 6) // 2), text, INK, font(text), anchor="lm")
        paper.paste(column.rotate(90, expand=True), (wide + middle - (TEXT_SIZE + 6) // 2, 0))
    shares = _shares(values)
    for row, column_of in np.ndindex(values.shape):
        x, y = wide + column_of * cell, wide + row * cell
        colour = _between(PAPER, BLUE, float(shares[row, column_of]))
        draw.rectangle((x, y, x + cell, y + cell), colour, FAINT if written else None)
        value = float(values[row, column_of])
        if written and value:
            text = _short(value)
            draw.text((x + cell // 2, y + cell // 2), text, ink_on(colour), font(text), anchor="mm")
    return sheet([Tile(np.asarray(paper))], title=title, note=note or "rows: true class, columns: predicted class")


def _shares(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the share of each cell of its row; rows without samples are empty."""
    known = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).clip(min=0)
    sums = known.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(known, sums, out=np.zeros_like(known), where=sums > 0))


def _between(low: Colour, high: Colour, share: float) -> Colour:
    red, green, blue = (round(one + (other - one) * share) for one, other in zip(low, high, strict=True))
    return red, green, blue


def _short(value: float) -> str:
    """Return a count or share that fits into a cell.

    Example:
        >>> _short(12.0), _short(0.25), _short(12345.0), _short(float("nan"))
        ('12', '0.25', '12k', 'nan')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if value != int(value):
        return f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:.0f}k" if value < 1e6 else f"{value / 1e6:.0f}M"
