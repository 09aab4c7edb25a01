"""What is passed beside a configuration is checked before anything is attached."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch import nn

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.config.arguments import (
    ARGUMENTS,
    SYNONYMS,
    known_name,
    resume_problems,
    service_problems,
    words_of_hook,
)
from ignite_hooks.run.services import KNOWN_SERVICES
from ignite_hooks.testing import tiny_run
from tests.config.tools import attach, problems

pytestmark = pytest.mark.usefixtures("_elsewhere")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("evaluator", "evaluators"),
        ("modle", "model"),
        ("models", "model"),
        ("val_dataloader", "val_loader"),
        ("trian_loader", "train_loader"),
        ("valid_loader", "val_loader"),
        ("train_dataloader", "train_loader"),
        ("lr_scheduler", "scheduler"),
        ("optimiser", "optimizer"),
        ("loss_fn", "criterion"),
        ("workdir", "work_dir"),
        ("override", "overrides"),
    ],
)
def test_a_service_with_nearly_a_known_name_is_an_error(given: str, meant: str) -> None:
    assert problems([], **{given: object()}) == [(given, f"nothing asks for it, did you mean {meant!r}?")]


@pytest.mark.parametrize(
    "name",
    [
        *KNOWN_SERVICES,
        *ARGUMENTS,
        *("mlflow", "teacher", "model_g", "optimizer2", "ema_model", "val_loader_2", "extra_loader", "ann_file"),
    ],
)
def test_a_name_of_the_script_is_left_alone(name: str) -> None:
    assert known_name(name) is None


def test_every_synonym_means_a_known_name() -> None:
    assert set(SYNONYMS.values()) <= {*KNOWN_SERVICES, *ARGUMENTS}
    assert not SYNONYMS.keys() & {*KNOWN_SERVICES, *ARGUMENTS}
    assert inspect.signature(attach_hooks).parameters.keys() - {"trainer", "cfg", "services"} <= {*ARGUMENTS}


class ByParameter(BaseHook):
    def after_epoch(self, runner: Any, lr_scheduler: Any = None) -> None: ...


class ByName(BaseHook):
    def after_epoch(self, runner: Any) -> None:
        runner.get_service("lr_scheduler")


class ByAttribute(BaseHook):
    def after_epoch(self, runner: Any) -> None:
        (lambda: runner.services.lr_scheduler)()


@pytest.mark.parametrize(
    "hook",
    [
        ByParameter(),
        ByName(),
        ByAttribute(),
        {"type": "LambdaHook", "after_epoch": lambda lr_scheduler: None},
        {"type": "LambdaHook", "after_epoch": print, "name": "lr_scheduler"},
        {"type": "ignite.handlers.LRScheduler", "lr_scheduler": "@lr_scheduler", "event": "EPOCH_COMPLETED"},
    ],
)
def test_a_name_that_a_hook_asks_for_is_right(hook: Any) -> None:
    import torch

    scheduler = torch.optim.lr_scheduler.ConstantLR(torch.optim.SGD([torch.zeros(1)], lr=0.1))
    assert attach([hook], lr_scheduler=scheduler).get_service("lr_scheduler") is scheduler


def test_an_evaluation_asks_for_the_loader_of_its_name() -> None:
    class Evaluating(BaseHook):
        evaluates = "valid"

    assert "valid_loader" in set(words_of_hook(Evaluating()))


@pytest.mark.parametrize("resume", ["nothere.pth", Path("no/where.pth"), "atuo"])
def test_a_checkpoint_that_does_not_exist_is_an_error_at_once(resume: str | Path) -> None:
    trainer = tiny_run().trainer
    [(place, message)] = problems([], trainer=trainer, resume=resume, work_dir="out")
    assert place == "resume"
    assert message.startswith(f"there is no checkpoint {str(resume)!r}, neither in ")
    assert "run" not in vars(trainer)
    assert not Path("out").exists()


def test_a_checkpoint_is_looked_for_here_and_in_the_work_directory(tmp_path: Path) -> None:
    (tmp_path / "a.pth").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/epoch_1.pth").touch()
    for fine in ("a.pth", tmp_path / "a.pth", "epoch_1.pth", "auto", "required", True, None):
        assert resume_problems(fine, tmp_path / "out") == []
    [problem] = resume_problems("epoch_11.pth", tmp_path / "out")
    assert problem.message.endswith(", did you mean 'epoch_1.pth'?")


@pytest.mark.parametrize(
    ("resume", "is_named", "fine"),
    [
        ("epoch_1.pth", False, True),
        ("checkpoints/epoch_2.pth", False, True),
        ("epoch_1.pth", True, False),
        ("epoch_3.pth", False, False),
    ],
)
def test_a_run_without_a_folder_finds_a_checkpoint_in_a_folder_beside_it(
    resume: str, is_named: bool, fine: bool, tmp_path: Path
) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/epoch_1.pth").touch()
    (tmp_path / "run/checkpoints/epoch_2.pth").touch()
    assert (resume_problems(resume, tmp_path / "run-2", is_named=is_named) == []) is fine


@pytest.mark.parametrize(
    ("cfg", "overrides", "names", "interval"),
    [
        (None, ["default_hooks.logger.interval=5", "default_hooks.timer="], 3, 5),
        ([{"type": "LoggerHook"}], ["hooks.0.interval=5"], 1, 5),
        ({"type": "LoggerHook"}, ["hooks.0.interval=5"], 1, 5),
        ({"hooks": [{"type": "LoggerHook", "interval": 3}]}, ("hooks.0.interval=4", "hooks.0.interval=5"), 1, 5),
    ],
)
def test_overrides_replace_values_of_any_form(cfg: Any, overrides: Any, names: int, interval: int) -> None:
    runner = attach(cfg, overrides=overrides)
    assert len(runner.hooks) == names
    [logger] = [hook for hook in runner.hooks.values() if type(hook).__name__ == "LoggerHook"]
    assert logger.interval == interval


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["hooks.1.interval=3"], "overrides hooks.1.interval"),
        (["hooks"], "overrides hooks"),
        ("hooks.0.interval=3", "overrides"),
        ([3], "overrides"),
        (["hooks.0.intervall=3"], "hooks[0].intervall"),
        (["hoks=[]"], "hoks"),
    ],
)
def test_overrides_that_cannot_be_applied_are_errors(overrides: Any, place: str) -> None:
    [(found, _)] = problems([{"type": "LoggerHook"}], overrides=overrides)
    assert found == place


def test_a_default_that_cannot_work_is_off_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: 0.0)
    runner = attach(trainer=trainer, val_loader=[1, 2])
    assert list(runner.hooks) == ["runtime_info", "timer", "logger", "checkpoint"]
    [line] = [record.getMessage() for record in caplog.records if "off" in record.getMessage()]
    assert line == (
        "default_hooks.eval is off: needs the model, which was not found in the trainer: pass model=... to "
        "attach_hooks()"
    )


@pytest.mark.parametrize("cfg", [{"default_hooks": {"eval": {}}}, ["EvalHook"], {"custom_hooks": ["EvalHook"]}])
def test_an_evaluation_that_is_asked_for_must_work(cfg: Any) -> None:
    trainer = Engine(lambda engine, batch: 0.0)
    assert "needs the model" in str(problems(cfg, trainer=trainer, val_loader=[1]))


class Rates:
    """A scheduler of a script."""

    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("name", "thing", "place", "words"),
    [
        ("model", "resnet", "model", "a torch.nn.Module is needed, not 'resnet'"),
        ("model", {"g": "resnet"}, "model.g", "a torch.nn.Module is needed, not 'resnet'"),
        ("model", nn.Linear, "model", "a torch.nn.Module is needed, not the class Linear: make one of it"),
        ("optimizer", "adam", "optimizer", "an optimizer of torch is needed, not 'adam'"),
        ("optimizer", nn.ReLU(), "optimizer", "an optimizer of torch is needed, not ReLU()"),
        ("scheduler", "cosine", "scheduler", "a scheduler of torch or Ignite is needed, not 'cosine'"),
        ("scheduler", [Rates(), 0.1], "scheduler[1]", "a scheduler of torch or Ignite is needed, not 0.1"),
    ],
)
def test_a_service_of_another_kind_is_an_error(name: str, thing: Any, place: str, words: str) -> None:
    assert problems([], **{name: thing}) == [(place, words)]


def test_services_of_the_right_kind_are_taken() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert service_problems({"model": model, "optimizer": [optimizer], "scheduler": {"a": Rates()}}) == []
    assert service_problems({"scheduler": lambda engine: None, "model": None, "mine": "text"}) == []
