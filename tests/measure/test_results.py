from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ignite_hooks.measure.results import MOST_NUMBERS, Result, curves, matrix, result_of, rows_of, vector


def test_what_has_the_form_of_a_result_becomes_one() -> None:
    assert result_of(torch.eye(3)) == matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert result_of(torch.tensor([0.5, 1.0])) == vector([0.5, 1.0])
    assert result_of({"cat": 0.5, "dog": torch.tensor(1.0)}) == vector([0.5, 1.0], ["cat", "dog"])
    nested = {"0": {"precision": 0.5, "n": 3}, "avg": {"precision": 0.25}}
    assert result_of(nested) == rows_of(["", "precision", "n"], [["0", 0.5, 3.0], ["avg", 0.25, ""]])


@pytest.mark.parametrize(
    "value", [0.5, 1, True, "text", None, torch.tensor(1.0), torch.zeros(2, 3), [], {}, {"a": "b"}]
)
def test_numbers_and_what_has_no_such_form_become_none(value: object) -> None:
    assert result_of(value) is None


def test_the_curves_of_ignite_are_told_by_the_class_of_the_metric() -> None:
    value = (torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.9, 0.1]))
    found = result_of(value, "RocCurve")
    assert found is not None
    assert found.content == {
        "lines": {"": [[0.0, 1.0], [0.5, 1.0]]},
        "axes": ["false positive rate", "true positive rate"],
    }
    assert result_of(value, "Other") is None
    other = result_of((*value[:2], torch.tensor([0.5])), "PrecisionRecallCurve")
    assert other is not None
    assert other.content["axes"] == ["recall", "precision"]


RATES = (torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.9, 0.1]))


@pytest.mark.parametrize("kind", ["BinaryROC", "MulticlassROC", "BinaryPrecisionRecallCurve", "RocCurve"])
def test_curves_of_other_libraries_are_told_by_their_class(kind: str) -> None:
    found = result_of(RATES, kind)
    assert found is not None
    x, y = (1, 0) if kind.endswith("RecallCurve") else (0, 1)
    assert found.content["lines"] == {"": [RATES[x].tolist(), RATES[y].tolist()]}


@pytest.mark.parametrize("form", [list, torch.stack], ids=["of any lengths", "of equal lengths"])
def test_curves_of_classes_have_a_line_each(form: Callable[[list[torch.Tensor]], Any]) -> None:
    value = tuple(form([one, one / 2]) for one in RATES)
    found = result_of(value, "MulticlassROC")
    assert found is not None
    assert found.labelled(["cat", "dog"]).content["lines"] == {
        "cat": [[0.0, 1.0], [0.5, 1.0]],
        "dog": [[0.0, 0.5], [0.25, 0.5]],
    }


def test_of_many_classes_the_worst_curves_are_shown_and_what_is_unknown_is_not() -> None:
    x = torch.tensor([0.0, 1.0])
    ys = [torch.tensor([0.0, height / 20]) for height in range(20, 0, -1)]
    found = result_of(([x] * 21, [*ys, x * math.nan], [x] * 21), "MulticlassROC")
    assert found is not None
    assert list(found.content["lines"]) == [str(place) for place in range(10, 20)]
    assert found.content["note"] == "the 10 of 21 classes with the least area"
    assert result_of(([x * math.nan], [x], [x]), "MulticlassROC") is None


def test_entries_have_the_names_of_the_classes_escaped() -> None:
    found = vector([0.1, 0.2, 0.3]).labelled(["cat/dog", "50 %", "a\nb"])
    assert found.entries() == {"cat%2Fdog": 0.1, "50 %25": 0.2, "a%0Ab": 0.3}
    # Of another number of classes the names are not known.
    assert list(vector([0.1, 0.2]).labelled(["a", "b", "c"]).entries()) == ["0", "1"]


def test_of_many_classes_the_mean_and_the_lowest_are_numbers() -> None:
    values = [place / 100 for place in range(MOST_NUMBERS + 10)]
    entries = vector([*values, math.nan]).entries()
    assert len(entries) == 11
    assert entries["mean"] == pytest.approx(sum(values) / len(values))
    assert [name for name in entries if name != "mean"] == [str(place) for place in range(10)]
    assert len(vector(values[:MOST_NUMBERS]).entries()) == MOST_NUMBERS


def test_curves_and_tables_get_the_names_of_the_classes_too() -> None:
    found = curves(
        {"1": ([0], [1]), "all": ([0], [1])}, ("x", "y"), numbers={"auc": 0.5, "auc/1": 0.25}, totals={"1": (2, 4)}
    )
    named = found.labelled(["cat", "dog"])
    assert list(named.content["lines"]) == ["dog", "all"]
    assert named.content["totals"] == {"dog": [2, 4]}
    assert named.entries() == {"auc": 0.5, "auc/dog": 0.25}
    assert named.of_classes() == ["auc/dog"]
    table = rows_of(["loss", "true"], [[1, 1]], of_classes=["true"]).labelled(["cat", "dog"])
    assert table.content["rows"] == [[1, "dog"]]


def test_a_result_is_plain_data() -> None:
    assert Result("vector", {"values": [1.0]}).to_json() == {"kind": "vector", "values": [1.0]}
