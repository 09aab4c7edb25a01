from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ignite_hooks.report.chart import HEIGHT, WIDTH, Scale, bar, chart, value
from ignite_hooks.report.curves import MAX_POINTS, Mark, Series


def series(*values: float, name: str = "accuracy") -> Series:
    found = Series(name)
    for step, number in enumerate(values, 1):
        found.add(number, step, None)
    return found


@pytest.mark.parametrize(
    "values",
    [
        (),
        (0.5,),
        (0.5, 0.5, 0.5),
        (0.0, 0.0),
        (-3.0, 2.0),
        (1e-300, 1e300),
        (-1.7e308, 1.7e308),
        (5e-324, 5e-324),
        tuple(float(n % 7) for n in range(10 * MAX_POINTS)),
    ],
    ids=lambda values: f"{len(values)} from {min(values, default=None)} to {max(values, default=None)}",
)
@pytest.mark.parametrize("name", ["accuracy", "loss"])
def test_all_points_lie_within_the_chart(values: tuple[float, ...], name: str) -> None:
    one = series(*values, name=name)
    root = ElementTree.fromstring(chart([one], len(values), [one.best]))
    places = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter("circle")]
    for drawn in [*root.iter("polyline"), *root.iter("polygon")]:
        places += [(float(x), float(y)) for x, y in re.findall(r"([\d.e+-]+),([\d.e+-]+)", drawn.get("points", ""))]
    assert bool(places) == bool(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)


def test_losses_over_decades_have_a_logarithmic_scale() -> None:
    assert "log scale" in chart([series(10.0, 0.01, name="loss")], 2)
    assert "log scale" not in chart([series(10.0, 0.01)], 2)
    assert "log scale" not in chart([series(10.0, -0.01, name="loss")], 2)


def test_the_range_around_means_is_shaded() -> None:
    assert "<polygon" not in chart([series(1.0, 2.0)], 2)
    assert "<polygon" in chart([series(*range(2 * MAX_POINTS))], 2 * MAX_POINTS)


def test_the_best_value_is_marked_with_a_hint() -> None:
    drawn = chart([series(0.1, 0.9, 0.5)], 3, [Mark(0.9, 2, 1)])
    assert "best accuracy: 0.9 at iteration 2" in drawn


def test_a_single_value_is_a_ring_above_a_star_at_its_place() -> None:
    """The result of a test is often where the best validation is."""
    tested = Series("test/loss")
    tested.add(0.5, 3, None)
    root = ElementTree.fromstring(chart([series(0.9, 0.7, 0.5), tested], 3, [Mark(0.5, 3, 1), None]))
    kinds = [each.get("class", "").split()[0] for each in root if each.get("class", "").startswith(("star", "ring"))]
    assert kinds == ["star", "ring"]


def test_names_are_escaped() -> None:
    assert "<script>" not in chart([series(0.1, 0.2, name="<script>")], 2, label="<script>") + bar([("<script>", 1.0)])


def test_round_values_are_labelled() -> None:
    assert [value(tick) for tick in Scale(0.93, 0.99).ticks()] == ["0.94", "0.96", "0.98"]
    assert [value(tick) for tick in Scale(0.001, 100, logarithmic=True).ticks()] == ["0.001", "0.1", "10"]
