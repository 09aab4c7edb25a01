from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from matplotlib.figure import Figure
from torch import nn

from ignite_hooks import ConfigError, Runner, attach_hooks
from ignite_hooks.hooks.monitors import gradient_flow_hook
from ignite_hooks.hooks.monitors.gradient_flow_hook import GradientFlowHook, by_layer
from ignite_hooks.writers.memory import MemoryWriter


@pytest.fixture(autouse=True)
def _plainly_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw an empty picture: drawing takes a second, and most tests are not about it."""
    if "picture" not in request.node.name:
        monkeypatch.setattr(gradient_flow_hook, "draw_gradient_flow", lambda *_: Figure(figsize=(1, 1)))


def trained(
    folder: Path,
    model: nn.Module,
    *,
    iterations: int = 4,
    accumulate: int = 1,
    optimizer: bool = True,
    rate: float = 0.1,
    **settings: Any,
) -> tuple[Runner, MemoryWriter]:
    sgd = torch.optim.SGD(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(0)

    def step(engine: Engine, batch: Any) -> None:
        model(torch.randn(4, 8, generator=generator)).pow(2).mean().backward()
        if engine.state.iteration % accumulate == 0:
            sgd.step()
            if optimizer:
                sgd.zero_grad()

    trainer, writer = Engine(step), MemoryWriter()
    services = {"model": model, "optimizer": sgd if optimizer else None}
    hook = GradientFlowHook(**{"interval": 2, **settings})
    runner = attach_hooks(trainer, {"hooks": [hook], "writers": [writer]}, work_dir=folder, **services)
    trainer.run(range(iterations))
    assert runner.report().failures == {}
    return runner, writer


def deep(depth: int, activation: type[nn.Module], scale: float = 1.0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(8, 8), activation())]
        model = nn.Sequential(*layers, nn.Linear(8, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def test_norms_are_those_of_the_gradients_the_optimizer_uses(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
    seen: dict[str, list[float]] = {"0": [], "2": []}
    ratios: dict[str, list[float]] = {"0": [], "2": []}
    before: dict[str, torch.Tensor] = {}

    def weights(layer: str) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in model[int(layer)].parameters()])

    class Watched(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for layer in seen:
                gradients = [p.grad for p in model[int(layer)].parameters() if p.grad is not None]
                seen[layer].append(math.sqrt(sum(float(g.pow(2).sum()) for g in gradients)))
                before[layer] = weights(layer).clone()
            found = super().step(closure)
            for layer in seen:
                ratios[layer].append(float((weights(layer) - before[layer]).norm() / before[layer].norm()))
            return found

    optimizer = Watched(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> None:
        optimizer.zero_grad()
        model(torch.full((4, 8), 0.5)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    trainer, writer = Engine(step), MemoryWriter()
    hook = GradientFlowHook(frequency=3)
    attach_hooks(trainer, {"hooks": [hook], "writers": [writer]}, work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run(range(7))
    assert [(step, kind) for _, step, kind, _ in writer.lines] == [(3, "train"), (6, "train")]
    for scalars, at, _, _ in writer.lines:
        for layer in seen:
            assert scalars[f"grad_norm/{layer}"] == pytest.approx(seen[layer][at - 1], rel=1e-4)
            assert scalars[f"update_ratio/{layer}"] == pytest.approx(ratios[layer][at - 1], rel=1e-3)
        assert scalars["grad_norm/all"] == pytest.approx(math.hypot(*(seen[layer][at - 1] for layer in seen)), rel=1e-4)


def test_without_an_optimizer_gradients_are_read_after_the_step(tmp_path: Path) -> None:
    _, writer = trained(tmp_path, deep(1, nn.Tanh), optimizer=False)
    assert [list(scalars) for scalars, *_ in writer.lines] == [["grad_norm/0", "grad_norm/2", "grad_norm/all"]] * 2


@pytest.mark.parametrize(("accumulate", "steps"), [(1, [2, 4, 6]), (2, [2, 4, 6]), (3, [3, 6])])
def test_with_accumulated_gradients_the_next_update_is_measured(
    tmp_path: Path, accumulate: int, steps: list[int]
) -> None:
    _, writer = trained(tmp_path, deep(1, nn.Tanh), iterations=6, accumulate=accumulate)
    assert [step for _, step, _, _ in writer.lines] == steps
    assert all("update_ratio/0" in scalars for scalars, *_ in writer.lines)


def test_layers_are_chosen_by_pattern(tmp_path: Path) -> None:
    _, writer = trained(tmp_path, deep(3, nn.Tanh), layers=["2", "[3-9]"])
    assert [name for name in writer.lines[0][0] if name.startswith("grad")] == [
        "grad_norm/2",
        "grad_norm/4",
        "grad_norm/6",
        "grad_norm/all",
    ]


def test_unknown_layers_are_an_error_that_names_them(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: None)
    hook = GradientFlowHook(layers=["encoder.*"])
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path, model=nn.Linear(2, 1))
    trainer.run([1.0])
    assert "no layer with parameters matches ['encoder.*']: the model has weight, bias" in (
        runner.report().failures["GradientFlowHook"].last
    )


def test_it_asks_for_a_model(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, [GradientFlowHook()], work_dir=tmp_path)
    with pytest.raises(ConfigError, match="model"):
        trainer.run([1.0])


def test_layers_have_the_names_of_the_unwrapped_model() -> None:
    model = nn.Module()
    model.inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.scale = nn.Parameter(torch.ones(1))
    model.frozen = nn.Linear(2, 2).requires_grad_(False)
    found = by_layer(nn.DataParallel(model), None)
    assert {name: len(parameters) for name, parameters in found.items()} == {"scale": 1, "inner.0": 2, "inner.1": 2}


def watched(folder: Path, step: Any, iterations: int, **services: Any) -> tuple[Runner, list[dict[str, float]]]:
    """Run a custom step; return the runner and what was written at each iteration."""
    trainer, writer = Engine(step), MemoryWriter()
    hooks, epochs = [GradientFlowHook(interval=1), *services.pop("hooks", [])], services.pop("epochs", 1)
    runner = attach_hooks(trainer, {"hooks": hooks, "writers": [writer]}, work_dir=folder, **services)
    trainer.run(range(iterations), max_epochs=epochs)
    assert runner.report().failures == {}
    return runner, [scalars for scalars, *_ in writer.lines]


def test_each_of_several_optimizers_is_measured_at_its_update(tmp_path: Path) -> None:
    model = nn.ModuleDict({"one": nn.Linear(2, 1), "other": nn.Linear(2, 1)})
    optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.1) for name, part in model.items()}

    def step(engine: Engine, batch: Any) -> None:
        for name, part in model.items():
            optimizers[name].zero_grad()
            part(torch.ones(2)).sum().backward()
            optimizers[name].step()
            model.zero_grad()

    runner, written = watched(tmp_path, step, 2, model=model, optimizer=optimizers)
    for scalars in written:
        assert scalars["grad_norm/one"] == scalars["grad_norm/other"] == pytest.approx(math.sqrt(3))
        assert scalars["update_ratio/one"] > 0
        assert scalars["update_ratio/other"] > 0
        assert scalars["grad_norm/all"] == pytest.approx(math.sqrt(6))
    assert not any("no gradient" in text for text in runner.report().findings.get("GradientFlowHook", []))


def test_a_layer_can_be_shared_out_among_optimizers(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()]
    before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).norm()

    def step(engine: Engine, batch: Any) -> None:
        model.zero_grad()
        model(torch.ones(2)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()

    _, (scalars,) = watched(tmp_path, step, 1, model=nn.ModuleDict({"it": model}), optimizer=optimizers)
    assert scalars["grad_norm/it"] == pytest.approx(math.sqrt(3))
    assert scalars["update_ratio/it"] == pytest.approx(0.1 * math.sqrt(3) / float(before), rel=1e-4)


@pytest.mark.parametrize("fused", [False, True])
def test_what_a_scaler_scales_is_not_taken_for_the_gradient(tmp_path: Path, fused: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)

    def step(engine: Engine, batch: Any) -> None:
        optimizer.zero_grad()
        # The second iteration overflows, as happens now and then where the scale is looked for.
        loss = model(torch.full((2,), 1e38 if engine.state.iteration == 2 else 1.0)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    runner, written = watched(tmp_path, step, 3, model=model, optimizer=optimizer)
    assert [scalars["grad_norm/0"] for scalars in written] == [pytest.approx(math.sqrt(3))] * 2
    assert not any("not finite" in text for text in runner.report().findings.get("GradientFlowHook", []))


def test_layers_unfrozen_later_are_measured_from_then_on(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    freeze = {"type": "FreezeHook", "patterns": ["0"], "unfreeze_epoch": 1}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> None:
        optimizer.zero_grad()
        model(torch.ones(8)).sum().backward()
        optimizer.step()

    services = {"model": model, "optimizer": optimizer, "hooks": [freeze], "epochs": 2}
    runner, written = watched(tmp_path, step, 2, **services)
    assert ["grad_norm/0" in scalars for scalars in written] == [False, False, True, True]
    assert not any("no gradient" in text for text in runner.report().findings.get("GradientFlowHook", []))


# -- what is found ---------------------------------------------------------------------------------------------


def test_a_vanishing_layer_is_found_and_named(tmp_path: Path) -> None:
    runner, _ = trained(tmp_path, deep(10, nn.Sigmoid))
    (found,) = [text for text in runner.report().findings["GradientFlowHook"] if "vanishes" in text]
    assert found.startswith("the gradient vanishes in 0")
    assert "of the median of the Linear layers" in found


def test_a_layer_that_gets_no_gradient_is_named(tmp_path: Path) -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lost, self.used = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> Any:
            return self.used(self.lost(x).detach())

    runner, _ = trained(tmp_path, Detached())
    assert runner.report().findings["GradientFlowHook"][0].startswith("no gradient comes to lost: detached")


def test_a_healthy_model_has_no_findings(tmp_path: Path) -> None:
    runner, _ = trained(tmp_path, deep(2, nn.ReLU), rate=0.01)
    assert runner.report().findings == {}


def test_a_picture_is_drawn_at_the_end(tmp_path: Path) -> None:
    _, writer = trained(tmp_path, deep(2, nn.Tanh))
    assert [name for name, *_ in writer.images] == ["gradient_flow"]
    assert (tmp_path / "visualization" / "gradient_flow.png").read_bytes().startswith(b"\x89PNG")
