"""`trend.py`: growth of a number over a run."""

from __future__ import annotations

import random

import pytest

from ignite_hooks.measure.trend import Trend


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
