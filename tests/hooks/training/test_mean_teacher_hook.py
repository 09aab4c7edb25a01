from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, HookError, attach_hooks
from tests.tools import straight_and_resumed


class Pair(torch.nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.student = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        self.teacher = copy.deepcopy(self.student).to(dtype).requires_grad_(False)
        with torch.no_grad():
            self.teacher[0].weight.zero_()


def a_run(dtype: torch.dtype = torch.float32) -> tuple[Engine, Any, dict[str, Any]]:
    torch.manual_seed(0)
    model = Pair(dtype)
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)

    def step(engine: Engine, batch: torch.Tensor) -> float:
        optimizer.zero_grad()
        model.teacher(batch.to(dtype))
        loss = (model.student(batch) - batch[:, :2]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    data = [torch.randn(4, 3, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    return Engine(step), data, {"model": model, "optimizer": optimizer}


def train(folder: Path, dtype: torch.dtype = torch.float32, **settings: Any) -> tuple[Pair, dict[str, torch.Tensor]]:
    """Return the model after a run, and the teacher that the formula gives."""
    trainer, data, services = a_run(dtype)
    model, momentum, interval = services["model"], settings.get("momentum", 0.999), settings.get("interval", 1)
    expected = {name: value.double() for name, value in model.student.state_dict().items()}
    attach_hooks(trainer, [{"type": "MeanTeacherHook", **settings}], work_dir=folder, **services)

    @trainer.on(Events.ITERATION_COMPLETED(every=interval))
    def follow() -> None:
        for name, value in model.student.state_dict().items():
            expected[name] = momentum * expected[name] + (1 - momentum) * value.double()

    trainer.run(data, max_epochs=2)
    return model, expected


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.5}, {"momentum": 0.9, "interval": 2}], ids=str)
def test_the_teacher_follows_the_student_by_the_formula(settings: dict[str, Any], tmp_path: Path) -> None:
    model, expected = train(tmp_path, **settings)
    for name, weight in model.teacher.named_parameters():
        torch.testing.assert_close(weight.double(), expected[name], rtol=1e-5, atol=1e-6)


def test_buffers_are_the_teachers_own_unless_averaged(tmp_path: Path) -> None:
    model, expected = train(tmp_path / "own", momentum=0.5)
    assert not torch.allclose(model.teacher[1].running_mean.double(), expected["1.running_mean"])
    trainer, data, services = a_run()
    model = services["model"]
    trainer._process_function = lambda engine, batch: model.student[1].running_mean.fill_(8.0).sum().item()
    entry = {"type": "MeanTeacherHook", "momentum": 0.5, "skip_buffer": False}
    attach_hooks(trainer, [entry], work_dir=tmp_path / "averaged", **services)
    trainer.run(data[:2])
    assert model.teacher[1].running_mean.tolist() == [6.0, 6.0], "from 0 half the way to 8, twice"


def test_a_teacher_in_half_precision_is_averaged_in_single(tmp_path: Path) -> None:
    model, expected = train(tmp_path, torch.bfloat16, momentum=0.99)
    assert model.teacher[0].weight.dtype == torch.bfloat16
    torch.testing.assert_close(model.teacher[0].weight, expected["0.weight"].bfloat16(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("stop", [2, 3, 7])
def test_resuming_equals_never_having_stopped(stop: int, tmp_path: Path) -> None:
    straight, resumed = straight_and_resumed(
        tmp_path, a_run, {"type": "MeanTeacherHook", "momentum": 0.9, "interval": 2}, stop=stop
    )
    for name, value in straight.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name


def test_weights_that_are_not_finite_are_skipped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer, data, services = a_run()
    model = services["model"]

    def broken(engine: Engine, batch: Any) -> None:
        with torch.no_grad():
            model.student[0].weight.fill_(float("nan"))

    trainer._process_function = broken
    attach_hooks(trainer, ["MeanTeacherHook"], work_dir=tmp_path, **services)
    trainer.run(data)
    assert all(bool(weight.isfinite().all()) for weight in model.teacher.parameters())
    assert caplog.text.count("the student is not finite") == 1


def test_a_student_that_is_replaced_is_followed(tmp_path: Path) -> None:
    trainer, data, services = a_run()
    model = services["model"]
    trainer._process_function = lambda engine, batch: None
    attach_hooks(trainer, [{"type": "MeanTeacherHook", "momentum": 0.5}], work_dir=tmp_path, **services)

    @trainer.on(Events.ITERATION_STARTED(once=2))
    def replace() -> None:
        model.student[0].weight = torch.nn.Parameter(torch.full((2, 3), 2.0))
        model.teacher[0].weight.fill_(1.0)

    trainer.run(data[:2])
    assert model.teacher[0].weight.tolist() == [[1.5] * 3] * 2


def test_other_conventions_of_momentum_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"MMDetection calls the other share so, whose 0.001 is 0.999 here: write"):
        attach_hooks(Engine(lambda *_: None), [{"type": "MeanTeacherHook", "momentum": 0.1}], work_dir=tmp_path)


def test_a_model_without_both_is_an_error(tmp_path: Path) -> None:
    trainer = Engine(lambda *_: None)
    attach_hooks(trainer, ["MeanTeacherHook"], work_dir=tmp_path, model=torch.nn.Linear(1, 1))
    with pytest.raises(HookError, match="the model needs a teacher and a student, and Linear has not both"):
        trainer.run([0])


def test_a_teacher_that_is_trained_is_an_error(tmp_path: Path) -> None:
    model = Pair()
    optimizer, trainer = torch.optim.SGD(model.parameters(), lr=0.1), Engine(lambda *_: None)
    attach_hooks(trainer, ["MeanTeacherHook"], work_dir=tmp_path, model=model, optimizer=optimizer)
    with pytest.raises(HookError, match=r"the optimizer trains the teacher"):
        trainer.run([0])
