"""The demo learns the digits, the same to the bit every time."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import load_config
from ignite_hooks.registry import HOOKS
from ignite_hooks.trainer.commands import DEMO
from ignite_hooks.trainer.datasets import digits
from ignite_hooks.trainer.models import CNN
from tests import warm

pytest.importorskip("sklearn")
LEARNING = partial(warm.run, also=warm.LEARNS)


def run(folder: Path, *more: str, process: Any = LEARNING, threads: int = 1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ignite_hooks", "demo", "--no-show", "--work-dir", str(folder), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return process(command, capture_output=True, text=True, check=False, cwd=folder.parent, env=environment)


@pytest.mark.slow
def test_it_reaches_97_percent_and_names_the_report(tmp_path: Path) -> None:
    done = run(tmp_path / "demo")
    assert done.returncode == 0, done.stderr[-3000:]
    accuracy = float(done.stdout.partition("test accuracy ")[2][:6])
    assert accuracy >= 0.97
    report = tmp_path / "demo" / "report.html"
    assert f"report: {report}" in done.stdout
    assert report.stat().st_size < 5_000_000
    assert f"exported: {tmp_path / 'demo' / 'export'}" in done.stdout
    shown = ("Where the model is wrong", 'class="confusion"', 'class="bars"', 'class="samples"', 'alt="the sample"')
    assert [part for part in shown if part not in report.read_text()] == []
    assert_exported_models_work(tmp_path / "demo" / "export", accuracy)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"], "nothing is written beside the work directory"


def assert_exported_models_work(folder: Path, accuracy: float) -> None:
    """Load the exported model by what others use, and measure it on the data of the test."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    safetensors: Any = pytest.importorskip("safetensors.torch")
    test = digits().test
    images, labels = test.tensors
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    (scores,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    model = CNN(10, 1, channels=[32, 64], dropout=0.25).eval()
    safetensors.load_model(model, folder / "model.safetensors")
    with torch.no_grad():
        own = model(images)
    assert torch.allclose(own, torch.from_numpy(scores), atol=1e-4)
    assert float((own.argmax(1) == labels).float().mean()) == pytest.approx(accuracy, abs=1e-4)


@pytest.mark.slow
def test_it_is_the_same_to_the_bit_every_time(tmp_path: Path) -> None:
    saved, said = [], []
    # The slow formats are written after the last checkpoint.
    place = [entry["type"] for entry in load_config(DEMO)["custom_hooks"]].index("ExportHook")
    two = ("--set", "training.epochs=2", "--set", f"custom_hooks.{place}.formats=[safetensors]")
    # A real process has another order of names in sets, too.
    for name, process in (("one", subprocess.run), ("two", LEARNING)):
        said.append(run(tmp_path / name, *two, process=process, threads=2).stderr)
        saved.append(torch.load(tmp_path / name / "last.pth", weights_only=True))
    for part in ("state_dict", "ema_state_dict"):
        assert all(torch.equal(saved[0][part][weight], saved[1][part][weight]) for weight in saved[0][part])
    noise = [line for line in said[0].splitlines() if "profiler_st" in line or "CPUAllocator" in line]
    assert noise == [], "what torch says to those who work on it stands between the lines of the run"


KINDS = {
    "changing the training": ["EMAHook", "EarlyStoppingHook"],
    "watching it": ["GradientFlowHook", "MemoryProfilerHook", "ProfilerHook", "SystemMonitorHook", "TimeTrackingHook"],
    "showing it": ["FeatureMapHook", "HistoryPlotHook", "ProgressBarHook", "ReportHook", "VisualizationHook"],
    "telling others": ["TensorBoardHook"],
    "of Ignite": ["ignite.handlers."],
}


@pytest.mark.parametrize("names", KINDS.values(), ids=KINDS)
def test_every_kind_of_hook_is_on(names: list[str]) -> None:
    content = load_config(DEMO)
    types = [entry["type"] for entry in content["custom_hooks"]]
    assert [name for name in names if not any(type_.startswith(name) for type_ in types)] == []
    assert all(type_ in HOOKS or type_.startswith("ignite.handlers.") for type_ in types)
