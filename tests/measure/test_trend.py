"""`trend.py`: growth of a number over a run."""

from __future__ import annotations

import random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.measure.trend import Trend, line_through
from tests.properties import tried


@pytest.mark.parametrize(
    ("shape", "slope"),
    [
        ("steady", 1.0),
        ("noisy", 1.0),
        ("warming up, then steady", 1.0),
        ("flat", None),
        ("falling", None),
        ("up and down", None),
        ("grows, then stays", None),
        ("one jump", None),
        ("short", None),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_only_steady_growth_up_to_the_end_is_found(shape: str, slope: float | None, seed: int) -> None:
    draw = random.Random(seed)
    shapes = {
        "steady": lambda x: 500 + x,
        "noisy": lambda x: 500 + x + draw.uniform(-5, 5),
        "warming up, then steady": lambda x: 500 * (x > 10) + x,
        "flat": lambda x: 500,
        "falling": lambda x: 500 - x,
        "up and down": lambda x: 500 + 50 * (x % 20),
        "grows, then stays": lambda x: 500 + min(x, 45),
        "one jump": lambda x: 500 + 50 * (x > 95),
        "short": lambda x: 500 + x,
    }
    trend = Trend()
    for x in range(8 if shape == "short" else 100):
        trend.add(x, shapes[shape](x))
    found = trend.growth()
    assert (found is None) == (slope is None), f"seed {seed}: {found}"
    if slope is not None:
        assert found == pytest.approx(slope, rel=0.1), f"seed {seed}"


def test_a_long_run_keeps_few_points() -> None:
    trend = Trend()
    for x in range(100_000):
        trend.add(x, x)
    assert Trend.MOST / 2 <= len(trend.points) <= Trend.MOST
    assert trend.points[0] == (0, 0)
    assert trend.points[-1][0] > 99_000


@tried(100)
@given(
    points=st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(10**6), 10**6)), min_size=2, max_size=40),
    start=st.sampled_from([0, 10**9]),
)
def test_the_line_is_the_one_of_least_squares(points: list[tuple[int, int]], start: int) -> None:
    x, y = numpy.array(points, dtype=float).T
    slope, explained = line_through([(start + step, value) for step, value in points])
    if x.std() == 0 or y.std() == 0:
        assert (slope, explained) == (0, 0)
        return
    best = numpy.polyfit(x - x.mean(), y - y.mean(), 1)[0]
    assert slope == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert explained == pytest.approx(numpy.corrcoef(x, y)[0, 1] ** 2, abs=1e-6)


def test_points_of_one_place_or_height_have_no_line() -> None:
    assert line_through([(3.0, 1.0), (3.0, 2.0)]) == (0, 0)
    assert line_through([(1.0, 7.0), (2.0, 7.0)]) == (0, 0)
