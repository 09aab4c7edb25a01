"""Counts of calls grow no faster than they should with hooks, tensors and iterations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROWS = {
    "an iteration, hooks that are not due": [10, 60],
    "an iteration, hooks that act": [10, 60],
    "attaching": [10, 60],
    "a run of one iteration, but for its hooks' own work": [10, 60],
    "a run of one iteration with a checkpoint": [30, 180],
    "a quiet iteration of the logging set, so late in a run": [100, 500],
}
"""The sizes at which each is counted here: small ones, as counts have no noise."""


@pytest.mark.parametrize("name", ROWS)
def test_the_exponent_is_no_larger_than_it_should_be(name: str, growth: Any) -> None:
    row = growth.ROWS[name]
    assert growth.exponent(ROWS[name], growth.counts_of(row, ROWS[name])) <= row.most


def test_every_row_of_the_page_is_held(growth: Any) -> None:
    assert growth.ROWS.keys() == ROWS.keys()


def test_what_grows_as_the_square_is_found(growth: Any) -> None:
    def each_with_each(folder: Path, count: int) -> float:
        with growth.Counter() as counter:
            for one in range(count):
                list(map(lambda other: one, range(count)))  # noqa: C417
        return float(counter.calls)

    sizes = [10, 60]
    row = growth.Row("hooks", each_with_each, 1.0)
    assert growth.exponent(sizes, growth.counts_of(row, sizes)) > 1.9
