"""The run as a hook sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, ConfigError, attach_hooks
from ignite_hooks.plan.points import POINTS
from ignite_hooks.testing import RecordingHook, tiny_run
from tests.tools import Log, echo_trainer


def counters(points: Any, log: Log) -> BaseHook:
    def method_for(point: str) -> Any:
        def method(self: BaseHook, runner: Any) -> None:
            log.append((point, runner.epoch, runner.iter, runner.global_step, runner.batch_idx))

        return method

    return type("Counters", (BaseHook,), {point: method_for(point) for point in points})()


def test_epoch_and_iter_count_from_zero_what_has_finished(tmp_path: Path) -> None:
    log: Log = []
    trainer = echo_trainer()
    points = [p for p in POINTS if "val" not in p and "test" not in p and "checkpoint" not in p and p != "on_exception"]
    runner = attach_hooks(trainer, [counters(points, log)], work_dir=tmp_path)
    assert (runner.epoch, runner.iter, runner.global_step) == (0, 0, 0)
    trainer.run([1, 2], max_epochs=2)
    by_point = {point: [entry[1:] for entry in log if entry[0] == point] for point in points}
    assert by_point["before_run"] == [(0, 0, 0, -1)]
    assert [e[:3] for e in by_point["before_epoch"]] == [(0, 0, 0), (1, 2, 2)]
    assert by_point["before_train_iter"] == [(0, 0, 1, 0), (0, 1, 2, 1), (1, 2, 3, 0), (1, 3, 4, 1)]
    assert by_point["after_train_iter"] == by_point["before_train_iter"]
    for point in ("after_train_epoch", "after_epoch"):
        assert [e[:3] for e in by_point[point]] == [(0, 2, 2), (1, 4, 4)]
    for point in ("after_train", "after_run", "cleanup"):
        assert [e[:3] for e in by_point[point]] == [(2, 4, 4)]
    assert (runner.epoch, runner.iter, runner.max_epochs, runner.max_iters) == (2, 4, 2, 4)


def test_the_helpers_of_hook_authors_agree_with_the_counters(tmp_path: Path) -> None:
    seen: Log = []

    class Helped(BaseHook):
        def after_train_iter(self, runner: Any, batch_idx: int) -> None:
            if self.every_n_train_iters(runner, 2):
                seen.append(("iter", runner.global_step))
            if self.every_n_inner_iters(batch_idx, 3):
                seen.append(("inner", runner.global_step))
            if self.is_last_iter(runner):
                seen.append(("last iter", runner.global_step))

        def after_train_epoch(self, runner: Any) -> None:
            if self.every_n_epochs(runner, 2):
                seen.append(("epoch", runner.epoch))
            if self.is_last_epoch(runner):
                seen.append(("last epoch", runner.epoch))

    trainer = echo_trainer()
    attach_hooks(trainer, [Helped()], work_dir=tmp_path)
    trainer.run([1, 2, 3], max_epochs=2)
    assert seen == [
        *[("iter", 2), ("inner", 3), ("iter", 4)],
        *[("iter", 6), ("inner", 6), ("last iter", 6), ("epoch", 1), ("last epoch", 1)],
    ]


def test_batch_outputs_and_counters_come_from_the_running_engine(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    seen: Log = []

    class Looker(BaseHook):
        def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any, outputs: Any, epoch: int) -> None:
            assert data_batch is val_data[batch_idx]
            assert outputs[1] is data_batch[1]
            assert runner.engine is evaluator
            seen.append((runner.state.evaluating, batch_idx, epoch))

        def after_train_iter(self, runner: Any, data_batch: Any, outputs: float) -> None:
            assert data_batch is data[runner.batch_idx]
            assert outputs == runner.loss_dict["loss"]
            assert runner.engine is trainer

    attach_hooks(trainer, [Looker()], evaluators=evaluator, work_dir=tmp_path)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=2), lambda: evaluator.run(val_data))
    trainer.run(data, max_epochs=1)
    assert seen == [("val", 0, 0), ("val", 1, 0)]


def test_services_are_found_given_and_custom_ones_reach_hooks(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data, model = tiny.trainer, tiny.data, tiny.model
    seen: dict[str, Any] = {}

    class User(BaseHook):
        def before_run(self, model: Any, optimizer: Any, criterion: Any, mlflow: Any) -> None:
            for name in ("model", "mlflow", "trainer", "runner", "experiment_dir", "checkpoints_dir", "logs_dir"):
                seen[name] = self.get_service(name)
            seen["visualizer"] = self.get_service("visualizer")
            seen["optimizer"] = optimizer

    runner = attach_hooks(trainer, [User()], work_dir=tmp_path, mlflow="client")
    trainer.run(data, max_epochs=1)
    assert seen["model"] is model is runner.model
    assert seen["trainer"] is trainer
    assert seen["runner"] is runner
    assert seen["experiment_dir"] == tmp_path == seen["checkpoints_dir"]
    assert seen["logs_dir"].parent == tmp_path
    assert seen["mlflow"] == "client"
    assert seen["visualizer"] is None
    assert isinstance(seen["optimizer"], torch.optim.SGD)
    with pytest.raises(ValueError, match="service of every run"):
        runner.register_service("trainer", 1)


def test_a_loss_tensor_is_not_fetched_until_it_is_read(tmp_path: Path) -> None:
    loss = torch.tensor(0.25)
    trainer = Engine(lambda engine, batch: loss)
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    trainer.run([1])
    assert runner.loss_dict["loss"] is loss
    assert runner.metrics["loss"] == 0.25
    assert runner.metrics.step("loss") == 1


def test_validate_works_outside_of_training_and_says_what_is_missing(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, val_data = tiny.trainer, tiny.evaluator, tiny.val_data
    log: Log = []
    runner = attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], evaluators=evaluator, work_dir=tmp_path)
    with pytest.raises(ConfigError, match="pass val_loader="):
        runner.validate()
    runner.register_service("val_loader", val_data)
    assert runner.validate() == evaluator.state.metrics
    with pytest.raises(ConfigError, match=r"pass evaluators=\{'test'"):
        runner.test()
    assert "after_val_epoch" in [at for _, at, *_ in log]


def test_hooks_are_found_by_name_and_by_class(tmp_path: Path) -> None:
    trainer = echo_trainer()
    log: Log = []
    runner = attach_hooks(
        trainer, {"custom_hooks": [RecordingHook(log=log, name="one")]}, work_dir=tmp_path, model=torch.nn.Linear(1, 1)
    )
    assert list(runner.hooks) == ["runtime_info", "timer", "logger", "checkpoint", "one"]
    assert runner.hooks["CheckpointHook"] is runner.hooks["checkpoint"]
    assert "CheckpointHook" in runner.hooks
    with pytest.raises(KeyError, match="did you mean 'checkpoint'"):
        _ = runner.hooks["checkpoints"]
    with pytest.raises(ConfigError, match="already a hook of this name"):
        runner.register_hook(RecordingHook(log=log, name="one"))
    runner.remove_hook("one")
    assert "one" not in runner.hooks


@pytest.mark.parametrize(
    "name",
    [
        "trainer",
        "evaluators",
        "model",
        "optimizer",
        "scheduler",
        "epoch",
        "iter",
        "max_epochs",
        "max_iters",
        "global_step",
        "batch_idx",
        "data_batch",
        "outputs",
        "loss_dict",
        "metrics",
        "best",
        "checkpoint",
        "stop_reason",
        "resumed_from",
        "work_dir",
        "logger",
        "writer",
        "hooks",
        "plan",
        "services",
        "register_hook",
        "remove_hook",
        "register_service",
        "get_service",
        "call_hook",
        "save_checkpoint",
        "load_checkpoint",
        "resume",
        "validate",
        "test",
        "stop",
        "report",
        "detach",
        "close",
        "store",
    ],
)
def test_the_runner_has_what_the_documents_promise(name: str, tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    trainer.run([1])
    getattr(runner, name)


def left_behind(tmp_path: Path) -> tuple[Any, dict[str, Any]]:
    """Return a runner whose trainer is gone, and what it measured while the trainer was there."""
    tiny = tiny_run()
    hooks = ["EvalHook", {"type": "EMAHook", "momentum": 0.5}, "LoggerHook", "CheckpointHook"]
    runner = attach_hooks(tiny.trainer, hooks, evaluators=tiny.evaluator, work_dir=tmp_path, **tiny.services)
    tiny.trainer.run(tiny.data, max_epochs=2)
    return runner, runner.validate()


def test_a_runner_outlives_its_trainer(tmp_path: Path) -> None:
    runner, inside = left_behind(tmp_path)
    assert not runner.has_trainer
    assert runner.validate() == inside  # with the averages, as before
    assert (runner.epoch, runner.iter, runner.global_step) == (2, 6, 6)
    assert "EMAHook" in str(runner.plan)
    assert "EMAHook" in str(runner.report())
    assert runner.outputs == runner.loss_dict["loss"]
    assert len(runner.data_batch) == 2
    assert runner.get_service("model") is runner.model
    assert runner.get_service("trainer") is None
    assert runner.metrics["val_loss"] == inside["loss"]
    for end in (runner.close, runner.detach, runner.detach, runner.close):
        end()


@pytest.mark.parametrize(
    "ends", [["close"], ["detach"], ["detach", "close"], ["detach", "detach"], ["close", "detach"]]
)
def test_what_is_data_stays_after_the_end(ends: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runner, _ = left_behind(tmp_path)
    shown = str(runner.plan), runner.report().rows()
    for end in ends:
        getattr(runner, end)()
    assert (str(runner.plan), runner.report().rows()) == shown
    assert runner.get_service("model") is runner.model
    assert not [record for record in caplog.records if "missing from the report" in record.getMessage()]


@pytest.mark.parametrize(
    "drive",
    [
        lambda runner: runner.trainer,
        lambda runner: runner.save_checkpoint(),
        lambda runner: runner.load_checkpoint(runner.work_dir / "last.pth"),
        lambda runner: runner.resume(),
        lambda runner: runner.call_hook("after_save_checkpoint", checkpoint={}, path=None),
    ],
)
def test_what_drives_a_trainer_that_is_gone_says_so(drive: Any, tmp_path: Path) -> None:
    runner, _ = left_behind(tmp_path)
    with pytest.raises(ReferenceError, match="the trainer of this runner no longer exists"):
        drive(runner)


def test_a_detached_runner_neither_evaluates_nor_takes_hooks(tmp_path: Path) -> None:
    tiny = tiny_run()
    runner = attach_hooks(tiny.trainer, ["EvalHook"], evaluators=tiny.evaluator, work_dir=tmp_path, **tiny.services)
    runner.detach()
    for call in (runner.validate, lambda: runner.register_hook(RecordingHook(log=[], name="late"))):
        with pytest.raises(ConfigError, match=r"have been detached: call attach_hooks\(\) again"):
            call()


def test_a_notebook_shows_what_a_run_has_as_tables(tmp_path: Path) -> None:
    run = tiny_run()
    runner = attach_hooks(run.trainer, ["EvalHook", "CheckpointHook"], work_dir=tmp_path, **run.services)
    empty = runner.best._repr_html_(), runner.metrics._repr_html_(), runner.checkpoints._repr_html_()
    assert empty == ("nothing has been ranked yet", "nothing has been published yet", "no checkpoints")
    run.trainer.run(run.data, max_epochs=1)
    tables = {
        "best": runner.best._repr_html_(),
        "metrics": runner.metrics._repr_html_(),
        "hooks": runner.hooks._repr_html_(),
        "checkpoints": runner.checkpoints._repr_html_(),
        "report": runner.report()._repr_html_(),
    }
    said = {"best": "accuracy", "metrics": "val_loss", "hooks": "CheckpointHook", "checkpoints": "last.pth"}
    assert {name: words in tables[name] for name, words in said.items()} == dict.fromkeys(said, True)
    assert {name for name, table in tables.items() if "<table" not in table} == set()
