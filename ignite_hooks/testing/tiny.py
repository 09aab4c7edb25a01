"""A tiny trainer: a real Ignite engine that trains in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from ignite.engine import Engine, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss


@dataclass
class TinyRun:
    """Everything a small training script has. The same seed gives the same run, bit for bit."""

    trainer: Engine
    data: list[tuple[torch.Tensor, torch.Tensor]]
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    criterion: torch.nn.Module
    evaluator: Engine
    val_data: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def services(self) -> dict[str, Any]:
        """The services for ``attach_hooks``, by name."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "criterion": self.criterion,
            "train_loader": self.data,
            "val_loader": self.val_data,
            "device": torch.device("cpu"),
        }


def tiny_trainer(*, batches: int = 3, seed: int = 0) -> tuple[Engine, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return a real Ignite trainer of a linear classifier, and its data; global random state is left alone.

    Example:
        >>> trainer, data = tiny_trainer()
        >>> trainer.run(data, max_epochs=2).iteration
        6
    """
    run = tiny_run(batches=batches, seed=seed)
    return run.trainer, run.data


def tiny_run(*, batches: int = 3, val_batches: int = 2, seed: int = 0) -> TinyRun:
    """Return a tiny trainer with its model, an evaluator of ``accuracy`` and ``loss``, and validation data.

    Example:
        >>> run = tiny_run()
        >>> state = run.trainer.run(run.data, max_epochs=20)
        >>> sorted(run.evaluator.run(run.val_data).metrics)
        ['accuracy', 'loss']
    """
    return build_tiny_run(batches, val_batches, seed)


def build_tiny_run(
    batches: int = 3,
    val_batches: int = 2,
    seed: int = 0,
    *,
    measures: bool = True,
    output: Callable[..., Any] = lambda *parts: parts[-1].item(),
) -> TinyRun:
    """Build a tiny run, also without metrics, or with another output of its step."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which seeds every GPU too.
        torch.default_generator.manual_seed(seed)
        model = torch.nn.Linear(4, 3)
    generator = torch.Generator().manual_seed(seed)

    def some(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        inputs = [torch.randn(8, 4, generator=generator) for _ in range(count)]
        return [(x, x[:, :3].argmax(dim=1)) for x in inputs]

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion, output_transform=output)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)} if measures else {}
    evaluator = create_supervised_evaluator(model, metrics)
    return TinyRun(trainer, some(batches), model, optimizer, criterion, evaluator, some(val_batches))
