"""Runs whose checkpoints go to a disk that fills up."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ignite_hooks import BaseHook, CheckpointError, HookError, attach_hooks
from ignite_hooks.store import FolderStore
from tests.faults.tools import in_memory
from tests.ranks import run_ranks

pytestmark = pytest.mark.faults

DISK = 12
"""Megabytes."""
SIDE = 512
STATE = 2
"""Megabytes: SIDE x SIDE weights, and as many numbers of the optimizer."""
LAST = 9
"""The iteration in which a run ends."""
MEGABYTE = 1024 * 1024
NEEDED = r"disk full, needs (\d+\.\d) MB, (\d+\.\d) MB free in "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a small, separate file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("a small disk cannot be mounted here: there is no mount")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Ballast:
    """A file of somebody else that takes all of a disk but so much."""

    def __init__(self, disk: Path, free: float) -> None:
        self.path = disk / "ballast"
        self.free = int(free * MEGABYTE)

    def drop_in(self) -> None:
        with self.path.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(file.tell() - self.free)

    def throw_out(self) -> None:
        self.path.unlink()


class Witness(BaseHook):
    """Fills the disk, frees it, and knows what was begun and what was said to be saved."""

    priority = "HIGHEST"

    def __init__(self, ballast: Ballast, full_from: int, free_from: int) -> None:
        self.ballast, self.full_from, self.free_from = ballast, full_from, free_from
        self.begun: list[int] = []
        self.saved: list[tuple[str, int]] = []
        self.seen_while_full: list[tuple[str, int]] = []

    def before_train_iter(self, runner: Any) -> None:
        if runner.global_step in (self.full_from, self.free_from):
            runner.checkpoints.wait_until_finished()
        if runner.global_step == self.full_from:
            self.ballast.drop_in()
        if self.full_from < runner.global_step <= self.free_from:
            self.seen_while_full.append(newest_in(self.ballast.path.parent))
        if runner.global_step == self.free_from:
            self.ballast.throw_out()

    def before_save_checkpoint(self, checkpoint: Any) -> None:
        self.begun.append(checkpoint["meta"]["iter"])

    def after_save_checkpoint(self, checkpoint: Any, path: Path) -> None:
        self.saved.append((path.name, checkpoint["meta"]["iter"]))


def attached(
    folder: Path, *hooks: Any, resume: str | None = None, side: int = SIDE, **settings: Any
) -> tuple[Any, Any]:
    """Return a runner and its trainer; after n iterations each weight is n (n + 1) / 2."""
    model = torch.nn.Linear(side, side, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=1.0)
    trainer = create_supervised_trainer(model, optimizer, lambda found, wanted: -found.sum())
    saving = {"type": "CheckpointHook", "by_epoch": False, "interval": 1, "max_keep_ckpts": 2, "out_dir": str(folder)}
    runner = attach_hooks(
        trainer,
        [{**saving, **settings}, *hooks],
        work_dir=folder.parent,
        resume=resume,
        model=model,
        optimizer=optimizer,
    )
    return runner, trainer


def train(trainer: Any, epochs: int = LAST // 3) -> None:
    trainer.run([(torch.ones(1, SIDE), torch.ones(1))] * 3, max_epochs=epochs)


def newest_in(disk: Path) -> tuple[str, int]:
    """Return the name and iteration of the newest checkpoint that verifies, after checking its weights."""
    store = FolderStore(disk)
    path = store.newest()
    assert path is not None
    state = store.load(path)
    iteration = int(state["meta"]["iter"])
    weight = iteration * (iteration + 1) / 2
    assert state["state_dict"]["weight"].aminmax() == (weight, weight)
    return path.name, iteration


def names(disk: Path) -> set[str]:
    return {path.name for path in disk.iterdir()} - {".lock", "manifest.json", "ballast"}


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about failed saves."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR and "cannot save" in r.getMessage()]


@pytest.mark.parametrize("async_save", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("free", [0.0, 1.2], ids=["nothing left", "room for half a state"])
def test_a_full_disk_costs_only_the_saves_during_it(
    async_save: bool, free: float, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness(Ballast(disk, free), full_from=4, free_from=7)
    _, trainer = attached(disk, witness, async_save=async_save)
    with caplog.at_level(logging.INFO):
        train(trainer)
    assert trainer.state.iteration == LAST, "the run goes on to its end"
    assert witness.begun == [*range(1, LAST + 1), LAST]
    assert witness.saved == [(f"iter_{n}.pth", n) for n in (1, 2, 3, 7, 8, 9)] + [("last.pth", LAST)]
    assert witness.seen_while_full == [("iter_3.pth", 3)] * 3
    (line,) = reports(caplog)
    found = re.fullmatch(rf"cannot save iter_4\.pth: {NEEDED}{disk}; the run continues without it", line)
    assert found, line
    assert STATE <= float(found[1]) < STATE + 0.5
    assert free - 0.2 <= float(found[2]) <= free + 0.05
    assert "iter_7.pth is saved; before it failed: iter_4.pth, iter_5.pth, iter_6.pth" in caplog.text
    assert "checkpoints that could not be saved: 3" in caplog.text
    assert names(disk) == {"iter_8.pth", "iter_9.pth", "last.pth"}
    assert newest_in(disk) == ("last.pth", LAST)


@pytest.mark.parametrize("async_save", [True, False], ids=["async", "sync"])
def test_a_run_that_has_saved_ends_without_its_last_state(
    async_save: bool, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ballast = Ballast(disk, free=0.5)
    witness = Witness(ballast, full_from=4, free_from=LAST + 1)
    runner, trainer = attached(disk, witness, async_save=async_save)
    train(trainer)
    assert trainer.state.iteration == LAST
    assert witness.saved == [(f"iter_{n}.pth", n) for n in (1, 2, 3)]
    assert names(disk) == {"iter_2.pth", "iter_3.pth"}
    assert newest_in(disk) == ("iter_3.pth", 3)
    first, last = reports(caplog)
    assert first.startswith("cannot save iter_4.pth")
    assert re.match(rf"cannot save last\.pth: {NEEDED}{disk}; the run ends without its last state", last), last
    assert "its newest checkpoint is iter_3.pth" in last
    # On a slow disk there is another one, on how long saves were waited for.
    (finding,) = [text for text in runner.report().findings["CheckpointHook"] if "failed" in text]
    assert finding.startswith("7 saves failed: iter_4.pth, iter_5.pth, iter_6.pth, iter_7.pth, iter_8.pth and 2 more")
    assert "disk full" in finding

    ballast.throw_out()
    runner, trainer = attached(disk, resume="auto", async_save=async_save)
    train(trainer)
    assert runner.state.resumed_from == disk / "iter_3.pth"
    assert newest_in(disk) == ("last.pth", LAST)


def test_the_run_fails_if_nothing_of_it_can_be_saved(disk: Path) -> None:
    _, trainer = attached(disk)
    trainer.add_event_handler(Events.ITERATION_STARTED(once=1), Ballast(disk, free=0.5).drop_in)
    with pytest.raises((HookError, CheckpointError), match=rf"cannot save last\.pth: {NEEDED}{disk}"):
        train(trainer)
    assert trainer.state.iteration == LAST
    assert names(disk) == set()


def test_the_run_ends_if_only_its_last_state_has_no_room(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    runner, trainer = attached(disk, interval=LAST - 1)

    @trainer.on(Events.ITERATION_STARTED(once=LAST))
    def fill(engine: Engine) -> None:
        runner.checkpoints.wait_until_finished()
        Ballast(disk, free=0.5).drop_in()

    train(trainer)
    assert len(reports(caplog)) == 1
    assert newest_in(disk) == (f"iter_{LAST - 1}.pth", LAST - 1)


def test_a_run_is_refused_if_the_disk_is_already_full(disk: Path) -> None:
    Ballast(disk, free=0).drop_in()
    _, trainer = attached(disk)
    with pytest.raises((HookError, CheckpointError), match=f"cannot write checkpoints in {disk}: disk full"):
        train(trainer)
    assert trainer.state.iteration == 0
    assert names(disk) == set()


STEPS = ("write", "fsync", "replace")


class Failing:
    """The n-th call of a function of `os` fails because the disk is full, and those after it where it stays full."""

    def __init__(self, name: str, at: int, for_good: bool) -> None:
        self.original, self.at, self.for_good = getattr(os, name), at, for_good
        self.armed = False
        self.count = 0

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.count += self.armed
        if self.armed and (self.count == self.at or (self.for_good and self.count > self.at)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.original(*arguments, **more)


class Arming(BaseHook):
    """Lets the disk fail from the moment on in which the third of four saves begins until that save has ended."""

    def __init__(self, failing: Failing) -> None:
        self.failing = failing
        self.saved: list[int] = []

    def before_save_checkpoint(self, runner: Any, checkpoint: Any) -> None:
        if checkpoint["meta"]["iter"] == 3:
            runner.checkpoints.wait_until_finished()
            self.failing.armed = True

    def before_train_iter(self, runner: Any) -> None:
        if runner.global_step == 4:
            runner.checkpoints.wait_until_finished()
            self.failing.armed = False
            self.newest = newest_in(runner.work_dir / "checkpoints")

    def after_save_checkpoint(self, checkpoint: Any) -> None:
        self.saved.append(checkpoint["meta"]["iter"])


@pytest.mark.parametrize(
    ("async_save", "for_good"), [(True, True), (True, False), (False, False)], ids=["async for good", "async", "sync"]
)
@pytest.mark.parametrize("name", STEPS)
def test_a_full_disk_at_any_step_keeps_the_earlier_state(
    name: str,
    for_good: bool,
    async_save: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes = []
    for step in range(1, 100):
        failing = Failing(name, step, for_good)
        hook = Arming(failing)
        caplog.clear()
        with in_memory() as made, monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            folder = Path(made) / "checkpoints"
            _, trainer = attached(folder, hook, side=8, async_save=async_save, max_keep_ckpts=1, save_last=False)
            trainer.run([(torch.ones(1, 8), torch.ones(1))] * 4, max_epochs=1)
            assert newest_in(folder) == ("iter_4.pth", 4)
            assert not list(folder.glob(".tmp-*"))
            with FolderStore(folder) as store:
                entries = store.entries()
                assert [store.verify(entry) for entry in entries] == [None] * len(entries)
                assert names(folder) == {entry.name for entry in entries}
        if reached := failing.count >= step:
            # Once the new state has its name it is there, whether or not it could be told.
            assert hook.newest in [("iter_2.pth", 2), ("iter_3.pth", 3)]
            assert 3 in hook.saved or len(reports(caplog)) == 1
            assert 3 not in hook.saved or hook.newest == ("iter_3.pth", 3)
            for line in reports(caplog):
                assert re.match(rf"cannot save iter_3\.pth: {NEEDED}", line), line
            outcomes.append((hook.newest[1], 3 in hook.saved))
        else:
            assert hook.saved == [1, 2, 3, 4]
            break
    assert not reached, "every step was tried"
    print(f"{len(outcomes)} times {name}: (newest, reported as saved) {outcomes}")
    assert len(outcomes) >= 3
    assert outcomes[0] == (2, False)
    assert outcomes == sorted(outcomes), "once the new state was there it must stay"


@pytest.mark.parametrize("async_save", [True, False], ids=["async", "sync"])
def test_older_files_go_only_after_the_new_one_is_listed(
    async_save: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def short(path: object) -> str:
        name = Path(os.fsdecode(str(path))).name
        if name.startswith(".tmp-"):
            return "new " + ("manifest" if "manifest" in name else "state")
        return {"manifest.json": "manifest", "checkpoints": "folder"}.get(name, name)

    def recorded(name: str) -> Any:
        original = getattr(os, name)

        def step(target: Any, *arguments: Any, **more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            if "checkpoints" in str(path):
                line = f"{name} {short(path)}" + (f" to {short(arguments[0])}" if name == "replace" else "")
                steps.extend([line] if line not in steps[-1:] else [])
            return original(target, *arguments, **more)

        return step

    class Recording(BaseHook):
        def before_save_checkpoint(self, runner: Any, checkpoint: Any) -> None:
            runner.checkpoints.wait_until_finished()
            steps.clear()

    folder = tmp_path / "checkpoints"
    _, trainer = attached(folder, Recording(), side=8, async_save=async_save, max_keep_ckpts=1, save_last=False)
    for name in (*STEPS, "unlink"):
        monkeypatch.setattr(os, name, recorded(name))
    trainer.run([(torch.ones(1, 8), torch.ones(1))] * 3, max_epochs=1)
    manifest = ["write new manifest", "fsync new manifest", "replace new manifest to manifest", "fsync folder"]
    state = ["write new state", "fsync new state"]
    named = ["replace new state to iter_3.pth", "fsync folder"]
    assert steps == [*state, *manifest, *named, *manifest, *manifest, "unlink iter_2.pth"]


def save_shards(work_dir: str) -> list[str]:
    """Return what a rank learns of a save that does not fit on the disk, and of the next one, which does."""
    model: Any = torch.nn.Linear(SIDE, SIDE, bias=False, dtype=torch.float64)
    fully_shard(model, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    trainer = Engine(lambda engine, batch: None)
    runner = attach_hooks(trainer, [], work_dir=work_dir, model=model)
    rank, ballast = torch.distributed.get_rank(), Ballast(Path(work_dir), free=1.5)
    if rank == 0:
        ballast.drop_in()
    torch.distributed.barrier()
    with pytest.raises(CheckpointError) as caught:
        runner.save_checkpoint("full")
    if rank == 0:
        ballast.throw_out()
    torch.distributed.barrier()
    return [str(caught.value), runner.save_checkpoint("room").name]


@pytest.mark.slow
def test_all_ranks_learn_that_the_disk_is_too_full(disk: Path) -> None:
    for message, saved in run_ranks(save_shards, str(disk)):
        match = re.search(NEEDED, message)
        assert match, message
        assert (float(match[1]), saved) == (STATE, "room")
    assert [entry.name for entry in FolderStore(disk).entries()] == ["room"]
    assert not list(disk.glob(".tmp-*"))
