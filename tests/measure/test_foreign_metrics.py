"""Objects of other libraries measure as metrics of Ignite do, and one side merges the states of ranks, never both."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from ignite.metrics import Accuracy, Metric

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.script.metric_state import load_metric_state, metric_state
from ignite_hooks.errors import ConfigError
from ignite_hooks.measure.foreign_metrics import ForeignMetric, as_metric, computed, is_metric, kinds_of, merging_of
from ignite_hooks.run import ignite_metrics
from ignite_hooks.run.metrics import results_of
from ignite_hooks.testing import tiny_run
from tests.measure.foreign import Mergeable, Plain, Reduced, dim_zero_mean


class Collection(dict[str, Any]):
    """Several metrics in one, as torchmetrics has them."""

    reset = update = compute = lambda self, *_: None


@pytest.mark.parametrize(
    ("other", "merging"),
    [
        (Reduced(), "here"),
        (Reduced(spread=dim_zero_mean), "itself"),
        (Reduced(own=None), "itself"),
        (Mergeable(), "here"),
        (Plain(), "nobody"),
        (Collection(one=Reduced()), "itself"),
    ],
)
def test_who_merges_is_known_when_a_metric_is_registered(other: Any, merging: str) -> None:
    assert merging_of(other) == merging
    metric = ForeignMetric(other)
    assert metric.merging == merging
    if isinstance(other, Reduced):
        assert other._to_sync == other.sync_on_compute == (merging == "itself"), "never both"


def test_an_ignite_metric_stays_as_it_is_and_a_class_is_no_metric() -> None:
    metric = Accuracy()
    assert as_metric(metric) is metric
    assert is_metric(metric)
    assert not any(map(is_metric, (Plain, "Accuracy", {"type": "Accuracy"}, torch.nn.Linear(1, 1))))


@pytest.mark.parametrize("made", [Reduced, Mergeable])
def test_states_of_several_ranks_give_the_value_of_all_data_and_stay(made: Any) -> None:
    random = torch.Generator().manual_seed(0)
    data = [(torch.randn(n, 7, generator=random), torch.randint(7, (n,), generator=random)) for n in (5, 1, 8)]
    whole, parts, mine = ForeignMetric(made()), [], ForeignMetric(made())
    for batch in data:
        whole.update(batch)
        mine.reset()
        mine.update(batch)
        parts += [{name: value.copy() if isinstance(value, list) else value for name, value in mine.parts()[0].items()}]
    before = mine.compute()
    found, wanted = computed(mine, parts), whole.compute()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mine.compute(), before, rtol=0, atol=0)
    mine.reset()
    torch.testing.assert_close(computed(mine, parts), wanted, rtol=1e-12, atol=1e-12, msg="a rank without data")


class Counted(Mergeable, torch.nn.Module):
    """Counts how often all that it has kept is gone through."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.passes = 0
        Mergeable.__init__(self)

    def to(self, *_: Any, **__: Any) -> Any:
        self.passes += 1
        return self

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.passes += 1
        return Mergeable.state_dict(self)

    load_state_dict = Mergeable.load_state_dict  # type: ignore[assignment]


def test_a_batch_costs_nothing_for_those_before_it() -> None:
    other = Counted()
    metric = ForeignMetric(other)
    for _ in range(20):
        metric.update((torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)))
    metric.compute()
    assert other.passes == 1, "to its device"
    assert metric.parts() == [{"total": other.total, "samples": 40}]
    metric.reset()
    assert metric.parts() == []


@pytest.mark.parametrize("made", [Reduced, Mergeable])
def test_a_metric_goes_on_with_a_state_that_was_put_back(made: Any) -> None:
    one, other = ForeignMetric(made()), ForeignMetric(made())
    batches = [(torch.eye(7)[[0, place]], torch.tensor([0, 1])) for place in (1, 2)]
    one.update(batches[0])
    state = copy.deepcopy(metric_state(one))
    one.update(batches[1])
    load_metric_state(other, state)
    other.update(batches[1])
    torch.testing.assert_close(one.compute(), other.compute(), rtol=0, atol=0)
    assert metric_state(ForeignMetric(made())) == {"parts": []}


def test_the_classes_in_a_collection_are_known_by_their_names() -> None:
    assert kinds_of("all", ForeignMetric(Collection(roc=Reduced()))) == {"all": "Collection", "roc": "Reduced"}
    assert kinds_of("mine", ForeignMetric(Plain())) == {"mine": "Plain"}
    assert kinds_of("accuracy", Accuracy()) == {"accuracy": "Accuracy"}


def test_values_are_those_of_the_object_and_the_plan_says_who_merges(tmp_path: Path) -> None:
    run = tiny_run()
    metrics = {"samples": Plain(), "loss_of_all": Mergeable(), "accuracy": "Accuracy"}
    hook = {"type": "EvalHook", "metrics": metrics}
    runner = attach_hooks(run.trainer, [hook], work_dir=tmp_path, **run.services)
    assert "loss_of_all (the states of the ranks are merged here)" in str(runner.plan)
    assert "samples (for one process: nothing says how states are merged)" in str(runner.plan)
    run.trainer.run(run.data, max_epochs=1)
    assert runner.metrics["val_samples"] == sum(len(truth) for _, truth in run.val_data)
    state = run.evaluator.run(run.val_data)
    assert runner.metrics["val_loss_of_all"] == pytest.approx(state.metrics["loss"])


def test_on_several_ranks_a_state_that_nobody_can_merge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignite_metrics, "world_size", lambda: 2)
    with pytest.raises(ConfigError, match="Plain: nothing says how the states of several processes become one"):
        ignite_metrics.make_metric("metrics.samples", Plain(), {})
    assert ignite_metrics.make_metric("metrics.loss", Mergeable(), {}).merging == "here"


def test_real_metrics_of_torchmetrics_are_merged_here() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    metrics = [
        torchmetrics.AUROC("multiclass", num_classes=7),
        torchmetrics.ConfusionMatrix("multiclass", num_classes=7),
    ]
    assert [merging_of(one) for one in metrics] == ["here", "here"]
    assert merging_of(torchmetrics.MetricCollection(metrics)) == "itself"
    assert merging_of(torchmetrics.PearsonCorrCoef()) == "itself"
    assert all(one._to_sync is False for one in (as_metric(metric).other for metric in metrics))


class MulticlassROC(Plain):
    """Has curves, as the class of this name in torchmetrics."""

    def compute(self) -> Any:
        return [torch.tensor([0.0, 1.0])] * 2, [torch.tensor([0.5, 1.0])] * 2, [torch.tensor([1.0, 0.5])] * 2


class RocCurve(Metric):
    """Has a curve, as the class of this name in Ignite, which needs scikit-learn."""

    def reset(self) -> None: ...

    def update(self, output: Any) -> None: ...

    def compute(self) -> Any:
        return torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.5])


def test_curves_of_an_evaluator_are_told_by_the_metrics_that_are_attached() -> None:
    evaluator = Engine(lambda engine, batch: batch)
    as_metric(MulticlassROC()).attach(evaluator, "foreign")
    as_metric(Collection(inside=MulticlassROC())).attach(evaluator, "both")
    RocCurve().attach(evaluator, "own")
    values = {"foreign": MulticlassROC().compute(), "inside": MulticlassROC().compute(), "own": RocCurve().compute()}
    found = results_of({**values, "other": values["own"]}, ["cat", "dog"], evaluator)
    assert {name: list(one.content["lines"]) for name, one in found.items()} == {
        "foreign": ["cat", "dog"],
        "inside": ["cat", "dog"],
        "own": [""],
    }


def test_curves_of_torchmetrics_are_curves_here_too(tmp_path: Path) -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    run, classes = tiny_run(), 3
    metrics = {
        "roc": torchmetrics.ROC("multiclass", num_classes=classes),
        "pr": torchmetrics.PrecisionRecallCurve("multiclass", num_classes=classes, thresholds=11),
    }
    hooks = [{"type": "EvalHook", "metrics": metrics}, {"type": "LoggerHook"}]
    names = ["cat", "dog", "cow"]
    runner = attach_hooks(run.trainer, hooks, work_dir=tmp_path, class_names=names, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = {line["name"]: line["result"] for line in lines if "result" in line}
    assert {name: list(one["lines"]) for name, one in found.items()} == dict.fromkeys(metrics, names)
    assert found["roc"]["axes"] == ["false positive rate", "true positive rate"]
    for place, name in enumerate(names):
        assert found["roc"]["lines"][name][1] == pytest.approx(runner.metrics["val_roc"][1][place].tolist())
