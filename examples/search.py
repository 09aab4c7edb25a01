"""Search a learning rate with Optuna in an Ignite script: hopeless trials are pruned, and stop in good order.

Run it with ``python examples/search.py --trials 10``; Optuna comes with ``pip install 'ignite-hooks[search]'``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import optuna
import torch
from ignite.engine import create_supervised_trainer
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import attach_hooks


def make_data(seed: int) -> TensorDataset:
    """Return points in two half-rings, and the ring that each belongs to."""
    generator = torch.Generator().manual_seed(seed)
    angle, ring = torch.rand(400, generator=generator) * 3.14, torch.arange(400) % 2
    points = torch.stack([torch.cos(angle) + ring, torch.sin(angle) * (1 - 2 * ring)], dim=1)
    return TensorDataset(points + 0.2 * torch.randn(400, 2, generator=generator), ring)


def objective(trial: optuna.Trial, folder: Path) -> float:
    """Train with the values that Optuna suggests; return the best loss."""
    torch.manual_seed(0)
    width = trial.suggest_int("width", 4, 64, log=True)
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.suggest_float("lr", 1e-4, 1e-1, log=True))
    criterion = torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion)
    runner = attach_hooks(
        trainer,
        [
            {"type": "EvalHook"},
            {"type": "PruningHook", "monitor": "val_loss"},
            {"type": "CheckpointHook", "save_best": False},
        ],
        model=model,
        optimizer=optimizer,
        criterion=criterion,
        val_loader=DataLoader(make_data(1), 100),
        trial=trial,
        work_dir=folder / f"trial_{trial.number}",
    )
    trainer.run(DataLoader(make_data(0), 50, shuffle=True), max_epochs=6)
    return runner.best["val_loss"].score


def main() -> None:
    """Search, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--work-dir", type=Path, default=None)
    options = parser.parse_args()
    folder = options.work_dir or Path(tempfile.mkdtemp(prefix="search-"))
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    study.optimize(lambda trial: objective(trial, folder), n_trials=options.trials)
    pruned = sum(trial.state is optuna.trial.TrialState.PRUNED for trial in study.trials)
    print(
        f"best loss {study.best_value:.4f} with {study.best_params}; {pruned} of {len(study.trials)} trials were pruned"
    )
    print(f"files: {folder}")


if __name__ == "__main__":
    main()
