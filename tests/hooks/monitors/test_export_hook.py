from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.export.write import RECORD
from tests.export.models import Norms

WEIGHTS = {"type": "ExportHook", "formats": ["pth"]}
BATCH = (torch.ones(3, 2), torch.zeros(3))


def run(folder: Path, *hooks: dict[str, Any], model: Any = None, **services: Any) -> tuple[Engine, Any]:
    model = torch.nn.Linear(2, 1) if model is None else model
    one = model if isinstance(model, torch.nn.Module) else next(iter(model.values()))
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> float:
        optimizer.zero_grad()
        loss = one(batch[0]).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    services = {"train_loader": [BATCH], **services}
    runner = attach_hooks(trainer, list(hooks), work_dir=folder, model=model, optimizer=optimizer, **services)
    trainer.run([BATCH] * 4, max_epochs=2)
    return trainer, runner


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(folder / "export" / "model.pth", weights_only=True)["state_dict"]
    return found


def test_the_weights_at_the_end_are_exported(tmp_path: Path) -> None:
    _, runner = run(tmp_path, WEIGHTS)
    assert torch.equal(weights_in(tmp_path)["weight"], runner.model.weight)
    assert json.loads((tmp_path / "export" / RECORD).read_text())["weights"] == "the last weights"


def test_averages_are_exported_and_the_training_weights_stay(tmp_path: Path) -> None:
    hooks = [{"type": "EMAHook", "momentum": 0.5, "warm_up": 0}, {"type": "CheckpointHook", "save_last": True}]
    for weights in ("raw", "ema"):
        _, runner = run(tmp_path / weights, *hooks, {**WEIGHTS, "weights": weights})
        saved = torch.load(tmp_path / weights / "last.pth", weights_only=True)
        expected = saved["state_dict" if weights == "raw" else "ema_state_dict"]
        assert torch.equal(weights_in(tmp_path / weights)["weight"], expected["weight"])
        assert torch.equal(runner.model.weight, saved["state_dict"]["weight"])
        assert not torch.equal(saved["state_dict"]["weight"], saved["ema_state_dict"]["weight"])


def test_a_checkpoint_that_is_named_is_exported(tmp_path: Path) -> None:
    run(tmp_path, {"type": "CheckpointHook", "interval": 1}, {**WEIGHTS, "checkpoint": "last"})
    assert torch.equal(weights_in(tmp_path)["weight"], state_in(tmp_path / "last.pth")["weight"])
    again = {"type": "CheckpointHook", "interval": 1, "out_dir": "."}
    run(tmp_path / "b", again, {**WEIGHTS, "checkpoint": str(tmp_path / "epoch_1.pth")})
    assert torch.equal(weights_in(tmp_path / "b")["weight"], state_in(tmp_path / "epoch_1.pth")["weight"])


def state_in(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return found


def test_a_stopped_run_exports_nothing_and_says_how(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: 0.0)
    runner = attach_hooks(trainer, [WEIGHTS], work_dir=tmp_path, model=torch.nn.Linear(2, 1), train_loader=[BATCH])
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: runner.stop("enough"))
    with caplog.at_level(logging.INFO):
        trainer.run([BATCH] * 4)
    assert not (tmp_path / "export").exists()
    assert "nothing is exported, as the run was stopped" in caplog.text


def test_one_of_several_models_is_named(tmp_path: Path) -> None:
    models = {"g": torch.nn.Linear(2, 1), "d": torch.nn.Linear(2, 3)}
    run(tmp_path, {**WEIGHTS, "model": "d"}, model=models)
    assert weights_in(tmp_path)["weight"].shape == (3, 2)
    with pytest.raises(ConfigError, match="model: missing: there are several models"):
        run(tmp_path, WEIGHTS, model=models)
    with pytest.raises(ConfigError, match="no model 'gen': the models are g, d"):
        run(tmp_path, {**WEIGHTS, "model": "gen"}, model=models)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"formats": []}, "formats: is empty"),
        ({"formats": ["onnx"], "dtype": "bfloat16"}, "formats: onnx: onnxruntime computes no bfloat16"),
        ({"weights": "ema"}, "weights: there are no averages in this run"),
        ({"checkpoint": "best"}, "checkpoint: no hook keeps the best weights"),
        ({"checkpoint": "lost.pth"}, "checkpoint: .*lost.pth"),
    ],
)
def test_what_cannot_work_is_refused_before_the_run(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    if "onnx" in settings.get("formats", ()):
        pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, {**WEIGHTS, **settings})


def test_the_batch_is_of_the_data_or_given(tmp_path: Path) -> None:
    for place, settings in (("data of the run", {}), ("service", {"inputs": "@example"})):
        run(tmp_path / place, {**WEIGHTS, **settings}, train_loader=None, example=BATCH[0])
        assert weights_in(tmp_path / place)
    _, runner = run(tmp_path, {**WEIGHTS, "on_error": "warn"}, train_loader=[(1, 2, 3)])
    assert "give ExportHook the setting inputs" in str(runner.report())


def test_random_numbers_are_left_alone(tmp_path: Path) -> None:
    model = Norms()
    torch.manual_seed(3)
    expected = torch.rand(1)
    trainer = Engine(lambda engine, batch: torch.manual_seed(3) and 0.0)
    images = torch.randn(3, 1, 6, 6)
    attach_hooks(trainer, [WEIGHTS], work_dir=tmp_path, model=model, train_loader=[(images, images)])
    trainer.run([0])
    assert torch.equal(torch.rand(1), expected)
