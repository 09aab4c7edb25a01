"""A run that is killed repeatedly ends with exactly the same bits as an uninterrupted one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.capture import weights_of
from tests.faults.tools import Life, Tell, drawn, saved_in, times, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(900, 3600))]

LENGTH, EPOCHS = 5, 3
"""Iterations of an epoch, and epochs; a checkpoint is made every 3 iterations."""
SAVING = {"type": "CheckpointHook", "by_epoch": False, "interval": 3, "max_keep_ckpts": 2}
HOOKS: dict[str, list[Any]] = {
    "plain": [SAVING],
    "saving before going on": [{**SAVING, "async_save": False}],
    "EMAHook": [SAVING, {"type": "EMAHook", "momentum": 0.8, "warm_up": 3, "accumulate": 2}],
}
PLACES = ("GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "ITERATION_STARTED", "ITERATION_COMPLETED")


class Noisy(Dataset[Any]):
    """Data with random augmentation from three generators."""

    def __len__(self) -> int:
        return 18

    def __getitem__(self, index: int) -> Any:
        x = torch.full((4,), index / 9 - 1) + 0.3 * torch.randn(4)
        x[0] += random.random()
        x[1] *= float(numpy.random.rand())
        return x, index % 3


def die_with_the_parent(parent: int, worker: int) -> None:
    """End a worker with its parent, for which workers otherwise check only every 5 seconds.

    A worker whose parent was gone before it began would take the process that inherited it for its parent.
    """
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def script(folder: Path, hooks: list[Any], workers: int, resume: str | None = "auto") -> SimpleNamespace:
    """Return a script with everything that makes resuming hard."""
    # Another seed in every process, like a script that does not set one when it is resumed.
    seed = 0 if not any(folder.glob("*.pth")) else os.getpid()
    random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    by_iteration = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    by_epoch = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(engine: Engine, batch: Any) -> float:
        model.train()
        x, y = batch
        x = x + random.random() * 0.1 + float(numpy.random.rand()) * 0.1 + 0.1 * torch.randn(())
        loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if engine.state.iteration % 2 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            by_iteration.step()
        engine.state.total += loss.item()
        return loss.item()

    trainer = Engine(step)
    trainer.state_dict_user_keys.append("total")
    trainer.state.total = 0.0
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: by_epoch.step())
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda: torch.rand(2))
    loader = DataLoader(
        Noisy(), 4, shuffle=True, num_workers=workers, worker_init_fn=partial(die_with_the_parent, os.getpid())
    )
    services = {"model": model, "optimizer": optimizer, "scheduler": by_iteration, "by_epoch": by_epoch}
    runner = attach_hooks(trainer, hooks, work_dir=folder, resume=resume, scaler=scaler, **services)

    at_the_end: list[Any] = []

    def digest() -> str:
        states = [weights_of(runner), optimizer.state_dict(), by_iteration.state_dict(), by_epoch.state_dict()]
        found = hashlib.sha256()
        for value in flat([*states, scaler.state_dict(), trainer.state.total, at_the_end]):
            found.update(value)
        return found.hexdigest()

    trainer.add_event_handler(Events.COMPLETED, lambda: at_the_end.extend([random.random(), torch.rand(())]))
    return SimpleNamespace(
        trainer=trainer, run=lambda: trainer.run(loader, max_epochs=EPOCHS), digest=digest, length=LENGTH * EPOCHS
    )


def flat(value: Any) -> Any:
    """Yield the bytes of a nested state, in order."""
    if isinstance(value, dict):
        for key in value:
            yield str(key).encode()
            yield from flat(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, torch.Tensor):
        yield value.detach().contiguous().numpy().tobytes()
    else:
        yield repr(value).encode()


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import what a script imports late, once, before the lives are forked."""
    script(tmp_path_factory.mktemp("imported"), HOOKS["EMAHook"], 0).run()


@dataclass(frozen=True)
class Death:
    """Where a life ends."""

    after: int
    """The number of times that it reaches the place."""
    place: str
    once_saved: bool = False
    """Whether it waits there until the manifest lists a checkpoint, even on a slow disk."""


def live(tell: Tell, folder: Path, make: Callable[[Path], SimpleNamespace], death: Death | None) -> None:
    """Run one life, which is killed or continues to the end of the run."""
    made = make(folder)
    done = 0

    def die() -> None:
        nonlocal done
        done += 1
        if death is not None and done == death.after and made.trainer.state.iteration < made.length:
            if death.once_saved:
                until(lambda: saved_in(folder))
            os.kill(os.getpid(), signal.SIGKILL)

    if death is not None:
        made.trainer.add_event_handler(Events[death.place], die)
    made.trainer.add_event_handler(Events.STARTED, lambda: tell("began", made.trainer.state.iteration))
    made.run()
    tell("ended", made.digest())


def whole_life(folder: Path, make: Callable[[Path], SimpleNamespace], deaths: list[Death]) -> tuple[str, list[int]]:
    """Return the digest at the end of a run with these deaths, and the iterations at which its lives began.

    ``make`` makes the script. Each life begins exactly at the newest checkpoint in the manifest when the previous life
    was killed.
    """
    began: list[int] = []
    for death in [*deaths, None]:
        newest = saved_in(folder)
        with Life(lambda tell, death=death: live(tell, folder, make, death)) as life:  # type: ignore[misc]
            told = list(life.tells())
            code = life.wait()
        assert told[0] == ["began", newest], (deaths, began)
        began.append(newest)
        if code == 0:
            return told[-1][1], began
        assert code == -signal.SIGKILL
    raise AssertionError("the last life must reach the end")


def drawn_deaths(draw: random.Random) -> list[Death]:
    """Return up to four deaths at random places, one of them after the first checkpoint.

    The others may come before anything was saved, or in the middle of a save.
    """
    deaths = [Death(draw.randint(1, 8), draw.choice(PLACES)) for _ in range(draw.randint(1, 4))]
    # After the first save was begun, which is in iteration 3.
    deaths[draw.randrange(len(deaths))] = Death(draw.randint(4, 8), draw.choice(PLACES), once_saved=True)
    return deaths


@pytest.mark.parametrize(
    ("hooks", "workers", "runs"),
    [
        ("plain", 0, times(6, 200)),
        ("saving before going on", 0, times(3, 100)),
        ("EMAHook", 0, times(6, 200)),
        ("EMAHook", 2, times(1, 30)),
    ],
)
def test_a_run_killed_anywhere_ends_with_the_same_bits(hooks: str, workers: int, runs: int, tmp_path: Path) -> None:
    draw, make = drawn(), partial(script, hooks=HOOKS[hooks], workers=workers)
    wanted, _ = whole_life(tmp_path / "whole", make, [])
    for number in range(runs):
        deaths = drawn_deaths(draw)
        found, began = whole_life(tmp_path / str(number), make, deaths)
        assert found == wanted, (deaths, began)
        # Every 3 iterations there is a save, which is never where an epoch of 5 ends but at the end of the run.
        assert any(iteration % LENGTH for iteration in began), (deaths, began)


def test_a_run_killed_after_an_epochs_last_save_is_exact(tmp_path: Path) -> None:
    make = partial(script, hooks=[{**SAVING, "interval": LENGTH, "async_save": False}], workers=0)
    wanted, _ = whole_life(tmp_path / "whole", make, [])
    found, began = whole_life(tmp_path / "killed", make, [Death(LENGTH + 2, "ITERATION_STARTED")])
    assert began == [0, LENGTH]
    assert found == wanted


@pytest.mark.filterwarnings("ignore:CUDA is not available:UserWarning")
def test_a_scaler_that_ignite_keeps_in_its_state_comes_back(tmp_path: Path) -> None:
    def run(epochs: int) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), amp_mode="amp", scaler=scaler)
        trainer.state.scaler = scaler  # where Ignite puts one that it makes itself, which wants CUDA
        hooks = [{**SAVING, "interval": 2}]
        attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=tmp_path, resume="auto")
        trainer.run([(torch.ones(2, 2), torch.tensor([0, 1]))] * 4, max_epochs=epochs)
        return scaler.state_dict(), trainer.state.iteration

    first, done = run(1)
    assert (first["scale"], first["_growth_tracker"], done) == (8.0, 1, 4)
    second, done = run(2)
    assert (second["scale"], second["_growth_tracker"], done) == (16.0, 2, 8)
