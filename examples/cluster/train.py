"""A plain Ignite script for several hosts: torchrun starts it on each of them, and one line of it is ours."""

from __future__ import annotations

import argparse
from datetime import timedelta

import ignite.distributed as idist
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from ignite_hooks import attach_hooks

CONFIG = {
    "default_hooks": {"checkpoint": {"max_keep_ckpts": 2, "best_metric": "accuracy"}, "logger": {"interval": 1000}},
    # A scheduler announces the end by a signal; Slurm is asked to start the job again once the state is saved.
    "signals": {"USR1": "save", "TERM": "save and stop"},
    "requeue": True,
}


def spirals(count: int, seed: int) -> TensorDataset:
    """Points on three arms of a spiral, and which arm each of them is on."""
    dice = torch.Generator().manual_seed(seed)
    arm, along = torch.randint(3, (count,), generator=dice), torch.rand(count, generator=dice)
    angle = 4 * along + 2 * torch.pi / 3 * arm + 0.2 * torch.randn(count, generator=dice)
    return TensorDataset(torch.stack((along * angle.cos(), along * angle.sin()), dim=1), arm)


def train(epochs: int, work_dir: str, **checkpoint: str | None) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank, world_size = idist.get_rank(), idist.get_world_size()

    train_set, val_set = spirals(1500, seed=1), spirals(297, seed=2)
    # The batch is that of all processes together: however many there are, an epoch has as many iterations.
    train_loader = idist.auto_dataloader(train_set, batch_size=60, shuffle=True, drop_last=True)
    # Every process takes each n-th sample: none is evaluated twice, as a sampler that pads would have it.
    mine = Subset(val_set, range(rank, len(val_set), world_size))
    val_loader = DataLoader(mine, batch_size=64)

    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    # From three processes on, DistributedDataParallel adds gradients in another order in its first iteration than in
    # the others, unless it looks for unused parameters: a resumed run would end with slightly other weights.
    model = idist.auto_model(model, **({"find_unused_parameters": True} if world_size > 1 else {}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion, device=idist.device())
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(criterion)}, idist.device())

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        evaluator.run(val_loader)

    overrides = [f"default_hooks.checkpoint.{name}={value}" for name, value in checkpoint.items() if value is not None]
    # The only added line. A process that torchrun has restarted resumes from the newest checkpoint.
    runner = attach_hooks(
        trainer,
        CONFIG,
        evaluators=evaluator,
        model=model,
        optimizer=optimizer,
        work_dir=work_dir,
        resume="auto",
        overrides=overrides,
    )

    @trainer.on(Events.EPOCH_COMPLETED)
    def tell() -> None:
        if rank == 0:
            print(f"epoch {trainer.state.epoch} on {world_size}", flush=True)

    trainer.run(train_loader, max_epochs=epochs)
    if rank == 0:
        best = runner.best["accuracy"]
        print(f"best accuracy {best.score:.4f} in epoch {best.epoch}: {runner.work_dir / str(best.file)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--work-dir", default="work_dirs/cluster", help="a folder of each host, or one that all share")
    parser.add_argument("--copies", help="per_machine: each host keeps the checkpoints, where they share no disk")
    parser.add_argument("--mirror", help="a second home, as s3://bucket/run, for machines whose disk is lost")
    parser.add_argument("--backend", default="nccl" if torch.cuda.is_available() else "gloo")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a silent host is given up")
    arguments = parser.parse_args()
    # With the default timeout a process waits half an hour for a host that is cut off.
    idist.initialize(arguments.backend, timeout=timedelta(seconds=arguments.timeout))
    train(arguments.epochs, arguments.work_dir, mirror=arguments.mirror, copies=arguments.copies)
    idist.finalize()
