"""Gradients that several iterations gather for one step survive a resume, however and by whom they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import attach_hooks

pytestmark = pytest.mark.usefixtures("quick")

EVERY = {"type": "CheckpointHook", "by_epoch": False, "interval": 1, "save_best": False}
HOOKS: dict[str, list[Any]] = {
    "default": [EVERY],
    "async_save: false": [{**EVERY, "async_save": False}],
    "save_on_exception: false": [{**EVERY, "save_on_exception": False}],
    "both false": [{**EVERY, "async_save": False, "save_on_exception": False}],
    "saved by the script": [],
}


class Foreign(torch.optim.SGD):
    """An optimizer that does not tell of its steps."""

    register_step_pre_hook: Any = property()


def weights(folder: Path, hooks: list[Any], kind: type[torch.optim.SGD], stop_at: int = -1) -> Any:
    """Return the weights at the end of a run; only one that is to be stopped saves after each iteration."""
    torch.manual_seed(0)
    if stop_at < 0:
        hooks = [{**hook, "interval": 10} for hook in hooks]
    model = torch.nn.Linear(3, 2)
    optimizer = kind(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> None:
        model(batch).square().mean().backward()
        if engine.state.iteration % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()

    trainer = Engine(step)
    runner = attach_hooks(trainer, hooks, work_dir=folder, model=model, optimizer=optimizer, resume="auto")

    @trainer.on(Events.ITERATION_COMPLETED)
    def stop() -> None:
        if trainer.state.iteration == stop_at:
            if not hooks:
                runner.save_checkpoint()
            runner.stop("killed")

    trainer.run([torch.full((2, 3), float(number)) for number in range(5)], max_epochs=2)
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("kind", [torch.optim.SGD, Foreign])
@pytest.mark.parametrize("name", HOOKS)
def test_gathered_gradients_survive(name: str, kind: type[torch.optim.SGD], tmp_path: Path) -> None:
    wanted = weights(tmp_path / "whole", HOOKS[name], kind)
    for at in (1, 2, 4, 8):
        weights(tmp_path / str(at), HOOKS[name], kind, at)
        assert torch.equal(weights(tmp_path / str(at), HOOKS[name], kind), wanted), at


def test_gradients_of_a_finished_step_are_not_saved(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    trainer = Engine(step)
    attach_hooks(trainer, HOOKS["both false"], work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run([torch.ones(2, 3)] * 3)
    assert all("gradients" not in torch.load(path, weights_only=True) for path in tmp_path.glob("*.pth"))
