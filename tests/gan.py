"""A small GAN: two models, two optimizers, two schedulers and two scalers, for the tests of runs with several."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import attach_hooks

LENGTH = 4
"""Iterations of an epoch."""

Form = Literal["mapping", "list"]


def gan(
    folder: Path,
    hooks: list[Any],
    form: Form = "mapping",
    *,
    gather: int = 2,
    fail_at: int = -1,
    seed: int = 1,
    **options: Any,
) -> SimpleNamespace:
    """Return a script that trains a GAN; its generator steps in every second iteration, with gathered gradients.

    Args:
        folder: The work directory.
        hooks: The hooks.
        form: Whether several objects are passed as a mapping or as a list.
        gather: The iterations whose gradients the generator gathers for one step.
        fail_at: The iteration in which the step fails.
        seed: The seed of the generators.
        options: Arguments of ``attach_hooks``; they replace those of the script.
    """
    torch.manual_seed(seed)
    g = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    d = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer_g, optimizer_d = torch.optim.Adam(g.parameters(), 0.01), torch.optim.SGD(d.parameters(), 0.1, 0.9)
    scheduler_g = torch.optim.lr_scheduler.StepLR(optimizer_g, 3, 0.5)
    scheduler_d = torch.optim.lr_scheduler.ExponentialLR(optimizer_d, 0.9)
    scaler_g = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    scaler_d = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    loss = nn.BCEWithLogitsLoss()
    real = torch.ones(8, 1)

    def step(engine: Engine, batch: Any) -> dict[str, float]:
        if engine.state.iteration == fail_at:
            raise ZeroDivisionError("crash")
        g.train(), d.train()
        optimizer_d.zero_grad()
        fake = g(torch.randn(8, 2))
        loss_d = loss(d(batch[0]), real) + loss(d(fake.detach()), 1 - real)
        scaler_d.scale(loss_d).backward()
        scaler_d.step(optimizer_d)
        scaler_d.update()
        loss_g = loss(d(fake), real)
        scaler_g.scale(loss_g / gather).backward()
        if engine.state.iteration % gather == 0:
            scaler_g.step(optimizer_g)
            scaler_g.update()
            optimizer_g.zero_grad()
            scheduler_g.step()
        scheduler_d.step()
        return {"loss": loss_g.item() + loss_d.item(), "loss_g": loss_g.item(), "loss_d": loss_d.item()}

    trainer = Engine(step)
    data = torch.randn(LENGTH * 8, 3, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(data), 8, shuffle=True)
    pairs = {
        "model": (g, d),
        "optimizer": (optimizer_g, optimizer_d),
        "scheduler": (scheduler_g, scheduler_d),
        "scaler": (scaler_g, scaler_d),
    }
    several = {
        name: {"g": one, "d": two} if form == "mapping" else [one, two] for name, (one, two) in pairs.items()
    } | options
    runner = attach_hooks(trainer, hooks, work_dir=folder, **several)
    losses: list[float] = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: losses.append(trainer.state.output["loss"]))
    return SimpleNamespace(
        runner=runner, trainer=trainer, g=g, d=d, optimizers=pairs["optimizer"], losses=losses, loader=loader,
        states=lambda: [one.state_dict() for pair in pairs.values() for one in pair],
        run=lambda epochs: trainer.run(loader, max_epochs=epochs),
    )  # fmt: skip
