"""A run of a model that is sharded over the ranks, and the contents of the run and its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, create_supervised_evaluator
from ignite.metrics import MeanSquaredError
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ignite_hooks import CheckpointHook, EMAHook, attach_hooks

WARM_UP = 1


def small_model() -> Any:
    """Return a model whose sizes, 6 and 1, do not divide evenly: some ranks have larger parts, and some none."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


class Training:
    """A small model with hooks, sharded over all ranks, over a mesh of them or not at all."""

    def __init__(
        self, work_dir: str | Path, *hooks: Any, sharded: bool = True, mesh: Sequence[int] = (), **options: Any
    ) -> None:
        self.model = small_model()
        if sharded:
            ranks = tuple(mesh) or (torch.distributed.get_world_size(),)
            # Of two dimensions the first is the number of replicas.
            names = ("copies", "shards")[-len(ranks) :]
            fully_shard(self.model, mesh=init_device_mesh("cpu", ranks, mesh_dim_names=names))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        self.trainer = Engine(self.step)
        self.evaluator = create_supervised_evaluator(self.model, {"mse": MeanSquaredError()})
        self.runner = attach_hooks(
            self.trainer,
            list(hooks),
            work_dir=work_dir,
            model=self.model,
            optimizer=self.optimizer,
            evaluators=self.evaluator,
            **options,
        )

    def step(self, engine: Engine, batch: Any) -> float:
        loss = self.model(self.x * batch).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.item())

    def run(self, epochs: int) -> None:
        self.trainer.run([1.0, 0.5, 2.0], max_epochs=epochs)

    def holds(self) -> dict[str, Any]:
        """Return all tensors of the run, whole and as numbers."""
        found: dict[str, Any] = {"weights": self.model.state_dict(), "optimizer": self.optimizer.state_dict()["state"]}
        if "EMAHook" in self.runner.hooks:
            found["averages"] = self.runner.hooks["EMAHook"].weights()["ema_state_dict"]
        plain: dict[str, Any] = numbers_of(found)
        return plain


def numbers_of(value: Any) -> Any:
    if isinstance(value, DTensor):
        value = value.full_tensor()
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): numbers_of(item) for key, item in value.items()}
    return value


def trained(work_dir: str, sharded: bool = True, mesh: Sequence[int] = ()) -> dict[str, Any]:
    """Return what a rank holds after a run of three epochs, each of which was saved."""
    hooks = EMAHook(warm_up=WARM_UP), CheckpointHook(max_keep_ckpts=2)
    training = Training(work_dir, *hooks, sharded=sharded, mesh=mesh)
    training.run(3)
    return training.holds()
