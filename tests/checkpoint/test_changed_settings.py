"""Settings of the optimizer that changed since the run began are applied, kept or refused, and always told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers.param_scheduler import LinearCyclicalScheduler, PiecewiseLinear
from torch import nn

from ignite_hooks import CheckpointError, attach_hooks
from ignite_hooks.checkpoint.changed_settings import Change, changes_since, optimizer_settings

pytestmark = pytest.mark.usefixtures("quick")


def sgd(model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **settings})


def script(
    folder: Path,
    make: Callable[[nn.Module], Any] = sgd,
    lower: bool = False,
    scheduled: bool = False,
    resume: str = "auto",
    **config: Any,
) -> SimpleNamespace:
    """Return a script that may lower its rate by hand or by a scheduler, after each epoch."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = make(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5) if scheduled else None

    def step(engine: Engine, batch: Any) -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(2)).square().sum()
        loss.backward()
        optimizer.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
        return loss.item()

    trainer, rates = Engine(step), list[float]()
    if lower:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: optimizer.param_groups[0].update(lr=0.001))
    if scheduler is not None:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())
    config = {"hooks": [{"type": "CheckpointHook", "save_best": False}], **config}
    services = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    runner = attach_hooks(trainer, config, work_dir=folder, resume=resume, **services)
    return SimpleNamespace(
        runner=runner, optimizer=optimizer, scheduler=scheduler, rates=rates,
        run=lambda epochs: trainer.run(range(2), max_epochs=epochs),
    )  # fmt: skip


def test_a_rate_that_the_script_lowers_is_no_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script(tmp_path, lower=True).run(1)
    again = script(tmp_path, lower=True)
    again.run(2)
    assert again.rates == [0.001, 0.001]
    assert "settings have changed" not in caplog.text


def test_a_changed_rate_scales_the_current_and_initial_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script(tmp_path, scheduled=True).run(2)
    again = script(tmp_path, lambda model: sgd(model, lr=0.2), scheduled=True)
    again.run(4)
    assert again.rates == pytest.approx([0.05, 0.05, 0.025, 0.025])
    assert again.optimizer.param_groups[0]["initial_lr"] == pytest.approx(0.2)
    assert again.scheduler.base_lrs == pytest.approx([0.2])
    assert "applied from here on: optimizer.param_groups[0].lr 0.1 -> 0.2" in caplog.text
    caplog.clear()
    third = script(tmp_path, lambda model: sgd(model, lr=0.2), scheduled=True)
    third.run(5)
    assert third.rates == pytest.approx([0.0125] * 2)
    assert "settings have changed" not in caplog.text


def test_other_values_are_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script(tmp_path).run(1)
    again = script(tmp_path, lambda model: sgd(model, momentum=0.5, weight_decay=0.01))
    again.run(2)
    group = again.optimizer.param_groups[0]
    assert (group["momentum"], group["weight_decay"], group["lr"]) == (0.5, 0.01, 0.1)
    assert "momentum 0.9 -> 0.5, optimizer.param_groups[0].weight_decay 0 -> 0.01" in caplog.text


def test_the_checkpoint_may_win(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script(tmp_path).run(1)
    for epochs in (2, 3):
        caplog.clear()
        again = script(tmp_path, lambda model: sgd(model, lr=0.2), resume_settings="checkpoint")
        again.run(epochs)
        assert again.rates == [0.1, 0.1]
        assert "'checkpoint' keeps the former ones: optimizer.param_groups[0].lr 0.1 -> 0.2" in caplog.text


def test_a_change_may_be_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    again = script(tmp_path, lambda model: sgd(model, lr=0.2), resume_settings="refuse")
    weights = again.runner.model.weight.clone()
    with pytest.raises(CheckpointError, match=r"resume_settings is 'refuse'.*lr 0\.1 -> 0\.2"):
        again.run(2)
    assert torch.equal(again.runner.model.weight, weights)
    script(tmp_path, resume_settings="refuse").run(2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda model: torch.optim.Adam(model.parameters()), "holds the state of SGD, and this run has Adam"),
        (
            lambda model: torch.optim.SGD([{"params": [weight]} for weight in model.parameters()], lr=0.1),
            "holds SGD with 1 parameter group of 2 tensors, and this run has 2 parameter groups of 1, 1 tensors",
        ),
    ],
)
@pytest.mark.parametrize("kind_is_known", [True, False])
def test_another_optimizer_is_an_error_that_names_both(
    make: Any, words: str, kind_is_known: bool, tmp_path: Path
) -> None:
    script(tmp_path).run(1)
    path = tmp_path / "last.pth"
    if not kind_is_known:
        state = torch.load(path, weights_only=True)
        del state["meta"]["optimizer"]
        path = tmp_path / "older.pth"
        torch.save(state, path)
        words = words.replace("of SGD, and this run has Adam", "of an optimizer with momentum, and Adam of this run")
    again = script(tmp_path, make, resume=str(path))
    weights = again.runner.model.weight.clone()
    with pytest.raises(CheckpointError, match=words):
        again.run(2)
    assert torch.equal(again.runner.model.weight, weights)


def test_the_number_of_weights_in_a_file_is_no_setting() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    now = optimizer_settings(optimizer)
    assert now is not None
    recorded = {**now, "groups": [{**now["groups"][0], "params": 10**30, "lr": 0.2}]}
    changes = changes_since({"optimizer": {}, "meta": {"optimizer": recorded}}, now)
    assert [change.name for change in changes] == ["lr"]


def test_values_are_compared_as_plain_types() -> None:
    weight = [nn.Parameter(torch.ones(1))]
    then = optimizer_settings(torch.optim.Adam(weight, lr=torch.tensor(0.5), betas=(0.9, 0.99), capturable=True))
    now = optimizer_settings(torch.optim.Adam(weight, lr=0.5, betas=(0.8, 0.99), capturable=True))
    state = {"optimizer": {}, "meta": {"optimizer": then}}
    assert changes_since(state, now) == [Change(0, "betas", (0.9, 0.99), (0.8, 0.99))]
    assert changes_since({"meta": {}}, now) == changes_since(state, None) == []


def _cosine(optimizer: Any, length: int, trainer: Engine) -> Any:
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())
    return scheduler


def _milestones(optimizer: Any, length: int, trainer: Engine) -> Any:
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [length])
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())
    return scheduler


def _one_after_another(optimizer: Any, length: int, trainer: Engine) -> Any:
    parts = [torch.optim.lr_scheduler.ConstantLR(optimizer, 1, 1), torch.optim.lr_scheduler.StepLR(optimizer, length)]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [1])
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())
    return scheduler


def _piecewise(optimizer: Any, length: int, trainer: Engine) -> Any:
    scheduler = PiecewiseLinear(optimizer, "lr", [(0, 0.1), (length, 0.0)])
    trainer.add_event_handler(Events.EPOCH_STARTED, scheduler)
    return scheduler


def _cycles(optimizer: Any, length: int, trainer: Engine) -> Any:
    scheduler = LinearCyclicalScheduler(optimizer, "lr", 0.1, 0.0, 2 * length)
    trainer.add_event_handler(Events.EPOCH_STARTED, scheduler)
    return scheduler


SCHEDULES: list[Any] = [
    (_cosine, "T_max 4 -> 8"), (_milestones, "milestones [4] -> [8]"), (_one_after_another, "step_size 4 -> 8"),
    (_piecewise, "milestones [0, 4] -> [0, 8]"), (_cycles, ".cycle_size 8 -> 16"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["config", "checkpoint", "refuse"])
@pytest.mark.parametrize("passed", [False, True], ids=["in a handler", "passed"])
@pytest.mark.parametrize(("schedule", "words"), SCHEDULES)
def test_changed_settings_of_schedulers_are_told(
    schedule: Any, words: str, passed: bool, mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(length: int, epochs: int, folder: str = "parts") -> list[float]:
        torch.manual_seed(0)
        model, rates = nn.Linear(2, 1), list[float]()
        optimizer = sgd(model)

        def step(engine: Engine, batch: Any) -> None:
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])

        trainer = Engine(step)
        services = {"model": model, "optimizer": optimizer}
        scheduler = schedule(optimizer, length, trainer)
        services |= {"scheduler": scheduler} if passed else {}
        config = {"hooks": [{"type": "CheckpointHook", "save_best": False}], "resume_settings": mode}
        attach_hooks(trainer, config, work_dir=tmp_path / folder, resume="auto", **services)
        trainer.run(range(1), max_epochs=epochs)
        return rates

    assert run(4, 2) + run(4, 3) == run(4, 3, "whole")
    assert "settings" not in caplog.text
    if mode == "refuse":
        with pytest.raises(CheckpointError, match=re.escape(words)):
            run(8, 8)
        return
    rates = run(8, 8)
    assert caplog.text.count(words) == 1
    assert ("are applied from here on" if mode == "config" else "keeps the former ones") in caplog.text
    assert rates[-1] == pytest.approx(run(8 if mode == "config" else 4, 8, "other")[-1], abs=0.03)
    caplog.clear()
    run(8, 9)
    assert (words in caplog.text) is (mode == "checkpoint")


def test_a_cycle_that_has_grown_keeps_its_size_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def run(size: int, epochs: int) -> None:
        model = nn.Linear(2, 1)
        optimizer = sgd(model)
        trainer = Engine(lambda engine, batch: optimizer.step())
        scheduler = LinearCyclicalScheduler(optimizer, "lr", 0.1, 0.0, size, cycle_mult=2)
        trainer.add_event_handler(Events.EPOCH_STARTED, scheduler)
        config = [{"type": "CheckpointHook", "save_best": False}]
        attach_hooks(trainer, config, work_dir=tmp_path, resume="auto", model=model, optimizer=optimizer)
        trainer.run(range(1), max_epochs=epochs)

    run(2, 4)
    run(4, 5)
    assert "goes on with the former ones: trainer.EPOCH_STARTED.LinearCyclicalScheduler" in caplog.text
    assert "cycle_size 2 -> 4" in caplog.text


def test_a_group_that_was_added_during_the_run_has_to_be_there_before(tmp_path: Path) -> None:
    two = lambda model: torch.optim.SGD([{"params": [weight]} for weight in model.parameters()], lr=0.1)  # noqa: E731
    script(tmp_path, two).run(1)
    with pytest.raises(CheckpointError, match=r"call add_param_group\(\) before trainer.run\(\) for groups that"):
        script(tmp_path).run(2)
