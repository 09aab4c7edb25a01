from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks


class Curriculum(torch.nn.Module):
    """A model that changes with the epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.told: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.DataParallel, compiled])
def test_the_model_receives_the_epoch_from_0(wrap: Any, tmp_path: Path) -> None:
    model = Curriculum()
    trainer = Engine(lambda engine, batch: len(model.told))
    attach_hooks(trainer, ["SetEpochInfoHook"], model=wrap(model), work_dir=tmp_path)
    trainer.run([1, 2], max_epochs=3)
    assert model.told == [0, 1, 2]


def test_a_resumed_model_receives_its_epoch(tmp_path: Path) -> None:
    def script(epochs: int, resume: bool) -> list[int]:
        model = Curriculum()
        trainer = Engine(lambda engine, batch: 0.0)
        hooks = ["SetEpochInfoHook", {"type": "CheckpointHook", "save_best": False}]
        attach_hooks(trainer, hooks, model=model, work_dir=tmp_path, resume=resume)
        trainer.run([1, 2], max_epochs=epochs)
        return model.told

    assert script(2, resume=False) == [0, 1]
    assert script(4, resume=True) == [2, 3]


def test_a_model_without_the_method_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, ["SetEpochInfoHook"], model=torch.nn.Linear(1, 1), work_dir=tmp_path)
    with caplog.at_level(logging.WARNING):
        trainer.run([1], max_epochs=3)
    assert [record.message for record in caplog.records] == [
        "Linear has no method set_epoch(epoch): it does not receive the epoch"
    ]
