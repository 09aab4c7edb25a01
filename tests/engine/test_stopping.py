"""The end that a hook asks for; signals are in `test_signals.py`, other ranks in `distributed/test_agreement.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.testing import RecordingHook
from tests.tools import Log, echo_trainer


def test_stop_ends_the_run_and_keeps_the_first_reason(tmp_path: Path) -> None:
    for point in (
        "before_run",
        "before_epoch",
        "before_train_iter",
        "after_train_iter",
        "after_train_epoch",
        "after_epoch",
    ):
        log: Log = []

        def stop(self: BaseHook, runner: Any) -> None:
            if runner.global_step in (0, 2, 3):
                runner.stop("enough")
                runner.stop("more than enough")

        trainer = echo_trainer()
        stopper = type("Stopper", (BaseHook,), {point: stop})()
        runner = attach_hooks(trainer, [stopper, RecordingHook(log=log, name="recorder")], work_dir=tmp_path / point)
        trainer.run([1, 2, 3], max_epochs=3)
        points = [at for _, at, *_ in log]
        assert runner.stop_reason == "enough", point
        assert points.count("before_train_iter") == points.count("after_train_iter")
        assert trainer.state.iteration == {"before_run": 0, "before_epoch": 0}.get(
            point, 2 if "iter" in point else 3
        ), point
        assert points[-1] == "cleanup"


def test_a_stop_between_runs_does_not_affect_the_next(tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    runner.stop("too early")
    trainer.run([1, 2])
    assert (runner.stop_reason, trainer.state.iteration) == (None, 2)
