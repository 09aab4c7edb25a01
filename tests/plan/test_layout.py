"""`layout.py`: a plan as text that fits."""

from __future__ import annotations

import pytest

from ignite_hooks.config.build import build_hooks
from ignite_hooks.plan.layout import fitted_plan
from ignite_hooks.plan.plan import Plan
from ignite_hooks.text import table, table_width

HOOKS = [{"type": "LoggerHook"}, {"type": "CheckpointHook"}, {"type": "TensorBoardHook"}, {"type": "EMAHook"}]


@pytest.fixture
def rows() -> list[dict[str, str]]:
    return [{**row, "calls": "12"} for row in Plan({type(hook).__name__: hook for hook in build_hooks(HOOKS)}).rows()]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 110, 130, 160, 400])
def test_no_line_is_longer_than_the_terminal(rows: list[dict[str, str]], width: int) -> None:
    text, _ = fitted_plan(rows, width)
    assert table_width(text) <= width
    assert all(row["point"] in text for row in rows)


def test_where_everything_fits_it_is_the_whole_table(rows: list[dict[str, str]]) -> None:
    assert fitted_plan(rows, None) == (table(rows), []) == fitted_plan(rows, 1000)


def test_what_is_not_shown_whole_is_named(rows: list[dict[str, str]]) -> None:
    _, hidden = fitted_plan(rows, 110)
    assert hidden == ["reads", "writes", "saves"]
    text, hidden = fitted_plan(rows, 75)
    assert hidden == ["calls", "reads", "writes", "saves"]
    assert "calls" not in text
