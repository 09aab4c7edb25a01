from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.writers.memory import MemoryWriter

DATA = [torch.full((4, 3), float(n)) for n in (1, 5, 0.01, 20)]


def a_run(step: str, *, clips: bool, **settings: Any) -> tuple[Engine, torch.nn.Module, torch.optim.Optimizer]:
    """Return a trainer whose step clips or not, with or without an AMP scaler."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=step == "fused")
    scaler = None if step == "plain" else torch.amp.GradScaler("cpu", init_scale=1024.0)

    def one(engine: Engine, batch: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if clips:
            if scaler is not None:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), **settings)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        return loss.item()

    return Engine(one), model, optimizer


@pytest.mark.parametrize("step", ["plain", "scaled", "fused"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_norm": 0.5},
        {"max_norm": 0.3, "norm_type": 1.0},
        {"max_norm": 0.1, "norm_type": "inf"},
        {"max_norm": 100.0},
    ],
)
def test_weights_equal_those_of_a_step_that_clips_by_hand(tmp_path: Path, step: str, settings: dict[str, Any]) -> None:
    by_hand, expected, _ = a_run(step, clips=True, **settings)
    by_hand.run(DATA, max_epochs=2)
    trainer, model, optimizer = a_run(step, clips=False)
    attach_hooks(trainer, [{"type": "GradClipHook", **settings}], work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run(DATA, max_epochs=2)
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-6, atol=1e-7)


def test_the_norms_before_clipping_are_written(tmp_path: Path) -> None:
    trainer, model, optimizer = a_run("scaled", clips=False)
    writer, norms = MemoryWriter(), []
    optimizer.register_step_pre_hook(lambda *_: norms.append(torch.nn.utils.get_total_norm(grads(model)).item()))
    entry = {"type": "GradClipHook", "max_norm": 1.0, "interval": 3}
    attach_hooks(trainer, {"hooks": [entry], "writers": [writer]}, work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run(DATA)
    (found, step, *_), (_, last, *_) = writer.lines
    assert found == pytest.approx(
        {
            "grad_norm": sum(norms[:3]) / 3,
            "grad_norm_max": max(norms[:3]),
            "grad_norm_clipped": sum(norm > 1 for norm in norms[:3]) / 3,
        }
    )
    assert (step, last) == (3, 4), "what is left at the end is written too"


def grads(model: torch.nn.Module) -> list[torch.Tensor]:
    return [weight.grad for weight in model.parameters() if weight.grad is not None]


def test_a_step_that_computes_gradients_itself_is_clipped_within(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    norms: list[float] = []

    def step(engine: Engine, batch: torch.Tensor) -> float:
        def closure() -> torch.Tensor:
            if norms or grads(model):
                norms.append(torch.nn.utils.get_total_norm(grads(model)).item())
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    trainer = Engine(step)
    entry = {"type": "GradClipHook", "max_norm": 0.01}
    attach_hooks(trainer, [entry], work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run(DATA[:2])
    assert norms
    assert max(norms) <= 0.0101


def test_several_optimizers_are_clipped_each_for_itself(tmp_path: Path) -> None:
    weights = [torch.nn.Parameter(torch.tensor([1.0])) for _ in range(2)]
    optimizers = [torch.optim.SGD([weight], lr=1.0) for weight in weights]

    def step(engine: Engine, batch: Any) -> None:
        for factor, weight, optimizer in zip((3.0, 0.25), weights, optimizers, strict=True):
            weight.grad = torch.tensor([factor])
            optimizer.step()

    trainer = Engine(step)
    attach_hooks(trainer, [{"type": "GradClipHook", "max_norm": 0.5}], work_dir=tmp_path, optimizer=optimizers)
    trainer.run([0])
    assert [weight.item() for weight in weights] == pytest.approx([0.5, 0.75], abs=1e-5)


def test_nothing_is_left_on_the_optimizer(tmp_path: Path) -> None:
    trainer, _, optimizer = a_run("plain", clips=False)
    attach_hooks(trainer, [{"type": "GradClipHook", "max_norm": 1}], work_dir=tmp_path, optimizer=optimizer)
    trainer.run(DATA)
    assert not optimizer._optimizer_step_pre_hooks


def test_what_is_no_optimizer_is_refused(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: None)
    mine = SimpleNamespace(param_groups=[])
    attach_hooks(trainer, [{"type": "GradClipHook", "max_norm": 1}], work_dir=tmp_path, optimizer=mine)
    with pytest.raises(Exception, match="a torch optimizer is needed, which calls hooks at its steps, not Simple"):
        trainer.run([0])


def test_a_norm_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_norm"):
        attach_hooks(Engine(lambda engine, batch: None), [{"type": "GradClipHook", "max_norm": 0}], work_dir=tmp_path)
