"""Names of metrics that cannot exist are errors before the run."""

from __future__ import annotations

from typing import Any

import pytest
from ignite.engine import Events

from ignite_hooks import BaseHook
from ignite_hooks.testing import tiny_run
from tests.config.tools import attach, problems

pytestmark = pytest.mark.usefixtures("_elsewhere")

MEASURED = {"type": "EvalHook", "metrics": {"accuracy": "Accuracy", "top/5": "Accuracy"}, "save_best": False}


@pytest.mark.parametrize("name", ["", " ", "\0", "a\nb"])
@pytest.mark.parametrize(
    ("hook", "setting"),
    [
        ({"type": "EvalHook", "rule": "greater"}, "metric"),
        ({"type": "EvalHook"}, "metric"),
        ({"type": "CheckpointHook", "rule": "greater"}, "save_best"),
        ({"type": "EarlyStoppingHook", "mode": "max"}, "monitor"),
    ],
)
def test_a_name_that_no_metric_has_is_an_error(name: str, hook: dict[str, Any], setting: str) -> None:
    tiny = tiny_run()
    found = problems([{**hook, setting: name}], evaluating=True, evaluators=tiny.evaluator)
    assert found == [(f"hooks[0].{setting}", f"the name of a metric is needed, not {name!r}")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1", "no metric is called '1': there are accuracy, top/5, val_accuracy, val_top/5"),
        ("acuracy", "no metric is called 'acuracy', did you mean 'accuracy'?"),
    ],
)
def test_a_metric_is_among_those_that_the_configuration_lists(name: str, message: str) -> None:
    hooks = [MEASURED, {"type": "CheckpointHook", "save_best": name, "rule": "greater"}]
    assert problems(hooks, evaluating=True) == [("hooks[1].save_best", message)]


@pytest.mark.parametrize(
    "name", ["accuracy", "val_accuracy", "val/accuracy", "top_5", "val_top/5", "train_loss", "accuracy/2"]
)
def test_a_metric_that_is_listed_is_right_however_it_is_spelt(name: str) -> None:
    attach([MEASURED, {"type": "CheckpointHook", "save_best": name, "rule": "greater"}], evaluating=True)


def test_a_default_metric_that_is_not_measured_is_not_refused() -> None:
    attach([{"type": "EvalHook", "metrics": {"mse": "MeanSquaredError"}}], evaluating=True)


class Publishing(BaseHook):
    def after_epoch(self, runner: Any) -> None:
        runner.trainer.state.metrics["mine"] = 1.0


@pytest.mark.parametrize("adds", ["hook", "handler", "evaluator", "test_fn"])
def test_where_a_script_may_add_metrics_no_name_is_refused(adds: str) -> None:
    tiny = tiny_run()
    if adds == "handler":
        tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: None)
    measured = {"type": "EvalHook", "test_fn": lambda model, data: {"mine": 1.0}, "save_best": False}
    evaluation = {"evaluator": {"type": "EvalHook", "save_best": False}, "test_fn": measured}.get(adds, MEASURED)
    hooks = [
        evaluation,
        {"type": "CheckpointHook", "save_best": "mine", "rule": "greater"},
        *([Publishing()] if adds == "hook" else []),
    ]
    given = {"evaluators": tiny.evaluator} if adds == "evaluator" else {}
    attach(hooks, trainer=tiny.trainer, evaluating=True, **given)


def test_a_function_of_python_itself_is_no_handler() -> None:
    [(place, message)] = problems([len])
    assert place == "hooks[0]"
    assert "len() of Python can do nothing with an engine" in message
    attach([print])
