from __future__ import annotations

from typing import Any

import ignite.metrics
import pytest
import torch
from ignite.engine import Engine

from ignite_hooks.distributed.metric_merging import alone, attached_metrics, leaves, merged, operations_of


@pytest.mark.parametrize(
    ("how", "values", "wanted"),
    [
        ("SUM", [1, 2.5], 3.5),
        ("SUM", [0, torch.tensor([1.0, 2.0])], torch.tensor([1.0, 2.0])),
        ("SUM", [torch.tensor([[1, 2]]), torch.tensor([[3, 4]])], torch.tensor([[4, 6]])),
        ("MAX", [-1, torch.tensor(4.0)], torch.tensor(4.0)),
        ("MIN", [3, 2], 2),
        ("PRODUCT", [torch.tensor(2.0), torch.tensor(3.0)], torch.tensor(6.0)),
        ("ANY", [False, True], True),
        ("JOIN", [["a"], [], ["b"]], ["a", "b"]),
    ],
)
def test_states_of_several_ranks_become_one(how: str, values: list[Any], wanted: Any) -> None:
    found = merged([{"value": value} for value in values], {"value": how})["value"]
    assert torch.equal(torch.as_tensor(found), torch.as_tensor(wanted)) if torch.is_tensor(wanted) else found == wanted


def test_counters_are_known_and_what_talks_by_itself_is_left_alone() -> None:
    known = {
        "Accuracy": ignite.metrics.Accuracy(),
        "Loss": ignite.metrics.Loss(torch.nn.functional.mse_loss),
        "Precision": ignite.metrics.Precision(average="weighted"),
        "TopK": ignite.metrics.TopKCategoricalAccuracy(),
        "MeanSquaredError": ignite.metrics.MeanSquaredError(),
        "ConfusionMatrix": ignite.metrics.ConfusionMatrix(3),
        "EpochMetric": ignite.metrics.EpochMetric(lambda y_pred, y: 0.0),
        "Average": ignite.metrics.Average(),
    }
    assert [name for name, metric in known.items() if operations_of(metric) is None] == []
    by_itself = [ignite.metrics.RunningAverage(output_transform=float), ignite.metrics.Frequency()]
    assert [operations_of(metric) for metric in by_itself] == [None, None]


def test_composed_metrics_are_their_parts_each_once_and_in_order() -> None:
    precision, recall, accuracy = ignite.metrics.Precision(), ignite.metrics.Recall(), ignite.metrics.Accuracy()
    f1 = 2 * precision * recall / (precision + recall)
    group = ignite.metrics.MetricGroup({"accuracy": accuracy, "recall": recall})
    assert [type(leaf).__name__ for leaf in leaves([f1, group, precision])] == ["Precision", "Recall", "Accuracy"]


def test_only_metrics_that_are_computed_at_the_end_of_an_epoch_are_meant() -> None:
    engine = Engine(lambda engine, batch: 1.0)
    accuracy, average = ignite.metrics.Accuracy(), ignite.metrics.RunningAverage(output_transform=float)
    accuracy.attach(engine, "accuracy")
    average.attach(engine, "average")
    assert attached_metrics(engine) == [accuracy]


def test_alone_is_alone_and_ends_also_with_an_error() -> None:
    import ignite.distributed as idist
    import ignite.distributed.utils as inside

    before = inside._model

    def fail() -> None:
        with alone():
            raise KeyError(idist.get_world_size())

    with pytest.raises(KeyError, match="1"):
        fail()
    assert inside._model is before
