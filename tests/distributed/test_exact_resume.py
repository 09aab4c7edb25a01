"""A run of two processes of which one is killed, and that is resumed, ends with the bits of one left alone."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.capture import weights_of
from ignite_hooks.distributed.collectives import rank
from tests.faults.tools import drawn, saved_in, times, until
from tests.ranks import Ranks, run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(times(900, 3600))]

EPOCHS, LENGTH, INTERVAL = 3, 6, 2


def live(folder: str, victim: int, die_at: int, once_saved: bool = False) -> str:
    """Run one life and return its result; rank ``victim`` kills itself after iteration ``die_at``, if it gets there.

    With ``once_saved`` it waits there until the manifest lists the saves that have begun.
    """
    fresh = not any(Path(folder).glob("*.pth"))
    # Every rank draws different numbers, and a resumed script begins with other ones.
    torch.manual_seed(rank() if fresh else os.getpid())
    random.seed(rank() if fresh else os.getpid())
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(engine: Engine, batch: Any) -> float:
        model.train()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[0] + random.random() * 0.1), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    data = TensorDataset(torch.linspace(-1, 1, 72).reshape(24, 3), torch.arange(24) % 2)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
    trainer = Engine(step)
    runner = attach_hooks(
        trainer,
        {
            "default_hooks": {"checkpoint": {"by_epoch": False, "interval": INTERVAL, "max_keep_ckpts": 2}},
            "custom_hooks": [{"type": "EMAHook", "momentum": 0.9, "warm_up": 2}],
        },
        work_dir=folder,
        resume="auto",
        model=model,
        optimizer=optimizer,
        val_loader=DataLoader(data, batch_size=5),
    )

    @trainer.on(Events.ITERATION_COMPLETED)
    def die() -> None:
        if trainer.state.iteration == die_at and rank() == victim:
            if once_saved:
                until(lambda: saved_in(Path(folder)) == saved_before(die_at))
            os.kill(os.getpid(), signal.SIGKILL)

    @trainer.on(Events.STARTED)
    def note() -> None:
        Path(folder, f"began-{rank()}.txt").write_text(str(trainer.state.iteration))

    trainer.run(loader, max_epochs=EPOCHS)
    digest = hashlib.sha256()
    for name, part in weights_of(runner).items():
        for key, value in part.items():
            digest.update(f"{name}.{key}".encode() + value.numpy().tobytes())
    digest.update(str(torch.rand(()).item()).encode() if rank() == 0 else b"")
    return digest.hexdigest()


def saved_before(iteration: int) -> int:
    """Return the last saved iteration before this one."""
    return (iteration - 1) // INTERVAL * INTERVAL


def began(folder: Path) -> list[int]:
    """Return where each rank of the last life began."""
    return [int((folder / f"began-{rank}.txt").read_text()) for rank in range(2)]


@pytest.mark.parametrize("number", range(times(1, 20)))
def test_a_resumed_run_ends_with_the_same_bits_and_files(number: int, tmp_path: Path) -> None:
    dice = drawn()
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    wanted = run_ranks(live, str(whole), 0, -1)
    # The first death is in the middle of an epoch, once something of that epoch is saved.
    first = dice.randrange(EPOCHS) * LENGTH + dice.randint(INTERVAL + 1, LENGTH - 1)
    more = [(dice.randint(1, EPOCHS * LENGTH - 1), False) for _ in range(dice.randint(0, 1))]
    begins: list[int] = []
    for die_at, once_saved in [(first, True), *more]:
        victim = dice.randrange(2)
        begins.append(saved_in(folder))
        with Ranks(live, str(folder), victim, die_at, once_saved) as ranks:
            codes = ranks.wait()
            printed = ranks.printed_by(1 - victim).read_text()
        assert began(folder) == [begins[-1]] * 2
        if codes[victim] == 0:
            continue  # It had been resumed after the iteration in which it was to die.
        assert codes[victim] == -signal.SIGKILL, printed
        assert f"rank {victim} (process {ranks.processes[victim].pid}) has died" in printed
    begins.append(saved_in(folder))
    assert run_ranks(live, str(folder), 0, -1) == wanted
    assert began(folder) == [begins[-1]] * 2
    assert begins[:2] == [0, saved_before(first)], "it goes on in the middle of the epoch"
    files, kept = ({path.name for path in of.glob("*.pth")} for of in (whole, folder))
    assert files <= kept
    assert len(kept - files) <= 1
