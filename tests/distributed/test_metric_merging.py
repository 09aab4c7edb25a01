from __future__ import annotations

from typing import Any

import ignite.metrics
import pytest
import torch
from ignite.engine import Engine

from ignite_hooks.distributed.metric_merging import SharedEvaluation, attached_metrics, leaves, merged_states


@pytest.mark.parametrize(
    ("how", "values", "wanted"),
    [
        ("SUM", [1, 2.5], 3.5),
        ("SUM", [0, torch.tensor([1.0, 2.0])], torch.tensor([1.0, 2.0])),
        ("SUM", [torch.tensor([[1, 2]]), torch.tensor([[3, 4]])], torch.tensor([[4, 6]])),
        ("MAX", [-1, torch.tensor(4.0)], torch.tensor(4.0)),
        ("MAX", [3, 2], 3),
        ("ANY", [False, True], True),
        ("JOIN", [["a"], [], ["b"]], ["a", "b"]),
    ],
)
def test_states_of_several_ranks_become_one(how: str, values: list[Any], wanted: Any) -> None:
    found = merged_states([{"value": value} for value in values], {"value": how})["value"]
    assert torch.equal(torch.as_tensor(found), torch.as_tensor(wanted)) if torch.is_tensor(wanted) else found == wanted


def test_composed_metrics_are_their_parts_each_once_and_in_order() -> None:
    precision, recall, accuracy = ignite.metrics.Precision(), ignite.metrics.Recall(), ignite.metrics.Accuracy()
    f1 = 2 * precision * recall / (precision + recall)
    group = ignite.metrics.MetricGroup({"accuracy": accuracy, "recall": recall})
    assert [type(leaf).__name__ for leaf in leaves([f1, group, precision])] == ["Precision", "Recall", "Accuracy"]


def test_only_metrics_of_the_end_of_an_epoch_count() -> None:
    engine = Engine(lambda engine, batch: 1.0)
    accuracy, average = ignite.metrics.Accuracy(), ignite.metrics.RunningAverage(output_transform=float)
    accuracy.attach(engine, "accuracy")
    average.attach(engine, "average")
    assert attached_metrics(engine) == [accuracy]


class Largest(ignite.metrics.Metric):
    """A metric of a script, whose state is a number until there is data."""

    def reset(self) -> None:
        self._largest: Any = -1

    def update(self, output: Any) -> None:
        self._largest = output.max()

    def compute(self) -> Any:
        return self._largest


def test_a_rank_without_data_keeps_the_types_of_a_state() -> None:
    engine, metric = Engine(lambda engine, batch: batch), Largest()
    metric.attach(engine, "largest")
    metric.update(torch.tensor([0.5], dtype=torch.float64))
    SharedEvaluation(engine, counts=False).merge()
    assert torch.equal(metric._largest, torch.tensor(-1.0, dtype=torch.float64))
