from __future__ import annotations

import math

import pytest

from ignite_hooks.drawing.evaluation import MOST_BARS, bars, drawn, lines


def test_every_kind_is_drawn_but_a_table() -> None:
    assert drawn({"kind": "matrix", "values": [[1, 0], [0, 2]], "labels": ["a", "b"]}, title="m").ndim == 3
    assert drawn({"kind": "curves", "lines": {"a": [[0, 1], [0, 1]]}, "axes": ["x", "y"]}).axes[0].get_xlabel() == "x"
    assert drawn({"kind": "table", "columns": [], "rows": []}) is None


@pytest.mark.parametrize("values", [[0.5, math.nan], [math.nan], [-1.0, 2.0]])
def test_bars_show_every_class_also_without_a_value(values: list[float]) -> None:
    figure = bars(values, title="f1")
    assert len(figure.axes[0].patches) == len(values)
    low, high = figure.axes[0].get_xlim()
    assert low <= 0 < high


def test_of_many_classes_the_lowest_are_drawn() -> None:
    figure = bars([1.0] * 60 + [0.25])
    assert len(figure.axes[0].patches) == MOST_BARS
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "60"


def test_curves_have_their_names_in_a_legend() -> None:
    figure = lines({"cat": [[0, 1], [0, 1]], "": [[0], [0]]}, ["x", "y"])
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["cat"]
