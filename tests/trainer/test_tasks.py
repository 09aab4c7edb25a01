"""What is learned follows from the first targets, and with it loss and metrics."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ignite_hooks.errors import ConfigError
from ignite_hooks.trainer.base_trainer import BaseTrainer
from ignite_hooks.trainer.tasks import task_of

INPUTS = torch.rand(24, 4, generator=torch.Generator().manual_seed(0))
LABELS, SUMS = (INPUTS[:, :3] > 0.5).float(), INPUTS.sum(1)


class Named(nn.Module):
    """A model that takes its inputs by name, and returns a mapping."""

    def __init__(self, num_classes: int = 2) -> None:
        super().__init__()
        self.head = nn.Linear(4, num_classes)

    def forward(self, features: Tensor, labels: Any = None) -> Any:
        return {"logits": self.head(features)}


def pairs(targets: Tensor) -> dict[str, Any]:
    data = TensorDataset(INPUTS, targets)
    return {"train": data, "val": data, "shape": (4,)}


def mappings() -> dict[str, Any]:
    items = [{"features": row, "labels": int(row[0] > 0.5)} for row in INPUTS]
    return {"train": items, "val": items, "num_classes": 2}


MINE: Any = ModuleType("my_tasks")
MINE.Named, MINE.mappings = Named, mappings
MINE.labels = lambda: pairs(LABELS)
MINE.one_label = lambda: pairs(LABELS[:, :1])
MINE.numbers = lambda: pairs(SUMS)
MINE.python_numbers = lambda: {**pairs(SUMS), "train": [(row, float(row.sum())) for row in INPUTS]}
MINE.nameless = lambda: {"train": [{"features": row} for row in INPUTS]}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_tasks", MINE)


def trained(tmp_path: Path, data: str, model: str = "mlp", **more: Any) -> tuple[BaseTrainer, dict[str, float]]:
    content = {"imports": ["my_tasks"], "model": model, "dataset": f"my_tasks:{data}", "hooks": []}
    training = {"epochs": 3, "batch_size": 8, "seed": 0, "optimizer": {"type": "SGD", "lr": 0.1}}
    trainer = BaseTrainer({**content, "training": {**training, **more.pop("training", {})}, **more}, work_dir=tmp_path)
    return trainer, trainer.train()


@pytest.mark.parametrize(
    ("targets", "criterion", "task"),
    [
        ([3], "", "classification"),
        ([torch.tensor([1, 0])], "", "classification"),
        ([torch.tensor([0.0, 1.0])], "", "multilabel"),
        ([torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])], "", "regression"),
        ([torch.tensor([0.0, 1.0])], "MSELoss", "regression"),
        ([torch.tensor([0.2, 0.8])], "CrossEntropyLoss", "classification"),
        ([torch.tensor([1.0])], "", "regression"),
        ([torch.tensor([1.0])], "BCEWithLogitsLoss", "multilabel"),
        ([0.0], "", "regression"),
        (["a"], "", "classification"),
    ],
)
def test_the_first_targets_tell_the_task(targets: list[Any], criterion: str, task: str) -> None:
    assert task_of(iter(targets), criterion) == task


@pytest.mark.parametrize(
    ("data", "training", "loss", "measured"),
    [
        ("labels", {}, "BCEWithLogitsLoss", {"val_accuracy", "val_f1", "val_loss"}),
        ("one_label", {"criterion": "BCEWithLogitsLoss"}, "BCEWithLogitsLoss", {"val_accuracy", "val_f1", "val_loss"}),
        ("numbers", {}, "MSELoss", {"val_MeanAbsoluteError", "val_loss"}),
        ("python_numbers", {}, "MSELoss", {"val_MeanAbsoluteError", "val_loss"}),
        ("python_numbers", {"amp": True}, "MSELoss", {"val_MeanAbsoluteError", "val_loss"}),
    ],
)
def test_loss_and_metrics_are_those_of_the_task(
    data: str, training: Any, loss: str, measured: set[str], tmp_path: Path
) -> None:
    trainer, found = trained(tmp_path, data, training={"epochs": 12, **training})
    assert type(trainer.criterion).__name__ == loss
    assert {name for name in found if name.startswith("val_")} == measured
    expected = trainer.criterion(trainer.model.eval()(INPUTS), _targets(data)).item()
    assert found["val_loss"] == pytest.approx(expected, rel=0.03 if training.get("amp") else 1e-4)
    assert expected < (0.69 if "label" in data else SUMS.square().mean().item() / 2)


def _targets(data: str) -> Tensor:
    return {"labels": LABELS, "one_label": LABELS[:, :1]}.get(data, SUMS[:, None])


def test_regression_metrics_are_known_by_the_names_of_ignite(tmp_path: Path) -> None:
    names = ["R2Score", "MeanAbsoluteError", "RootMeanSquaredError", "MedianAbsoluteError"]
    _, found = trained(tmp_path, "numbers", evaluation={"metrics": names})
    assert {f"val_{name}" for name in names} <= {*found}


def test_metrics_of_classes_are_refused_for_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.metrics\.f1: compares classes, and the targets are numbers"):
        trained(tmp_path, "numbers", evaluation={"metrics": ["f1", "loss"]})


@pytest.mark.parametrize("amp", [False, True])
def test_items_may_be_mappings(amp: bool, tmp_path: Path) -> None:
    _, found = trained(tmp_path, "mappings", "my_tasks:Named", training={"amp": amp, "epochs": 20})
    assert found["val_accuracy"] > 0.7


def test_a_mapping_without_targets_is_an_error_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset: .*a batch of \['features'\] has no targets"):
        trained(tmp_path, "nameless", "my_tasks:Named")
