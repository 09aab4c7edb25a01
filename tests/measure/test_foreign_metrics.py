"""Objects of other libraries measure as metrics of Ignite do, and one side merges the states of ranks, never both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.metrics import Accuracy

from ignite_hooks import attach_hooks
from ignite_hooks.errors import ConfigError
from ignite_hooks.measure.foreign_metrics import ForeignMetric, as_metric, computed, is_metric, merging_of
from ignite_hooks.run import ignite_metrics
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
        parts += [{name: value.copy() if isinstance(value, list) else value for name, value in mine._parts[0].items()}]
    before = mine.compute()
    found, wanted = computed(mine, parts), whole.compute()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mine.compute(), before, rtol=0, atol=0)
    mine.reset()
    torch.testing.assert_close(computed(mine, parts), wanted, rtol=1e-12, atol=1e-12, msg="a rank without data")


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
