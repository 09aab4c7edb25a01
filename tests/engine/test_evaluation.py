"""The points of evaluations that a script runs itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from ignite.engine import Events

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.testing import RecordingHook, failing_at, tiny_run
from tests.tools import Log


def test_an_evaluator_called_test_reaches_the_test_points(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, val_data = tiny.trainer, tiny.evaluator, tiny.val_data
    log: Log = []
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], evaluators={"test": evaluator}, work_dir=tmp_path)
    evaluator.run(val_data)
    assert [point for _, point, *_ in log] == [
        "before_test",
        "before_test_epoch",
        *["before_test_iter", "after_test_iter"] * 2,
        "after_test_epoch",
        "after_test",
    ]


@pytest.mark.parametrize(
    "point", ["before_val", "before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch", "after_val"]
)
def test_a_failure_at_any_evaluation_point_ends_the_run(point: str, tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    attach_hooks(trainer, [failing_at(point)], evaluators=evaluator, work_dir=tmp_path)
    with pytest.raises(HookError, match=point):
        trainer.run(data, max_epochs=2)
    assert trainer.state.epoch == 1


def test_evaluations_of_the_training_data_are_no_validations(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data

    @trainer.on(Events.EPOCH_COMPLETED)
    def measure() -> None:
        evaluator.run(data)
        evaluator.run(val_data)

    log: Log = []
    watcher = RecordingHook(log=log, name="recorder", points=["after_val_epoch"])
    runner = attach_hooks(trainer, [watcher], evaluators=evaluator, work_dir=tmp_path, val_loader=val_data)
    trainer.run(data, max_epochs=2)
    assert len(log) == 2
    assert {"train_accuracy", "val_accuracy", "accuracy"} <= set(runner.metrics)
    assert runner.metrics["accuracy"] == runner.metrics["val_accuracy"]
