"""A small GAN learns to draw handwritten digits: two models, two optimizers, two schedulers, attached in one line."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import attach_hooks

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--work-dir", default="work_dirs/gan")
parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the work directory")
arguments = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)

# 1,797 real digits of 8 x 8 pixels that come with scikit-learn: nothing is downloaded.
digits = torch.tensor(load_digits().images, dtype=torch.float32).flatten(1) / 8 - 1
train_loader = DataLoader(TensorDataset(digits[:1500]), batch_size=50, shuffle=True)
val_loader = DataLoader(TensorDataset(digits[1500:]), batch_size=297)

generator = nn.Sequential(
    nn.Linear(16, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh()
)
discriminator = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(128, 1))
models = {"g": generator, "d": discriminator}
optimizers = {name: torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.99)) for name, model in models.items()}
schedulers = {name: ExponentialLR(optimizer, 0.97) for name, optimizer in optimizers.items()}
loss = nn.BCEWithLogitsLoss()


def train_step(_: Engine, batch: Any) -> dict[str, float]:
    generator.train(), discriminator.train()
    real = batch[0]
    yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    fake = generator(torch.randn(len(real), 16))

    optimizers["d"].zero_grad()
    loss_d = loss(discriminator(real), yes) + loss(discriminator(fake.detach()), no)
    loss_d.backward()
    optimizers["d"].step()

    optimizers["g"].zero_grad()
    loss_g = loss(discriminator(fake), yes)
    loss_g.backward()
    optimizers["g"].step()
    return {"loss_g": loss_g.item(), "loss_d": loss_d.item()}


def energy_distance(one: Tensor, other: Tensor) -> float:
    """Return how far two sets of pictures are from each other; 0 for sets from the same distribution."""
    between, within_one, within_other = (
        torch.cdist(*pair).mean() for pair in ((one, other), (one, one), (other, other))
    )
    return float(2 * between - within_one - within_other)


def evaluate_step(_: Engine, batch: Any) -> float:
    # EMAHook puts its averages into the generator for the time of an evaluation.
    generator.eval()
    with torch.no_grad():
        return energy_distance(generator(torch.randn(1000, 16)), batch[0])


trainer, evaluator = Engine(train_step), Engine(evaluate_step)
Average().attach(evaluator, "distance")


@trainer.on(Events.EPOCH_COMPLETED)
def end_epoch() -> None:
    for scheduler in schedulers.values():
        scheduler.step()
    evaluator.run(val_loader)


# The only added line: what there are several of is a mapping, or a list.
runner = attach_hooks(
    trainer, "configs/gan.yaml", evaluators=evaluator, work_dir=arguments.work_dir, resume=arguments.resume,
    model=models, optimizer=optimizers, scheduler=schedulers,
)  # fmt: skip

trainer.run(train_loader, max_epochs=arguments.epochs)
best = runner.best["distance"]
print(f"smallest distance {best.score:.4f} in epoch {best.epoch}: {runner.work_dir / str(best.file)}")
