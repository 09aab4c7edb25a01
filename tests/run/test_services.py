"""Services that a script did not pass are found only in steps made by Ignite's factories."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, create_supervised_trainer

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.run.services import discover
from tests.ranks import run_ranks
from tests.tools import echo_trainer


@pytest.mark.parametrize(
    "options", [{}, {"device": "cpu"}, {"gradient_accumulation_steps": 2}, {"deterministic": True}]
)
def test_model_optimizer_and_loss_of_a_supervised_trainer_are_found(
    options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, loss, **options)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "ignite_hooks"):
        found = discover(trainer, {"mine": 1})
    assert found["model"] is model
    assert found["optimizer"] is optimizer
    assert found["criterion"] is loss
    assert found["mine"] == 1
    assert "model (Linear), optimizer (SGD), criterion (CrossEntropyLoss)" in caplog.text


def test_what_was_given_is_kept() -> None:
    model = torch.nn.Linear(2, 2)
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.MSELoss())
    assert discover(trainer, {"model": "mine"})["model"] == "mine"


def test_a_custom_step_is_not_searched() -> None:
    model = "not a model at all"
    trainer = Engine(lambda engine, batch: model)
    assert discover(trainer, {}) == {}


@pytest.mark.parametrize("out_dir", [None, "deep/checkpoints", "absolute"])
@pytest.mark.parametrize("by_parameter", [True, False])
def test_folders_exist_when_they_are_handed_out(out_dir: str | None, by_parameter: bool, tmp_path: Path) -> None:
    seen = []

    class Writes(BaseHook):
        def before_train(self, runner: Any, visualization_dir: Path, checkpoints_dir: Path, logs_dir: Path) -> None:
            given = [visualization_dir, checkpoints_dir, logs_dir]
            names = ("visualization_dir", "checkpoints_dir", "logs_dir")
            seen.extend(given if by_parameter else [runner.get_service(name) for name in names])
            for folder in seen:
                (folder / "x").write_text("mine")

    wanted = str(tmp_path / "absolute") if out_dir == "absolute" else out_dir
    trainer = echo_trainer()
    hooks = [Writes(), {"type": "CheckpointHook", "out_dir": wanted}]
    runner = attach_hooks(trainer, hooks, work_dir=tmp_path / "run")
    assert runner.services["experiment_dir"].is_dir()
    trainer.run([1])
    assert seen[1] == (tmp_path / "run" / (wanted or "")) == next(tmp_path.rglob("last.pth")).parent
    assert seen[0] == tmp_path / "run" / "visualization"


def test_a_folder_that_nobody_asks_for_is_not_made(tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, ["CheckpointHook", "ReportHook"], work_dir=tmp_path)
    dict(runner.services)
    trainer.run([1])
    assert not (tmp_path / "visualization").exists()
    assert not (tmp_path / "logs").exists()


def run_quietly(folder: str) -> None:
    trainer = echo_trainer()
    attach_hooks(trainer, ["CheckpointHook"], work_dir=folder)
    trainer.run([1])


@pytest.mark.slow
def test_several_ranks_make_no_folder_for_logs_they_do_not_write(tmp_path: Path) -> None:
    run_ranks(run_quietly, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
