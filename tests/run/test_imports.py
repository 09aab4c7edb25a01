"""What threads need is imported before the first iteration."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from ignite_hooks.run.imports import import_ahead
from tests import warm

MODULE = "colorsys"
"""A module of the standard library that nothing here needs."""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


def test_what_is_not_there_is_left_out(fresh: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    import_ahead(("no_such_module", MODULE, "json.no_such_part"), "Hook", logging.getLogger("x"), clock=lambda: 0.0)
    assert MODULE in sys.modules
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.9, []), (1.0, ["Hook: imports took 1.0 s, before the first iteration"])]
)
def test_a_second_of_imports_is_logged(seconds: float, said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    times = iter((5.0, 5.0 + seconds))
    import_ahead((), "Hook", logging.getLogger("x"), clock=lambda: next(times))
    assert caplog.messages == said


WATCHED = """
import json, sys, threading

# What a process has imported that is forked for a test, and no script.
for name in [name for name in sys.modules if name.partition(".")[0] in ("psutil", "yaml")]:
    del sys.modules[name]

from ignite.engine import Engine
import torch
from ignite_hooks import attach_hooks

torch.set_num_threads(1)
found, began = [], threading.Event()

def watch(event, arguments):
    if event == "import" and began.is_set() and threading.current_thread().name.startswith(OURS):
        found.append([threading.current_thread().name, arguments[0]])

OURS = ("ignite_hooks", "SystemMonitorHook", "NotifyHook") + tuple(f"{name} draws" for name in (
    "VisualizationHook", "FeatureMapHook", "HistoryPlotHook"))
sys.addaudithook(watch)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
written = threading.Event()

def step(trainer, batch):
    began.set()
    optimizer.zero_grad()
    out = model(batch[0])
    loss = torch.nn.functional.cross_entropy(out, batch[1])
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "y_pred": out.detach(), "y": batch[1]}

trainer, evaluator = Engine(step), Engine(lambda _, batch: (model(batch[0]).detach(), batch[1]))
data = [(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))] * 3
hooks = [{"type": f"{name}Hook", "interval": 1, "log_model": True, **more} for name, more in (
    ("TensorBoard", {"log_images": True, "log_histograms": True}), ("MLflow", {}),
    ("Wandb", {"mode": "offline"}), ("ClearML", {"mode": "offline"}))]
hooks += [{"type": "EMAHook", "overlap": True}, {"type": "SystemMonitorHook", "interval": 1}]
hooks += [{"type": "VisualizationHook", "interval": 1, "contents": ["predictions", "cam", "gradient", "feature_map"]}]
hooks += [{"type": "FeatureMapHook", "frequency": 1}, {"type": "HistoryPlotHook", "interval": 1}]
runner = attach_hooks(trainer, {"custom_hooks": hooks}, model=model, optimizer=optimizer, evaluators=evaluator,
                      val_loader=data, work_dir=sys.argv[1])
trainer.run(data, max_epochs=2)
# A library may look for another one that is not there.
found = [each for each in found if each[1] in sys.modules]
lost = runner.writer.failures()
# What libraries print comes whenever it likes.
with open("found.json", "w") as file:
    json.dump([found, lost], file)
"""


@pytest.mark.slow
def test_no_thread_of_ours_imports_anything_once_training_has_begun(tmp_path: Path) -> None:
    for module in ("mlflow", "wandb", "clearml"):
        pytest.importorskip(module)
    command = [sys.executable, "-c", WATCHED, str(tmp_path)]
    done = warm.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found, lost = json.loads((tmp_path / "found.json").read_text())
    assert found == []
    assert lost == {}
