from __future__ import annotations

import io
import math

import numpy
import pytest
from PIL import Image

from ignite_hooks.drawing.small_curves import HEIGHT, WIDTH, small_curves, sparkline


def pixels(png: bytes) -> numpy.ndarray:
    return numpy.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).astype(int)


def test_a_curve_is_drawn_on_a_transparent_ground() -> None:
    drawn = pixels(small_curves([[(1, 2.0), (10, 1.0)]]))
    assert drawn.shape == (HEIGHT, WIDTH, 4)
    line = drawn[..., 3] > 128
    assert 0.01 < line.mean() < 0.2
    # It falls from the left to the right.
    assert numpy.argmax(line[:, 5]) < numpy.argmax(line[:, WIDTH - 6])


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf]])
def test_nothing_finite_draws_nothing(values: list[float]) -> None:
    drawn = pixels(small_curves([list(enumerate(values))]))
    assert drawn[..., 3].max() == 0
    assert sparkline(values) == ""


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    whole = [(step, 1.0) for step in range(9)]
    broken = [(step, math.nan if step == 4 else value) for step, value in whole]
    middle = slice(WIDTH // 2 - 5, WIDTH // 2 + 5)
    assert pixels(small_curves([whole]))[:, middle, 3].max() > 128
    assert pixels(small_curves([broken]))[:, middle, 3].max() == 0


def test_a_sparkline_has_at_most_its_width() -> None:
    assert len(sparkline(list(range(1000)), 24)) == 24
    assert sparkline(list(range(1000)), 8) == "▁▂▃▄▅▆▇█"
