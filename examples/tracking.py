"""The same training, recorded by a tracker of your choice; all of them work without a network."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from ignite.engine import create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from ignite_hooks import attach_hooks

LOOK = {
    "tensorboard": "tensorboard --logdir {folder}/tensorboard",
    "mlflow": "mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db (pip install 'ignite-hooks[mlflow-ui]')",
    "wandb": "ignite-hooks send {folder}, once you have done `wandb login`",
    "clearml": "ignite-hooks send {folder}, once you have done `clearml-init`",
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("tracker", choices=LOOK, help="who records it")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--work-dir", default=None)
parser.add_argument("--server", default=None, metavar="URL", help="an MLflow server, such as that of `make mlflow`")
arguments = parser.parse_args()
folder = Path(arguments.work_dir or f"work_dirs/{arguments.tracker}")

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
parts = random_split(TensorDataset(images, torch.tensor(digits.target)), [1500, 297])
train_loader, val_loader = (DataLoader(part, batch_size=50, shuffle=part is parts[0]) for part in parts)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion)

hook: dict[str, object] = {
    "tensorboard": {"type": "TensorBoardHook", "log_graph": True, "log_histograms": True, "histogram_interval": 30},
    "mlflow": {"type": "MLflowHook", "experiment": "digits", "tracking_uri": arguments.server, "log_model": True},
    "wandb": {"type": "WandbHook", "project": "digits", "mode": "offline", "log_model": True},
    "clearml": {"type": "ClearMLHook", "project": "digits", "mode": "offline", "log_model": True},
}[arguments.tracker]
metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}

runner = attach_hooks(
    trainer,
    {
        "default_hooks": {
            "logger": {"interval": 10},
            "eval": {"metrics": metrics},
            "checkpoint": {"best_metric": "accuracy"},
        },
        "custom_hooks": [{"interval": 10, **hook}],
    },
    model=model,
    optimizer=optimizer,
    val_loader=val_loader,
    work_dir=folder,
)
trainer.run(train_loader, max_epochs=arguments.epochs)
print(f"look at it: {LOOK[arguments.tracker].format(folder=folder)}")
