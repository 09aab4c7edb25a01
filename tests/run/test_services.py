"""Services that a script did not pass are found only in steps made by Ignite's factories."""

from __future__ import annotations

import logging

import pytest
import torch
from ignite.engine import Engine, create_supervised_trainer

from ignite_hooks.run.services import discover


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


def test_a_step_of_the_scripts_own_is_not_looked_into() -> None:
    model = "not a model at all"
    trainer = Engine(lambda engine, batch: model)
    assert discover(trainer, {}) == {}
