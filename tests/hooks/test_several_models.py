"""Hooks in a run with several models and optimizers: they look at each, or say before the run that they cannot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch import nn

from ignite_hooks import ConfigError
from ignite_hooks.writers.memory import MemoryWriter
from tests.gan import LENGTH, Form, gan

DATA = [(torch.zeros(2, 3), torch.zeros(2).long())]


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ({"type": "LRFinderHook"}, r"LRFinderHook.*|hooks\[0\]: needs one model, and this run has several: remove the"),
        (
            {"type": "FeatureMapHook"},
            r"hooks\[0\]: needs one model, and this run has several: remove the hook, or draw",
        ),
        ({"type": "PrepareTTAHook", "tta_cfg": {"flips": [[-1]]}}, "needs one model, and this run has several: remove"),
        (
            {"type": "VisualizationHook", "contents": ["predictions", "cam"]},
            r"hooks\[0\]\.contents: cam: one model is explained, and this run has several: draw predictions only",
        ),
        (
            {"type": "EvalHook", "save_best": False},
            r"cannot tell which of several models to evaluate: pass evaluators=\{'val': \.\.\.\} to attach_hooks",
        ),
    ],
)
def test_a_hook_for_one_model_says_so_before_the_run(hook: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        gan(tmp_path, [hook], val_loader=DATA)


def test_a_default_evaluation_of_several_models_is_off_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = gan(tmp_path, None, val_loader=DATA)
    assert "eval" not in run.runner.hooks
    assert "is off: cannot tell which of several models to evaluate" in caplog.text
    run.run(1)


def test_a_function_evaluates_all_models_and_their_modes_come_back(tmp_path: Path) -> None:
    seen: list[Any] = []

    def quality(models: dict[str, nn.Module], data: Any) -> dict[str, float]:
        seen.append([(name, model.training) for name, model in models.items()])
        return {"quality": 0.5}

    run = gan(
        tmp_path, [{"type": "EvalHook", "test_fn": quality, "metric": "quality", "save_best": False}], val_loader=DATA
    )
    run.run(1)
    assert seen == [[("g", False), ("d", False)]]
    assert run.g.training
    assert run.d.training
    assert run.runner.metrics["val_quality"] == 0.5


@pytest.mark.parametrize(("form", "names"), [("mapping", ["g", "d"]), ("list", ["0", "1"])])
def test_rates_and_norms_are_written_by_the_name_of_the_optimizer(form: Form, names: list[str], tmp_path: Path) -> None:
    writer = MemoryWriter()
    hooks = [{"type": "LoggerHook", "interval": 1}, {"type": "GradClipHook", "max_norm": 0.01, "interval": 1}]
    run = gan(tmp_path, {"hooks": hooks, "writers": [writer]}, form)
    run.run(1)
    found = {key for scalars, *_ in writer.lines for key in scalars}
    for name in names:
        assert {f"lr/{name}", f"grad_norm/{name}", f"grad_norm_clipped/{name}"} <= found
    assert not {"lr", "grad_norm"} & found


def test_each_of_several_schedulers_is_stepped(tmp_path: Path) -> None:
    def step(engine: Engine, batch: Any) -> dict[str, float]:
        for one in optimizers:
            one.step()
        return {"loss": 0.0}

    optimizers = [torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0) for _ in range(2)]
    schedulers = [
        torch.optim.lr_scheduler.ExponentialLR(one, rate) for one, rate in zip(optimizers, (0.5, 0.1), strict=True)
    ]
    run = gan(tmp_path, ["ParamSchedulerHook"], optimizer=optimizers, scheduler=schedulers)
    run.trainer._process_function = step
    run.run(2)
    assert [one.param_groups[0]["lr"] for one in optimizers] == pytest.approx([0.25, 0.01])


def test_a_bad_iteration_of_several_models_is_taken_back(tmp_path: Path) -> None:
    run = gan(tmp_path, [{"type": "CheckInvalidLossHook", "action": "skip", "interval": 1}])
    before = [one.clone() for part in (run.g, run.d) for one in part.parameters()]
    plain = run.trainer._process_function
    run.trainer._process_function = lambda engine, batch: {**plain(engine, batch), "loss": float("nan")}
    run.trainer.run(run.loader, max_epochs=1, epoch_length=1)
    after = [one for part in (run.g, run.d) for one in part.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_teacher_and_a_student_may_be_two_models(tmp_path: Path) -> None:
    student, teacher = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    run = gan(tmp_path, ["MeanTeacherHook"], model={"student": student, "teacher": teacher}, optimizer=optimizer)
    run.run(1)
    assert torch.equal(student.weight, teacher.weight)


def test_each_model_with_the_method_receives_the_epoch(tmp_path: Path) -> None:
    class Counts(nn.Linear):
        epochs: list[int]

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    g, d = Counts(2, 2), nn.Linear(2, 2)
    g.epochs = []
    gan(tmp_path, ["SetEpochInfoHook"], model={"g": g, "d": d}).run(2)
    assert g.epochs == [0, 1]


@pytest.mark.parametrize(
    "hook",
    [
        "DeterminismHook",
        "GradientFlowHook",
        "ModelSummaryHook",
        "OOMObserverHook",
        "SWAHook",
        "SyncNormHook",
        "RuntimeInfoHook",
    ],
)
def test_other_hooks_take_several_models(hook: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = gan(tmp_path, [{"type": hook, "on_error": "raise"}])
    run.run(2)
    assert run.trainer.state.iteration == 2 * LENGTH
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("form", ["mapping", "list"])
def test_the_phases_of_a_step_are_measured_in_all_models(form: Form, tmp_path: Path) -> None:
    writer = MemoryWriter()
    hooks = [{"type": "IterTimerHook", "interval": 1}]
    run = gan(tmp_path, {"hooks": hooks, "writers": [writer]}, form)
    run.run(1)
    found = {key for scalars, *_ in writer.lines for key in scalars}
    assert {"share/forward", "share/backward", "share/optimizer"} <= found
