"""A plain Ignite script: a small CNN learns handwritten digits. One line of it is ours."""

from __future__ import annotations

import argparse

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from ignite_hooks import attach_hooks

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--work-dir", default="work_dirs/digits")
parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the work directory")
arguments = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)

# 1,797 real digits of 8 x 8 pixels that come with scikit-learn: nothing is downloaded.
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
dataset = TensorDataset(images, torch.tensor(digits.target))
train_set, val_set = random_split(dataset, [1500, 297], generator=torch.Generator().manual_seed(0))
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=256)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.25),
    nn.Linear(32 * 4 * 4, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()

trainer = create_supervised_trainer(model, optimizer, criterion)
evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(criterion)})


@trainer.on(Events.EPOCH_COMPLETED)
def validate() -> None:
    evaluator.run(val_loader)


# The only added line.
runner = attach_hooks(
    trainer, "configs/attach_to_script.yaml", evaluators=evaluator, work_dir=arguments.work_dir, resume=arguments.resume
)

trainer.run(train_loader, max_epochs=arguments.epochs)
best = runner.best["accuracy"]
print(f"best accuracy {best.score:.4f} in epoch {best.epoch}: {runner.work_dir / str(best.file)}")
