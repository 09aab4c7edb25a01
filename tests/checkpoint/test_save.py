"""Checkpoints on their way to the store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, CheckpointError, HookError, attach_hooks
from ignite_hooks.store import FolderStore
from ignite_hooks.store.files import HashingFile
from ignite_hooks.writers.memory import MemoryWriter
from tests.ranks import run_ranks

PERIODIC = {"type": "CheckpointHook", "by_epoch": False, "interval": 2, "save_best": False}


class Heard(BaseHook):
    """Notes which calls about checkpoints it gets, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, int]] = []

    def before_save_checkpoint(self, runner: Any) -> None:
        self.log.append(("before", runner.global_step))

    def after_save_checkpoint(self, runner: Any, path: Path) -> None:
        assert path.exists()
        self.log.append((path.name, runner.global_step))


def training(folder: Path, *hooks: Any, **options: Any) -> tuple[Any, Engine, torch.nn.Module]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())

    def step(engine: Engine, batch: Any) -> float:
        optimizer.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    runner = attach_hooks(trainer, list(hooks), work_dir=folder, model=model, optimizer=optimizer, **options)
    return runner, trainer, model


DATA = [torch.ones(2, 3)] * 6


def test_outputs_are_flushed_with_a_checkpoint(tmp_path: Path) -> None:
    """A killed run continues from its checkpoint, and would leave a gap in an output that is behind."""

    class Flushed(MemoryWriter):
        def flush(self) -> None:
            reached.append([step for _, step, _, _ in self.lines][-1])

    reached: list[int] = []
    hooks = [{**PERIODIC, "async_save": False}, {"type": "LoggerHook", "interval": 1}]
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, {"hooks": hooks, "writers": [Flushed()]}, work_dir=tmp_path, model=torch.nn.Linear(1, 1))
    trainer.run(DATA, max_epochs=1)
    assert reached == [2, 4, 6, 6, 6], "before last.pth and before the result, too"


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the store's thread write nothing before the event is set."""
    ready, write = threading.Event(), HashingFile.write

    def wait_and_write(self: HashingFile, data: Any) -> int:
        if threading.current_thread() is not threading.main_thread():
            assert ready.wait(60)
        return write(self, data)

    monkeypatch.setattr(HashingFile, "write", wait_and_write)
    return ready


def test_the_training_continues_while_a_checkpoint_is_written(tmp_path: Path, slow_disk: threading.Event) -> None:
    heard = Heard()
    _, trainer, _ = training(tmp_path, PERIODIC | {"interval": 2, "start": 2, "max_keep_ckpts": 1}, heard)

    @trainer.on(Events.ITERATION_COMPLETED(once=5))
    def now() -> None:
        assert heard.log == [("before", 2), ("before", 4)]
        slow_disk.set()

    trainer.run(DATA, max_epochs=1)
    saved = [name for name, _ in heard.log if name != "before"]
    assert saved == ["iter_2.pth", "iter_4.pth", "iter_6.pth", "last.pth"]
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == ["iter_6.pth", "last.pth"]


def test_a_file_is_there_when_it_is_reported_although_a_newer_one_is_too(
    tmp_path: Path, slow_disk: threading.Event
) -> None:
    """Hooks copy and send what they are told of."""
    heard = Heard()
    saves = PERIODIC | {"interval": 2, "start": 2, "max_keep_ckpts": 1, "save_last": False}
    runner, trainer, _ = training(tmp_path, saves, heard)

    @trainer.on(Events.ITERATION_COMPLETED(once=5))
    def both() -> None:
        slow_disk.set()
        for save in runner.checkpoints._pending:
            save.saving.wait()
        assert heard.log == [("before", 2), ("before", 4)]

    @trainer.on(Events.ITERATION_STARTED(once=6))
    def now() -> None:
        assert heard.log[2:] == [("iter_2.pth", 5), ("iter_4.pth", 5)]
        assert [path.name for path in tmp_path.glob("*.pth")] == ["iter_4.pth"]
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        trainer.run(DATA, max_epochs=1)


def test_a_finished_save_is_reported_at_the_next_iteration(tmp_path: Path, slow_disk: threading.Event) -> None:
    heard, done = Heard(), threading.Event()
    runner, trainer, _ = training(tmp_path, PERIODIC | {"start": 2, "interval": 100}, heard)
    wake = runner.installation.wake

    def waking() -> None:
        wake()
        done.set()

    runner.installation.wake = waking

    @trainer.on(Events.ITERATION_STARTED(once=4))
    def write() -> None:
        slow_disk.set()
        assert done.wait(60)

    trainer.run(DATA, max_epochs=1)
    assert heard.log[:2] == [("before", 2), ("iter_2.pth", 4)]


def test_a_late_write_still_holds_the_state_of_its_iteration(tmp_path: Path, slow_disk: threading.Event) -> None:
    _, trainer, model = training(tmp_path, PERIODIC)
    seen = {}

    @trainer.on(Events.ITERATION_COMPLETED)
    def keep() -> None:
        seen[trainer.state.iteration] = model.weight.detach().clone()
        if trainer.state.iteration == 5:
            slow_disk.set()

    trainer.run(DATA, max_epochs=1)
    for iteration in (2, 4, 6):
        state = torch.load(tmp_path / f"iter_{iteration}.pth", weights_only=True)
        assert torch.equal(state["state_dict"]["weight"], seen[iteration])
        assert {int(entry["step"]) for entry in state["optimizer"]["state"].values()} == {iteration}


def test_weights_changed_by_the_script_during_staging_are_never_torn(
    tmp_path: Path, slow_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    _, trainer, model = training(tmp_path, PERIODIC | {"max_keep_ckpts": -1}, heard)

    @trainer.on(Events.ITERATION_STARTED(once=5))
    def by_hand() -> None:
        # The copy of iteration 4 stands behind the writing of iteration 2.
        with torch.no_grad():
            model.weight.fill_(7.0)
        slow_disk.set()

    trainer.run(DATA, max_epochs=1)
    assert "cannot save iter_4.pth: state_dict.weight was changed before it had been copied" in "".join(caplog.messages)
    assert sorted(path.name for path in tmp_path.glob("iter*.pth")) == ["iter_2.pth", "iter_6.pth"]


def test_weights_changed_by_the_script_at_epoch_end_are_saved(tmp_path: Path, slow_disk: threading.Event) -> None:
    _, trainer, model = training(tmp_path, {"type": "CheckpointHook"})

    @trainer.on(Events.EPOCH_STARTED(once=2))
    def by_hand() -> None:
        with torch.no_grad():
            model.weight.fill_(7.0)
        slow_disk.set()

    trainer.run(DATA, max_epochs=2)
    assert not (torch.load(tmp_path / "epoch_1.pth", weights_only=True)["state_dict"]["weight"] == 7.0).any()


def test_the_optimizer_is_left_as_it_was(tmp_path: Path) -> None:
    runner, trainer, _ = training(tmp_path, PERIODIC)
    optimizer = runner.optimizer
    trainer.run(DATA, max_epochs=1)
    assert not optimizer._optimizer_step_pre_hooks


def test_without_step_hooks_the_state_is_copied_synchronously(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steady, begin = [], FolderStore.begin

    def look(self: FolderStore, *args: Any, **kwargs: Any) -> Any:
        steady.append(len(kwargs["steady"]))
        return begin(self, *args, **kwargs)

    monkeypatch.setattr(FolderStore, "begin", look)
    model = torch.nn.Linear(3, 2)
    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, [PERIODIC], work_dir=tmp_path / "unknown", model=model)
    trainer.run(DATA, max_epochs=1)
    assert steady == [0, 0, 0]
    _, trainer, _ = training(tmp_path / "known", PERIODIC)
    trainer.run(DATA, max_epochs=1)
    assert steady[3:] == [8, 8, 0], "two weights, and of each two averages and a step; none at the end of an epoch"


def test_a_failed_save_without_callback_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: HashingFile, data: Any) -> int:
        raise OSError(28, "No space left on device")

    run = training(tmp_path)
    monkeypatch.setattr(HashingFile, "write", full)
    with pytest.raises(CheckpointError, match="disk full"):
        run[0].save_checkpoint("mine.pth")


class FailsWhenTold(BaseHook):
    cleaned_up = 0

    def after_save_checkpoint(self, path: Path) -> None:
        raise ValueError(f"cannot upload {path.name}")

    def cleanup(self) -> None:
        self.cleaned_up += 1


@pytest.mark.parametrize("at", [3, 6])
def test_a_hook_failing_after_a_save_ends_the_run_cleanly(at: int, tmp_path: Path, slow_disk: threading.Event) -> None:
    fails, heard = FailsWhenTold(), Heard()
    _, trainer, _ = training(tmp_path, PERIODIC | {"max_keep_ckpts": -1}, heard, fails)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=at), slow_disk.set)
    with pytest.raises(HookError, match=r"FailsWhenTold\.after_save_checkpoint .*cannot upload iter_2\.pth"):
        trainer.run(DATA, max_epochs=1)
    assert fails.cleaned_up == 1


def test_an_error_while_closing_does_not_hide_the_first(
    tmp_path: Path, slow_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    fails = FailsWhenTold()
    _, trainer, _ = training(tmp_path, PERIODIC | {"save_on_exception": False}, fails)

    @trainer.on(Events.ITERATION_COMPLETED(once=5))
    def fail() -> None:
        slow_disk.set()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trainer.run(DATA, max_epochs=1)
    assert fails.cleaned_up == 1
    assert "cannot upload iter_2.pth" in caplog.text
    assert {path.name for path in tmp_path.glob("*.pth")} == {"iter_2.pth", "iter_4.pth"}


def in_each_rank(folder: str, fail: bool) -> list[Any]:
    heard = Heard()
    if fail and idist.get_rank() == 0:
        write = HashingFile.write

        def full(self: HashingFile, data: Any) -> int:
            if threading.current_thread() is not threading.main_thread():
                raise OSError(28, "No space left on device")
            return write(self, data)

        HashingFile.write = full  # type: ignore[method-assign]
    runner, trainer, _ = training(Path(folder), PERIODIC, heard)
    trainer.run(DATA, max_epochs=2)
    return [heard.log, runner.hooks["CheckpointHook"].state.failed]


@pytest.mark.slow
@pytest.mark.parametrize("fail", [False, True])
def test_all_ranks_report_every_save_at_the_same_iteration(fail: bool, tmp_path: Path) -> None:
    one, other = run_ranks(in_each_rank, str(tmp_path), fail)
    assert one == other
    log, failed = one
    assert failed == (6 if fail else 0)
    assert len([name for name, _ in log if name != "before"]) == (1 if fail else 7)


def test_a_save_that_is_refused_is_reported_after_those_on_their_way(
    tmp_path: Path, slow_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    class Refuses(BaseHook):
        def before_save_checkpoint(self, runner: Any) -> None:
            if runner.global_step == 4:
                raise CheckpointError("not this one")

        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 5:
                slow_disk.set()

    _, trainer, _ = training(tmp_path, PERIODIC, Refuses())
    trainer.run(DATA, max_epochs=1)
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == [
        "not this one; the run continues without it",
        "iter_6.pth is saved; before it failed: iter_4.pth",
        "checkpoints that could not be saved: 1",
    ]
