"""A script with everything that makes resuming hard, for the tests of this folder."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, attach_hooks

LENGTH = 4
"""Iterations of an epoch."""
EMA = {"type": "EMAHook", "momentum": 0.9, "warm_up": 0}
CHECKPOINT = {"type": "CheckpointHook", "best_metric": "val_loss", "max_keep_ckpts": -1}
STOPPING = {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 50}


class Counter(BaseHook):
    """A hook of a user: it has the default priority and a state, and draws random numbers."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.sum = 0.0

    def after_train_iter(self) -> None:
        self.sum += random.random() + float(numpy.random.rand())

    def after_epoch(self, epoch: int) -> None:
        self.seen = [*self.seen, epoch]

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "sum": self.sum}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen, self.sum = list(state["seen"]), state["sum"]


def script(
    folder: Path,
    hooks: list[Any] | None = None,
    *,
    own_evaluation: bool = False,
    width: int = 8,
    fail_at: int = -1,
    **options: Any,
) -> SimpleNamespace:
    """Return a script with all that makes resuming hard: shuffling, dropout, statistics, momentum, own handlers."""
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    x = torch.randn(32, 4)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    loader, val_loader = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion)
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(criterion)})
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())

    @trainer.on(Events.ITERATION_COMPLETED)
    def fail() -> None:
        if trainer.state.iteration == fail_at:
            raise ZeroDivisionError("crash")

    counter = Counter()
    entries = [CHECKPOINT, STOPPING, counter] if hooks is None else [*hooks, counter]
    if own_evaluation:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_loader))
    else:
        entries.append("EvalHook")
    services = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "val_loader": val_loader, **options}
    runner = attach_hooks(trainer, entries, evaluators=evaluator, work_dir=folder, **services)
    return SimpleNamespace(
        runner=runner, trainer=trainer, evaluator=evaluator, loader=loader, model=model, optimizer=optimizer,
        counter=counter, run=lambda epochs: trainer.run(loader, max_epochs=epochs),
    )  # fmt: skip


def content(path: Path) -> dict[str, Any]:
    state = torch.load(path, weights_only=True)
    assert isinstance(state, dict)
    del state["meta"]["time"]
    state["meta"].pop("run", None)  # files of earlier formats have none
    return state


def same(one: Any, other: Any) -> bool:
    """Return whether two states are equal to the bit, tensors and NaN included."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("**/*.pth"))


class Remembers:
    """An object of the script with a state."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.count = state["count"]
