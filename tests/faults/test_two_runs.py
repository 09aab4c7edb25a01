"""Two runs in one folder: the second is refused only while the first is alive."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import create_supervised_trainer
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, CheckpointError, HookError, attach_hooks
from ignite_hooks.store import FolderStore
from tests.faults.tools import Life, Tell

pytestmark = pytest.mark.faults

REFUSED = r"{folder} is in use by process {pid} on {host}"


def run(folder: Path, tell: Tell, *, resume: str | None = None, workers: int = 0, iterations: int = 10**9) -> None:
    """Run a real run that reports its progress and why it was refused."""

    class Witness(BaseHook):
        def before_train(self, runner: Any) -> None:
            tell("resumed", runner.global_step)

        def after_save_checkpoint(self, checkpoint: Any) -> None:
            tell("saved", checkpoint["meta"]["iter"])

        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step >= iterations:
                runner.stop("enough")

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), num_workers=workers)
    try:
        hooks = [{"type": "CheckpointHook", "by_epoch": False, "interval": 2, "max_keep_ckpts": 1}, Witness()]
        attach_hooks(trainer, hooks, work_dir=folder, resume=resume, model=model, optimizer=optimizer)
        trainer.run(loader, max_epochs=10**6)
    except (CheckpointError, HookError) as error:
        tell("refused", str(error))


@pytest.fixture(autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import once in this process what every life needs."""
    run(tmp_path_factory.mktemp("warm"), lambda *_: None, iterations=2)


def until_it_saved(life: Life) -> int:
    return next(number for word, number in life.tells() if word == "saved")


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Life]:
    """Yield a run that has saved and continues."""
    with Life(lambda tell: run(tmp_path, tell)) as life:
        until_it_saved(life)
        yield life


def run_without_patience(folder: Path, tell: Tell, *, resume: str | None = None, iterations: int) -> None:
    """Run, and tell how the lock was asked for, and how often the run slept."""
    asked: list[int] = []
    slept: list[float] = []
    lock, sleep = fcntl.flock, time.sleep

    def counted_lock(descriptor: int, how: int) -> None:
        asked.append(how)
        lock(descriptor, how)

    def counted_sleep(seconds: float) -> None:
        slept.append(seconds)
        sleep(seconds)

    # This process is a life of its own, and ends with it.
    fcntl.flock, time.sleep = counted_lock, counted_sleep
    run(folder, tell, resume=resume, iterations=iterations)
    tell("asked", asked, slept)


@pytest.mark.parametrize("resume", [None, "auto"])
def test_a_second_run_is_refused_at_once_naming_the_first(first: Life, tmp_path: Path, resume: str | None) -> None:
    with Life(lambda tell: run_without_patience(tmp_path, tell, resume=resume, iterations=4)) as second:
        told = list(second.tells())
        assert second.wait() == 0
    assert [word for word, *_ in told] == ["refused", "asked"], "it neither trains nor saves"
    (_, message), asked = told
    assert asked == ["asked", [fcntl.LOCK_EX | fcntl.LOCK_NB], []], "it asks once, and does not wait"
    owner = REFUSED.format(folder=re.escape(str(tmp_path)), pid=first.pid, host=re.escape(socket.gethostname()))
    assert re.search(owner, message), message


def test_refused_runs_do_not_disturb_the_first(first: Life, tmp_path: Path) -> None:
    for _ in range(5):
        with Life(lambda tell: run(tmp_path, tell, iterations=4)) as other:
            assert next(other.tells())[0] == "refused"
            other.wait()
    os.kill(first.pid, 0)
    until_it_saved(first)
    until_it_saved(first)
    first.kill()
    assert FolderStore(tmp_path).newest() is not None


@pytest.mark.parametrize("workers", [0, 2])
def test_the_folder_of_a_killed_run_is_free_at_once(workers: int, tmp_path: Path) -> None:
    with Life(lambda tell: run(tmp_path, tell, workers=workers)) as killed:
        until_it_saved(killed)
        # Its data workers notice only after some seconds that they are alone.
        killed.kill()
        newest = FolderStore(tmp_path).newest()
        assert newest is not None
        reached = int(FolderStore(tmp_path).load(newest)["meta"]["iter"])
        with Life(lambda tell: run(tmp_path, tell, resume="auto", iterations=reached + 2)) as heir:
            assert list(heir.tells()) == [["resumed", reached], *[["saved", reached + 2]] * 2]
            assert heir.wait() == 0
