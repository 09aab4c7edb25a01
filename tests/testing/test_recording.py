"""Hooks that record their calls, or fail at one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.plan.points import POINTS
from ignite_hooks.testing import RecordingHook, failing_at, tiny_run, tiny_trainer


def test_a_recording_hook_answers_every_point(tmp_path: Path) -> None:
    run = tiny_run(batches=2, val_batches=1)
    recorder = RecordingHook()
    assert recorder.get_triggered_stages() == list(POINTS)
    runner = attach_hooks(run.trainer, ["EvalHook", recorder], work_dir=tmp_path, **run.services)
    assert list(runner.hooks) == ["EvalHook", "RecordingHook"]
    run.trainer.run(run.data, max_epochs=1)
    assert recorder.calls == [
        ("before_run", 0, 0),
        ("before_train", 0, 0),
        ("before_epoch", 1, 0),
        ("before_train_epoch", 1, 0),
        ("before_train_iter", 1, 1),
        ("after_train_iter", 1, 1),
        ("before_train_iter", 1, 2),
        ("after_train_iter", 1, 2),
        ("before_val", 1, 2),
        ("before_val_epoch", 1, 2),
        ("before_val_iter", 1, 2),
        ("after_val_iter", 1, 2),
        ("after_val_epoch", 1, 2),
        ("after_val", 1, 2),
        ("after_train_epoch", 1, 2),
        ("after_epoch", 1, 2),
        ("after_train", 1, 2),
        ("after_run", 1, 2),
        ("cleanup", 1, 2),
    ]


def test_a_recording_hook_answers_only_its_points(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    recorder = RecordingHook(points=["after_epoch", "my_point"], name="some")
    runner = attach_hooks(trainer, [recorder], work_dir=tmp_path)
    assert [(slot.point.name, slot.hook) for slot in runner.plan] == [("after_epoch", "some")]
    trainer.run(data, max_epochs=2)
    runner.call_hook("my_point")
    assert recorder.calls == [("after_epoch", 1, 3), ("after_epoch", 2, 6), ("my_point", 2, 6)]
    assert RecordingHook().get_triggered_stages() == list(POINTS)


def test_recording_hooks_share_a_log_in_the_order_of_calls(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    log: list[tuple[str, str, int, int]] = []
    points = ["before_train_iter"]
    late = RecordingHook(points=points, name="late", log=log, priority="LOW")
    early = RecordingHook(points=points, name="early", log=log, priority=5, interval=2)
    attach_hooks(trainer, [late, early], work_dir=tmp_path)
    trainer.run(data)
    seen = [(name, iteration) for name, _, _, iteration in log]
    assert seen == [("late", 1), ("early", 2), ("late", 2), ("late", 3)]


def test_a_failing_hook_fails_at_the_given_call(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    hook = failing_at("after_train_iter", call=2, error=KeyError("mine"), on_error="warn")
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run(data)
    assert runner.report().failures["FailingHook"].count == 1
    assert "iteration 2" in runner.report().failures["FailingHook"].last
    assert "mine" in runner.report().failures["FailingHook"].last


def test_a_failing_hook_raises_value_error_by_default(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, [failing_at("before_epoch")], work_dir=tmp_path)
    with pytest.raises(HookError, match="epoch 1, iteration 0: ValueError: boom"):
        trainer.run(data)
