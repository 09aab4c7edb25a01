"""Curves without axes, a few lines of text high: as a transparent PNG, and as block characters."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from ignite_hooks.drawing.theme import BLUE, GREEN, VERMILION, Colour

WIDTH, HEIGHT = 240, 56
SCALE = 3
"""How many times larger curves are drawn than they are kept, so that their lines are smooth."""
COLOURS: tuple[Colour, ...] = (BLUE, VERMILION, GREEN)
"""Neither dark nor light, so that they can be told from a page of either kind."""
BLOCKS = "▁▂▃▄▅▆▇█"

Points = Sequence[tuple[float, float]]


def small_curves(lines: Sequence[Points]) -> bytes:
    """Return lines that share their axes as a PNG without a background.

    Args:
        lines: Points (iteration, value); values that are not finite leave a gap.

    Example:
        >>> small_curves([[(1, 2.0), (2, 1.0)]])[:4]
        b'\\x89PNG'
    """
    from PIL import Image, ImageDraw

    finite = [point for line in lines for point in line if math.isfinite(point[1])]
    image = Image.new("RGBA", (WIDTH * SCALE, HEIGHT * SCALE), (0, 0, 0, 0))
    if finite:
        left, right = _ends([step for step, _ in finite])
        low, high = _ends([value for _, value in finite])
        margin = 3 * SCALE
        across, up = WIDTH * SCALE - 2 * margin, HEIGHT * SCALE - 2 * margin
        draw = ImageDraw.Draw(image)
        for line, colour in zip(lines, COLOURS, strict=False):
            for part in _parts(line):
                places = [
                    (margin + across * (step - left) / (right - left), margin + up * (high - value) / (high - low))
                    for step, value in part
                ]
                if len(places) > 1:
                    draw.line(places, fill=(*colour, 255), width=2 * SCALE, joint="curve")
                x, y = places[-1]
                draw.ellipse((x - margin, y - margin, x + margin, y + margin), fill=(*colour, 255))
    file = io.BytesIO()
    image.resize((WIDTH, HEIGHT), Image.Resampling.BOX).quantize(32).save(file, "PNG", optimize=True)
    return file.getvalue()


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Return values as block characters, each the mean of its share of them; a gap where nothing is finite.

    Example:
        >>> sparkline([1, 2, 3, 4]), sparkline([2, 2]), sparkline([1, float("nan"), 8])
        ('▁▃▆█', '▄▄', '▁ █')
    """
    count = min(width, len(values))
    means = [_mean(values[i * len(values) // count : (i + 1) * len(values) // count]) for i in range(count)]
    finite = [value for value in means if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)

    def block(value: float) -> str:
        if not math.isfinite(value):
            return " "
        return BLOCKS[3] if high == low else BLOCKS[round((value - low) / (high - low) * (len(BLOCKS) - 1))]

    return "".join(map(block, means))


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest value, apart where they are equal."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 1, high + 1)


def _parts(line: Points) -> list[list[tuple[float, float]]]:
    """Return the parts of a line between its gaps."""
    parts: list[list[tuple[float, float]]] = [[]]
    for step, value in line:
        if math.isfinite(value):
            parts[-1].append((step, value))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]
