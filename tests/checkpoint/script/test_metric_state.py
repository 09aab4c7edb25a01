"""`metric_state.py`: what a metric has accumulated goes on in another one of its kind."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from ignite.metrics import (
    Accuracy,
    Average,
    ConfusionMatrix,
    EpochMetric,
    Fbeta,
    Loss,
    Metric,
    Precision,
    RunningAverage,
    TopKCategoricalAccuracy,
    VariableAccumulation,
)
from ignite.metrics.metric_group import MetricGroup
from ignite.metrics.regression import R2Score

from ignite_hooks.checkpoint.script.metric_state import load_metric_state, metric_state
from ignite_hooks.store import to_plain


class Undeclared(Metric):
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        super().__init__()

    def reset(self) -> None:
        self.parts: list[torch.Tensor] = []
        self.count = 0

    def update(self, output: Any) -> None:
        self.parts.append(output[1].float())
        self.count += 1

    def compute(self) -> float:
        return float(torch.cat(self.parts).sum() * self.scale + self.count)


MAKERS: dict[str, Any] = {
    "Accuracy": Accuracy,
    "Average": lambda: Average(lambda output: output[1].float().mean()),
    "ConfusionMatrix": lambda: ConfusionMatrix(3),
    "EpochMetric": lambda: EpochMetric(lambda p, y: float((p.argmax(1) == y).sum()), check_compute_fn=False),
    "Loss": lambda: Loss(torch.nn.functional.cross_entropy),
    "Precision": lambda: Precision(average=False),
    "of metrics": lambda: MetricGroup({"accuracy": Accuracy(), "top": TopKCategoricalAccuracy(2)}),
    "R2Score": lambda: R2Score(output_transform=lambda output: (output[0][:, 0], output[1].float())),
    "RunningAverage": lambda: RunningAverage(Accuracy()),
    "VariableAccumulation": lambda: VariableAccumulation(lambda a, x: a + x, lambda output: output[1].float()),
    "of the script": Undeclared,
}


def batch(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(8, 3, generator=generator), torch.randint(3, (8,), generator=generator)


def add(metric: Any, seed: int) -> None:
    source = getattr(metric, "src", None)
    if isinstance(source, Metric):
        source.update(batch(seed))
    transform = metric._output_transform
    metric.update(batch(seed) if isinstance(metric, (MetricGroup, RunningAverage)) else transform(batch(seed)))


@pytest.mark.parametrize("name", MAKERS)
def test_a_metric_goes_on_after_a_file(name: str) -> None:
    one, other = MAKERS[name](), MAKERS[name]()
    one.reset(), other.reset()
    for seed in (1, 2):
        add(one, seed)
    add(other, 9)
    file = io.BytesIO()
    torch.save(to_plain(metric_state(one)), file)
    file.seek(0)
    load_metric_state(other, torch.load(file, weights_only=True))
    for metric in (one, other):
        add(metric, 3)
    assert torch.equal(*(torch.as_tensor(value) for value in map(plain_value, (one, other))))


def plain_value(metric: Any) -> Any:
    value = metric.compute()
    return list(value.values()) if isinstance(value, dict) else value[0] if isinstance(value, tuple) else value


def test_settings_are_those_of_today() -> None:
    one, other = Undeclared(2.0), Undeclared(3.0)
    one.update(batch(1))
    load_metric_state(other, metric_state(one))
    assert (other.scale, other.count) == (3.0, 1)


def test_metrics_within_a_metric_are_loaded_in_place() -> None:
    precision = Precision(average=False)
    both = Fbeta(1.0, precision=precision)
    precision.update(batch(1))
    state = metric_state(both)
    precision.reset()
    load_metric_state(both, state)
    assert precision.compute().sum() > 0
