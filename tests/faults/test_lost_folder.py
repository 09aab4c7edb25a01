"""Runs whose folder is taken away: a disk that is unmounted, a bind mount that goes, and what comes back."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events, create_supervised_trainer

from ignite_hooks import attach_hooks
from ignite_hooks.store import FolderStore

pytestmark = pytest.mark.faults

LAST = 8


def mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("nothing can be mounted here: there is no mount")
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


class Disk:
    """A folder that another one is mounted on.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.point, self.real = folder / "point", folder / "real"
        self.point.mkdir()
        self.real.mkdir()

    def attach(self) -> None:
        mount("--bind", str(self.real), str(self.point))

    def take_away(self) -> None:
        unmount(self.point)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    made.attach()
    try:
        yield made
    finally:
        made.take_away()


def attached(folder: Path, work_dir: Path, events: dict[int, Callable[[], None]], **settings: Any) -> tuple[Any, Any]:
    """Return a runner and its trainer, which does something before the iterations of these numbers."""
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    saving = {"type": "CheckpointHook", "by_epoch": False, "save_best": False, "out_dir": str(folder), **settings}
    runner = attach_hooks(trainer, [saving], work_dir=work_dir, model=model, optimizer=optimizer)

    def act(engine: Any) -> None:
        if engine.state.iteration in events:
            runner.checkpoints.wait_until_finished()
            events[engine.state.iteration]()

    trainer.add_event_handler(Events.ITERATION_STARTED, act)
    return runner, trainer


def train(trainer: Any) -> None:
    trainer.run([(torch.ones(1, 8), torch.ones(1, 1))] * LAST, max_epochs=1)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR and "cannot save" in r.getMessage()]


@pytest.mark.parametrize("async_save", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("inside", [False, True], ids=["the mount itself", "a folder in it"])
def test_a_mount_taken_away_costs_only_the_saves_until_it_is_back(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture, inside: bool, async_save: bool
) -> None:
    folder = disk.point / "a" / "b" if inside else disk.point
    below: list[list[Path]] = []

    def come_back() -> None:
        below.append(list(disk.point.iterdir()))
        disk.attach()

    events = {4: disk.take_away, 7: come_back}
    _, trainer = attached(folder, tmp_path / "work", events, max_keep_ckpts=-1, async_save=async_save)
    train(trainer)
    assert below == [[]], "nothing was written below the mount point"
    store = FolderStore(folder)
    assert [entry.name for entry in store.entries()] == [
        *(f"iter_{number}.pth" for number in (1, 2, 3, 7, 8)),
        "last.pth",
    ]
    assert [store.verify(entry) for entry in store.entries()] == [None] * 6
    (line,) = errors(caplog)
    assert line.startswith("cannot save iter_4.pth: ")
    assert line.endswith("; the run continues without it")
    assert "iter_7.pth is saved; before it failed: iter_4.pth, iter_5.pth, iter_6.pth" in caplog.text


def test_a_run_whose_folder_stays_lost_ends_and_says_so(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner, trainer = attached(disk.point, tmp_path / "work", {4: disk.take_away})
    train(trainer)
    assert trainer.state.iteration == LAST
    assert list(disk.point.iterdir()) == []
    first, last = errors(caplog)
    assert "iter_4.pth: another folder has this name now: the disk with the checkpoints was taken away" in first
    assert last.startswith("cannot save last.pth")
    assert "its newest checkpoint is iter_3.pth" in last
    assert runner.report().findings["CheckpointHook"]


def test_a_run_in_a_lost_work_directory_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    point = tmp_path / "point"
    point.mkdir()
    mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point))
    try:
        _, trainer = attached(point / "run", point / "run", {4: lambda: unmount(point)})
        train(trainer)
    finally:
        unmount(point)
    assert trainer.state.iteration == LAST
    assert list(point.iterdir()) == []
    first, last = errors(caplog)
    assert "the folder is gone" in first
    assert "the run ends without its last state" in last
