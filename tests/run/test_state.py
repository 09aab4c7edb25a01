"""The state of a run, as hooks see it."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

from ignite.engine import Events

import ignite_hooks
from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.run.state import EvaluationOptions, Phase, RunState
from ignite_hooks.testing import tiny_run
from tests.tools import Log, echo_trainer

POINTS = ("before_run", "before_train_epoch", "after_train_iter", "after_train_epoch", "after_run", "cleanup")


def looking(points: tuple[str, ...], log: Log, *names: str) -> BaseHook:
    """Return a hook that notes attributes of the state at some points."""

    def method_for(point: str) -> Any:
        return lambda self, runner: log.append((point, *(getattr(runner.state, name) for name in names)))

    return type("Looking", (BaseHook,), {point: method_for(point) for point in points})()


def test_a_run_is_running_until_it_is_cleaned_up(tmp_path: Path) -> None:
    log: Log = []
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [looking(POINTS, log, "phase", "running")], work_dir=tmp_path)
    assert (runner.state.phase, runner.state.running) == (Phase.IDLE, False)
    trainer.run([1])
    assert log == [*[(point, Phase.RUNNING, True) for point in POINTS[:-1]], ("cleanup", Phase.CLOSING, False)]
    assert (runner.state.phase, runner.state.running) == (Phase.IDLE, False)


def test_a_requested_end_is_part_of_the_run(tmp_path: Path) -> None:
    log: Log = []

    class Stops(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            runner.stop("enough")

    trainer = echo_trainer()
    attach_hooks(trainer, [Stops(), looking(("after_run",), log, "phase", "running", "stop_reason")], work_dir=tmp_path)
    trainer.run([1, 2])
    assert log == [("after_run", Phase.AGREED, True, "enough")]


def test_iterations_and_epochs_are_marked_while_they_last(tmp_path: Path) -> None:
    log: Log = []
    trainer = echo_trainer()
    hook = looking(POINTS, log, "in_iteration", "in_epoch", "epoch_complete", "epoch_began_at")
    attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([1, 2], max_epochs=2)
    epochs = [
        [
            ("before_train_epoch", False, True, False, began),
            *[("after_train_iter", True, True, False, began)] * 2,
            ("after_train_epoch", False, True, True, began),
        ]
        for began in (0, 2)
    ]
    assert log[1:-2] == [*epochs[0], *epochs[1]]
    assert log[-2:] == [(point, False, False, True, 2) for point in ("after_run", "cleanup")]


def test_the_running_evaluator_is_named_while_it_runs(tmp_path: Path) -> None:
    log: Log = []
    tiny = tiny_run()
    points = ("after_train_iter", "before_val", "after_val_iter", "after_val", "after_epoch")
    attach_hooks(
        tiny.trainer, [looking(points, log, "evaluating")], evaluators={"val": tiny.evaluator}, work_dir=tmp_path
    )
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: tiny.evaluator.run(tiny.val_data))
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert {name for point, name in log if "_val" in point} == {"val"}
    assert {name for point, name in log if "_val" not in point} == {None}


def test_options_of_one_run_are_not_those_of_another() -> None:
    one, other = EvaluationOptions(), EvaluationOptions()
    assert one.extra is not other.extra
    assert one.shared is None


def test_only_engine_and_checkpoint_assign_the_state() -> None:
    root = Path(ignite_hooks.__file__).parent
    names = {field.name for field in fields(RunState)}
    found = {
        path.relative_to(root).parts[0]
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr in names
        and ast.unparse(node.value).split(".")[-1] in ("state", "_state")
    }
    assert found == {"engine", "checkpoint"}
