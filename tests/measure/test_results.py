from __future__ import annotations

import math

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
