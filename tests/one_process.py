"""A training in one process, on whatever system this is: ``python tests/one_process.py``. It imports no other test.

It saves while it trains, is resumed exactly, refuses a second run in its folder, and trains the demo.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader

from ignite_hooks import attach_hooks
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore
from ignite_hooks.system import host

NAMES = ("Checkpoint", "Logger", "IterTimer", "EMA", "SystemMonitor", "MemoryProfiler", "Report", "HistoryPlot")


def train(folder: Path, epochs: int, workers: int = 0, **more: Any) -> tuple[list[Any], list[float]]:
    """Train a small model; return its weights and the batches that it saw."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []

    def step(engine: Engine, batch: torch.Tensor) -> float:
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(batch.sum().item())
        return float(loss)

    trainer = Engine(step)
    hooks = [{"type": f"{name}Hook"} for name in NAMES]
    runner = attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=folder, **more)
    data: Any = torch.arange(32.0).reshape(8, 4) / 32
    trainer.run(DataLoader(data, 2, shuffle=True, num_workers=workers), max_epochs=epochs)
    failures = {name: count for name, count in runner.report().failures.items() if count}
    assert not failures, failures
    return [value.tolist() for value in model.state_dict().values()], seen


def check(folder: Path) -> str:
    """Train, save and resume; return why a second run was refused in the folder of the first, if it was."""
    whole = train(folder / "whole", 3)
    train(folder / "parts", 1)
    resumed = train(folder / "parts", 3, resume=True)
    assert resumed[0] == whole[0], "a resumed run ended with other weights"
    assert resumed[1] == whole[1][4:], "a resumed run saw other batches"
    names = [path.name for path in folder.rglob("*") if set(path.name) & set('<>:"|?*\\')]
    assert not names, f"Windows refuses these names: {names}"
    with FolderStore(folder / "parts"):
        try:
            FolderStore(folder / "parts").open()
        except CheckpointError as error:
            return str(error)
    return ""


def main(folder: Path) -> None:
    refused = check(folder)
    assert "is in use by process" in refused, refused or "two runs write in one folder"
    (_, seen), (_, others) = train(folder / "alone", 1), train(folder / "workers", 1, workers=2)
    assert others == seen, "workers gave other batches"
    command = [sys.executable, "-m", "ignite_hooks", "demo", "--no-show", "--work-dir", str(folder / "demo")]
    subprocess.run([*command, "--set", "training.epochs=2"], check=True, timeout=600)
    print(f"one process trains, saves and resumes on {host.SYSTEM}")


if __name__ == "__main__":
    # Workers are spawned, not forked, on macOS and Windows: they import this file.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        main(Path(place))
