"""Runs of real kinds of models are killed, with averages, bfloat16, workers and several threads: the same bits."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.capture import weights_of
from tests import warm
from tests.faults.test_exact_resume import SAVING, die_with_the_parent, drawn_deaths, flat, whole_life
from tests.faults.tools import drawn, times

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(900, 3600))]

LENGTH, EPOCHS = 5, 3


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x).mean(1))


MODELS: dict[str, Any] = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 3)),
    "convolutions": lambda: nn.Sequential(
        nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)
    ),
    "recurrent": Recurrent,
    "transformer": Attends,
}


def script(folder: Path, kind: str, averages: bool, half: bool, workers: int, threads: int) -> SimpleNamespace:
    """Return a script; it resumes with another seed."""
    torch.set_num_threads(threads)
    seed = 0 if not any(folder.glob("*.pth")) else os.getpid()
    random.seed(seed), torch.manual_seed(seed)
    model, data = MODELS[kind](), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(40, 8, 8, generator=data), torch.randint(0, 3, (40,), generator=data)

    def step(engine: Engine, batch: Any) -> float:
        model.train()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    options = {"worker_init_fn": partial(die_with_the_parent, os.getpid())} if workers else {}
    loader = DataLoader(TensorDataset(inputs, labels), 8, shuffle=True, num_workers=workers, **options)
    hooks = [SAVING, *([{"type": "EMAHook", "momentum": 0.8, "warm_up": 2}] if averages else [])]
    trainer = Engine(step)
    runner = attach_hooks(trainer, hooks, work_dir=folder, resume="auto", model=model, optimizer=optimizer)

    def digest() -> str:
        found = hashlib.sha256()
        for value in flat([weights_of(runner), optimizer.state_dict()]):
            found.update(value)
        return found.hexdigest()

    return SimpleNamespace(
        trainer=trainer, run=lambda: trainer.run(loader, max_epochs=EPOCHS), digest=digest, length=LENGTH * EPOCHS
    )


def main(folder: Path) -> None:
    """Kill runs of models drawn at random, each with its settings, and compare their ends."""
    for kind in MODELS:
        # Import what a script imports late, once, with the one thread that lives can be forked beside.
        script(folder / kind, kind, True, True, 0, 1).run()
    draw = drawn()
    kinds = ([*MODELS] * 10)[: times(0, 40)] or draw.sample([*MODELS], 2)
    for number, kind in enumerate(kinds):
        settings = (draw.random() < 0.5, draw.random() < 0.5, draw.choice([0, 0, 0, 1]), draw.choice([2, 3, 4]))
        make = partial(
            script, kind=kind, **dict(zip(("averages", "half", "workers", "threads"), settings, strict=True))
        )
        deaths = drawn_deaths(draw)
        wanted, _ = whole_life(folder / f"whole {number}", make, [])
        found, _ = whole_life(folder / f"killed {number}", make, deaths)
        assert found == wanted, (kind, settings, deaths)


def test_every_kind_of_model_ends_with_the_same_bits(tmp_path: Path) -> None:
    """In a process that never computed with several threads: a fork of one that has waits for them for ever."""
    command = [sys.executable, "-m", __name__, str(tmp_path)]
    done = warm.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
