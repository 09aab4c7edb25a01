"""Metrics by short names, and the average precision of boxes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ignite.metrics import Metric

from ignite_hooks.distributed.metric_table import merge_of, sums
from ignite_hooks.trainer import metrics as measures

TRUE = {"boxes": torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]]), "labels": torch.tensor([1, 1])}


def found(*boxes: tuple[list[float], float], label: int = 1) -> dict[str, torch.Tensor]:
    corners, scores = torch.tensor([box for box, _ in boxes]).reshape(-1, 4), torch.tensor([s for _, s in boxes])
    return {"boxes": corners, "scores": scores, "labels": torch.full((len(boxes),), label)}


HIT, OTHER, MISS = [0.0, 0, 10, 10], [20.0, 20, 30, 30], [40.0, 40, 50, 50]
CASES: dict[str, tuple[dict[str, Any], float]] = {
    "everything": (found((HIT, 0.9), (OTHER, 0.8)), 1.0),
    "half of it": (found((HIT, 0.9)), 0.5),
    "a false one that is less sure": (found((HIT, 0.9), (OTHER, 0.8), (MISS, 0.1)), 1.0),
    "a false one that is surer": (found((MISS, 0.9), (HIT, 0.8)), 0.25),
    "one twice": (found((HIT, 0.9), (HIT, 0.8), (OTHER, 0.7)), 0.5 + 0.5 * 2 / 3),
    "nothing": (found(), 0.0),
    "another class": (found((HIT, 0.9), label=2), 0.0),
}


@pytest.mark.parametrize(("prediction", "expected"), CASES.values(), ids=CASES)
def test_the_average_precision_of_boxes(prediction: dict[str, Any], expected: float) -> None:
    metric = measures.map(num_classes=3)
    metric.update(([prediction], [TRUE]))
    assert metric.compute() == pytest.approx(expected)


def test_several_processes_add_up_what_they_have_counted() -> None:
    assert merge_of(measures.map(num_classes=3)) == sums("_right", "_wrong", "_true")


def test_f1_is_the_mean_over_the_classes() -> None:
    metric = measures.f1()
    assert isinstance(metric, Metric)
    prediction = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1]), 2).float()
    metric.update((prediction, torch.tensor([0, 1, 1, 1])))
    assert metric.compute() == pytest.approx((2 / 3 + 0.8) / 2)
    assert measures._harmonic(torch.tensor([0.5, 1.0]), torch.tensor([1.0, 2 / 3])) == pytest.approx((2 / 3 + 0.8) / 2)
