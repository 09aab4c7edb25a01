"""`ignite_metrics.py`: metrics by name, with settings, or ready."""

from __future__ import annotations

from typing import Any

import pytest
from ignite.metrics import Accuracy, Loss, Metric
from torch import nn

from ignite_hooks import ConfigError
from ignite_hooks.run.ignite_metrics import make_metric, problem_of_metric

READY = Accuracy()


@pytest.mark.parametrize(
    ("wanted", "made"),
    [("Accuracy", Accuracy), ({"type": "Loss", "loss_fn": "criterion"}, Loss), (READY, Accuracy)],
)
def test_a_metric_is_a_name_a_mapping_or_an_object(wanted: Any, made: type[Metric]) -> None:
    assert problem_of_metric(wanted, ["criterion"]) is None
    assert isinstance(make_metric("metrics.m", wanted, {"criterion": nn.MSELoss()}), made)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("Acuracy", "ignite.metrics has no 'Acuracy', did you mean 'Accuracy'?"),
        (3, "must be the name of a metric, or a mapping with 'type', not 3"),
        ({"type": "Loss", "loss_fn": "criterion"}, "loss_fn: there is no service 'criterion': pass criterion=... to"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said(wanted: Any, problem: str) -> None:
    assert str(problem_of_metric(wanted, ["model"])).startswith(problem)


def test_settings_that_a_metric_rejects_have_their_place() -> None:
    with pytest.raises(ConfigError, match=r"eval.metrics.a: Accuracy rejects these settings"):
        make_metric("eval.metrics.a", {"type": "Accuracy", "threshold": 1}, {})
