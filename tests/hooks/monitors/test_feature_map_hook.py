from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events, create_supervised_trainer
from torch import nn

from ignite_hooks import Runner, attach_hooks
from ignite_hooks.drawing import figures as sheets
from ignite_hooks.hooks.monitors.feature_map_hook import FeatureMapHook
from ignite_hooks.writers.memory import MemoryWriter


def run(folder: Path, hook: Any, batches: int = 4) -> tuple[Runner, MemoryWriter, nn.Module]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(4 * 64, 2))
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss())
    sink = MemoryWriter()
    runner = attach_hooks(trainer, {"hooks": [hook], "writers": [sink]}, work_dir=folder, model=model)
    data = [(torch.rand(2, 3, 12, 12), torch.tensor([0, 1])) for _ in range(batches)]
    trainer.run(data, max_epochs=1)
    return runner, sink, model


def test_each_convolution_has_a_picture_when_due(tmp_path: Path) -> None:
    runner, sink, _ = run(tmp_path, {"type": "FeatureMapHook", "frequency": 2})
    assert [(name, step) for name, _, step in sink.images] == [
        ("feature_map/0", 2),
        ("feature_map/2", 2),
        ("feature_map/0", 4),
        ("feature_map/2", 4),
    ]
    assert (tmp_path / "visualization" / "feature_map" / "2_000004.png").exists()
    assert runner.report().failures == {}


def test_every_layer_of_one_iteration_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over = threading.Event()
    plain = sheets.features

    def slowly(*given: Any, **named: Any) -> Any:
        assert handed_over.wait(60)
        return plain(*given, **named)

    monkeypatch.setattr(sheets, "features", slowly)
    model = nn.Sequential(*[nn.Conv2d(2, 2, 1) for _ in range(9)], nn.Flatten(), nn.Linear(32, 3))
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.cross_entropy)
    hook = FeatureMapHook(frequency=1, layers=[str(n) for n in range(9)])
    attach_hooks(trainer, [hook], model=model, work_dir=tmp_path)

    @trainer.on(Events.EPOCH_COMPLETED)
    def _() -> None:
        handed_over.set()

    trainer.run([(torch.rand(2, 2, 4, 4), torch.zeros(2, dtype=torch.long))], max_epochs=1)
    assert len(list((tmp_path / "visualization" / "feature_map").iterdir())) == 9


def test_named_layers_alone_are_drawn(tmp_path: Path) -> None:
    _, sink, _ = run(tmp_path, FeatureMapHook(frequency=4, layers=["1"]))
    assert [name for name, _, _ in sink.images] == ["feature_map/1"]


def test_layers_have_forward_hooks_only_when_it_is_due(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watching(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(len(self._forward_hooks))
            return super().forward(x)

    model = nn.Sequential(Watching(3, 2, 3), nn.Flatten(), nn.Linear(200, 2))
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss())
    attach_hooks(trainer, [FeatureMapHook(frequency=2)], work_dir=tmp_path, model=model)
    trainer.run([(torch.rand(2, 3, 12, 12), torch.tensor([0, 1]))] * 2)
    assert seen == [0, 0, 1], "two steps, and the run of the hook"
    assert not model[0]._forward_hooks


@pytest.mark.parametrize(("wanted", "taken"), [(0, 0), (1, 1), (7, 1)])
def test_sample_batch_idx_chooses_the_image(tmp_path: Path, wanted: int, taken: int) -> None:
    asked: list[torch.Tensor] = []
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 2))
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss())
    attach_hooks(trainer, [FeatureMapHook(frequency=1, sample_batch_idx=wanted)], work_dir=tmp_path, model=model)
    images = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    model.register_forward_hook(lambda module, inputs, output: asked.append(inputs[0]))
    trainer.run([(images, torch.tensor([0, 1]))])
    assert asked[1].unique().tolist() == [taken]


def test_a_wrong_layer_is_an_error_with_the_nearest_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, FeatureMapHook(frequency=4, layers=["22"]))
    assert "the model has no layer '22', did you mean '2'?" in caplog.text


def test_the_defaults_are_those_of_the_specification() -> None:
    hook = FeatureMapHook({"frequency": 100, "max_features": 16, "sample_batch_idx": 0})
    assert (hook.frequency, hook.max_features, hook.sample_batch_idx) == (100, 16, 0)
    assert FeatureMapHook().frequency == 100
