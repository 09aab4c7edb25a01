"""SIGINT and SIGTERM: the iteration is finished, the run ends in order, and the signal is delivered."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.engine.signals import Signals
from ignite_hooks.testing import RecordingHook, tiny_run
from tests.tools import Log


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    # A shell lets what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


SIGNALS = [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143)]


@pytest.mark.parametrize(("number", "error", "code"), SIGNALS)
@pytest.mark.parametrize("moment", ["step", "before_train_iter", "after_train_iter", "GET_BATCH_STARTED", "STARTED"])
def test_a_signal_finishes_the_iteration_saves_and_leaves_run(
    number: int, error: type[BaseException], code: int | None, moment: str, tmp_path: Path
) -> None:
    log: Log = []
    finished: list[int] = []

    def step(engine: Engine, batch: int) -> int:
        if moment == "step" and engine.state.iteration == 2:
            send(number)
        finished.append(engine.state.iteration)
        return batch

    class Sender(BaseHook):
        def before_train_iter(self, runner: Any) -> None:
            if moment == "before_train_iter" and runner.global_step == 2:
                send(number)

        def after_train_iter(self, runner: Any) -> None:
            if moment == "after_train_iter" and runner.global_step == 2:
                send(number)

    trainer = Engine(step)
    if moment == "GET_BATCH_STARTED":
        trainer.add_event_handler(Events.GET_BATCH_STARTED(once=2), lambda: send(number))  # counts what is done
    if moment == "STARTED":
        trainer.add_event_handler(Events.STARTED, lambda: send(number))
    hooks = [RecordingHook(log=log, name="recorder"), Sender(), {"type": "CheckpointHook"}]
    runner = attach_hooks(trainer, hooks, work_dir=tmp_path, model=torch.nn.Linear(1, 1))
    before = signal.getsignal(number)
    with pytest.raises(error) as caught:
        trainer.run([1, 2, 3, 4], max_epochs=2)
    assert signal.getsignal(number) is before
    assert getattr(caught.value, "code", None) == code
    points = [at for _, at, *_ in log]
    steps = points.count("after_train_iter")
    assert finished == list(range(1, steps + 1)), "every iteration that was begun was finished"
    assert steps == {"STARTED": 0, "GET_BATCH_STARTED": 3}.get(moment, 2)
    assert points.count("before_train_epoch") == points.count("after_train_epoch")
    assert points.count("cleanup") == 1
    assert "on_exception" not in points
    assert runner.stop_reason == f"{signal.Signals(number).name} received"
    saved = torch.load(tmp_path / "last.pth", weights_only=True)
    assert saved["meta"]["iter"] == steps
    assert not (tmp_path / "epoch_1.pth").exists(), "an epoch that was not finished is not saved as one"


@pytest.mark.parametrize(("number", "error", "code"), SIGNALS)
@pytest.mark.parametrize("moment", ["in the last iteration", "in the evaluation"])
def test_an_evaluation_of_the_script_goes_on_to_its_end(
    moment: str, number: int, error: type[BaseException], code: int | None, tmp_path: Path
) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data, model = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data, tiny.model
    log: Log = []
    read: list[float] = []

    class Sender(BaseHook):
        def after_train_iter(self, batch_idx: int) -> None:
            if moment == "in the last iteration" and batch_idx == len(data) - 1:
                send(number)

        def after_val_iter(self, batch_idx: int) -> None:
            if moment == "in the evaluation" and batch_idx == 1:
                send(number)

    hooks = [RecordingHook(log=log, name="recorder"), Sender(), {"type": "CheckpointHook"}]
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path, model=model)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate() -> None:
        evaluator.run(val_data * 3)
        read.append(evaluator.state.metrics["accuracy"])

    with pytest.raises(error):
        trainer.run(data, max_epochs=3)
    points = [at for _, at, *_ in log]
    assert points.count("after_val_iter") == 3 * len(val_data)
    assert points.count("before_val") == points.count("after_val") == points.count("cleanup") == 1
    assert "on_exception" not in points
    assert runner.metrics["val_accuracy"] == read[0]
    assert torch.load(tmp_path / "last.pth", weights_only=True)["meta"]["epoch"] == 1


def test_validate_of_the_script_goes_on_to_its_end(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data = tiny.trainer, tiny.data
    runner = attach_hooks(
        trainer,
        [{"type": "EvalHook", "interval": 100}],
        evaluators=tiny.evaluator,
        val_loader=tiny.val_data,
        work_dir=tmp_path,
        model=tiny.model,
    )
    read: list[float] = []
    tiny.evaluator.add_event_handler(Events.ITERATION_COMPLETED(once=1), lambda: send(signal.SIGTERM))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: read.append(runner.validate()["accuracy"]))
    with pytest.raises(SystemExit):
        trainer.run(data, max_epochs=3)
    assert len(read) == 1


@pytest.mark.parametrize(("number", "error", "code"), SIGNALS)
def test_an_evaluation_of_ours_is_cut_short_unseen_by_the_script(
    number: int, error: type[BaseException], code: int | None, tmp_path: Path
) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, model = tiny.trainer, tiny.evaluator, tiny.data, tiny.model
    log: Log = []
    read: list[float] = []

    class Sender(BaseHook):
        def after_val_iter(self, batch_idx: int) -> None:
            if batch_idx == 1:
                send(number)

    hooks = [RecordingHook(log=log, name="recorder"), Sender(), "EvalHook", {"type": "CheckpointHook"}]
    services = {"model": model, "val_loader": tiny.val_data * 3}
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path, **services)
    evaluator.add_event_handler(Events.COMPLETED, lambda: read.append(evaluator.state.metrics["accuracy"]))
    with pytest.raises(error):
        trainer.run(data, max_epochs=3)
    points = [at for _, at, *_ in log]
    assert points.count("after_val_iter") == 2
    assert "after_val_epoch" not in points, "half an evaluation has no metrics"
    assert points.count("before_val") == points.count("after_val") == points.count("cleanup") == 1
    assert "val_accuracy" not in runner.metrics
    assert not read
    assert (tmp_path / "last.pth").exists()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    log: Log = []

    def step(engine: Engine, batch: int) -> None:
        send(signal.SIGINT)
        log.append(("alive", "alive"))
        send(signal.SIGINT)
        log.append(("dead", "dead"))

    trainer = Engine(step)
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trainer.run([1, 2, 3])
    points = [at for _, at, *_ in log]
    assert "alive" in points
    assert "dead" not in points
    assert points[-2:] == ["on_exception", "cleanup"]


def test_the_handler_of_the_script_is_called_instead(tmp_path: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))

    def step(engine: Engine, batch: int) -> None:
        if batch == 2:
            send(signal.SIGTERM)
            assert not seen, "only when the run is over"

    trainer = Engine(step)
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    assert trainer.run([1, 2, 3]).iteration == 2
    assert seen == [signal.SIGTERM]
    assert runner.stop_reason == "SIGTERM received"


@pytest.fixture
def clearml_hooks() -> Iterator[Any]:
    """What a ClearML task puts in the place of signal handlers."""
    exit_hooks = pytest.importorskip("clearml.utilities.process.exit_hooks")
    hooks, excepthook = exit_hooks.ExitHooks(lambda: None), sys.excepthook
    yield hooks
    hooks.remove_signal_hooks()
    sys.excepthook = excepthook


def test_a_clearml_task_does_not_keep_sigterm_from_ending_the_script(clearml_hooks: Any, tmp_path: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    clearml_hooks.register_signal_and_exception_hooks()
    trainer = Engine(lambda engine, batch: send(signal.SIGTERM))
    attach_hooks(trainer, [], work_dir=tmp_path)
    with pytest.raises(SystemExit) as caught:
        trainer.run([1, 2, 3])
    assert caught.value.code == 143
    assert trainer.state.iteration == 1
    assert clearml_hooks.signal == signal.SIGTERM, "or the task would be shown as completed"


def test_below_a_clearml_task_the_handler_of_the_script_is_called(clearml_hooks: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    clearml_hooks.register_signal_and_exception_hooks()
    trainer = Engine(lambda engine, batch: send(signal.SIGTERM))
    attach_hooks(trainer, [], work_dir=tmp_path)
    assert trainer.run([1, 2, 3]).iteration == 1
    assert set(seen) == {signal.SIGTERM}


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    trainer = Engine(lambda engine, batch: send(signal.SIGINT))
    attach_hooks(trainer, [], work_dir=tmp_path)
    assert trainer.run([1, 2, 3]).iteration == 3


def test_a_signal_wins_over_an_exception_which_becomes_its_context(tmp_path: Path) -> None:
    def step(engine: Engine, batch: int) -> None:
        send(signal.SIGTERM)
        raise RuntimeError("worker exited unexpectedly")

    trainer = Engine(step)
    log: Log = []
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
    with pytest.raises(SystemExit) as caught:
        trainer.run([1])
    assert isinstance(caught.value.__context__, RuntimeError)
    assert [at for _, at, *_ in log].count("cleanup") == 1


def test_hooks_run_in_another_thread_and_leave_signals_alone(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: None)
    log: Log = []
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
    thread = threading.Thread(target=trainer.run, args=([1, 2],))
    thread.start()
    thread.join(30)
    assert log[-1][1] == "cleanup"


def test_a_forked_worker_does_not_decide_for_the_run() -> None:
    first: list[str] = []
    with Signals(lambda name, action: first.append(name)) as signals:
        child = os.fork()
        if child == 0:
            send(signal.SIGTERM)
            send(signal.SIGTERM)
            os._exit(0 if not first else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert signals.received is None


def run_with(
    signals: dict[str, str], number: int, folder: Path, *, at: int = 2, checkpoint: dict[str, Any] | None = None
) -> tuple[Any, Engine]:
    """Run six iterations, and send a signal in one of them."""
    trainer = Engine(lambda engine, batch: send(number) if engine.state.iteration == at else None)
    hooks = [{"type": "CheckpointHook", "save_best": False, "interval": 9, **(checkpoint or {})}]
    runner = attach_hooks(trainer, {"hooks": hooks, "signals": signals}, work_dir=folder, model=torch.nn.Linear(1, 1))
    return runner, trainer


def test_a_signal_saves_and_the_run_goes_on(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append((number, trainer.state.iteration)))
    runner, trainer = run_with({"USR1": "save"}, signal.SIGUSR1, tmp_path, checkpoint={"save_last": False})
    trainer.run([1, 2, 3], max_epochs=2)
    assert trainer.state.iteration == 6
    assert runner.stop_reason is None
    assert torch.load(tmp_path / "last.pth", weights_only=True)["meta"]["iter"] == 2
    assert seen == [(signal.SIGUSR1, 2)], "after the save, the script's own handler is called"


def test_a_signal_in_the_last_iteration_of_an_epoch_saves_at_its_end(tmp_path: Path) -> None:
    _, trainer = run_with({"USR1": "save"}, signal.SIGUSR1, tmp_path, at=3, checkpoint={"save_last": False})
    trainer.run([1, 2, 3], max_epochs=2)
    meta = torch.load(tmp_path / "last.pth", weights_only=True)["meta"]
    assert (meta["iter"], meta["epoch"]) == (3, 1)


@pytest.mark.parametrize(
    ("action", "save_last", "saved"),
    [("stop", True, True), ("stop", False, False), ("save and stop", True, True), ("save and stop", False, True)],
)
def test_a_signal_stops_and_saves_as_it_says(action: str, save_last: bool, saved: bool, tmp_path: Path) -> None:
    runner, trainer = run_with(
        {"SIGUSR1": action}, signal.SIGUSR1, tmp_path, checkpoint={"save_last": save_last, "save_on_exception": False}
    )
    with pytest.raises(SystemExit) as ended:
        trainer.run([1, 2, 3], max_epochs=2)
    assert ended.value.code == 128 + signal.SIGUSR1
    assert (runner.stop_reason, trainer.state.iteration) == ("SIGUSR1 received", 2)
    assert (tmp_path / "last.pth").exists() == saved


def test_the_script_that_handles_the_signal_itself_gets_it_after_the_run(tmp_path: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    _, trainer = run_with({"USR1": "save and stop"}, signal.SIGUSR1, tmp_path)
    trainer.run([1, 2, 3], max_epochs=2)
    assert (seen, trainer.state.iteration) == ([signal.SIGUSR1], 2)


def test_a_signal_that_is_ignored_stays_ignored_and_others_are_left_alone(tmp_path: Path) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    others: list[Any] = []
    _, trainer = run_with({"USR1": "save and stop"}, signal.SIGUSR1, tmp_path)
    trainer.add_event_handler(Events.STARTED, lambda: others.append(signal.getsignal(signal.SIGUSR2)))
    before = signal.getsignal(signal.SIGUSR2)
    trainer.run([1, 2, 3], max_epochs=2)
    assert trainer.state.iteration == 6
    assert others == [before]


def test_term_of_slurm_does_not_cut_the_end_that_it_follows() -> None:
    heard: list[str] = []
    with Signals(lambda name, action: heard.append(name), {signal.SIGUSR1: "save and stop"}) as signals:
        send(signal.SIGUSR1)
        signals.expects_end = True
        send(signal.SIGTERM)
        assert heard == ["SIGUSR1"]
        with pytest.raises(SystemExit):
            send(signal.SIGTERM)  # a second one means it
