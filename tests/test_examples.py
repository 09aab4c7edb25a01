"""The examples run as they are; ``attach_to_script.py`` has its test beside ``attach_hooks``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.tools import trackers_at

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow", "wandb", "clearml"])
def test_a_training_is_recorded_without_a_network(tracker: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    folder = tmp_path / "run"
    command = [sys.executable, "examples/tracking.py", tracker, "--epochs", "1", "--work-dir", str(folder)]
    with trackers_at(tmp_path):
        environment = {name: value for name, value in os.environ.items() if "PROC_MASTER" not in name}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "look at it: " in done.stdout
    assert list(folder.glob("*.spool")) == []


@pytest.mark.slow
def test_a_gan_is_trained_and_resumed(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    folder = tmp_path / "run"
    for epochs, resume in (("1", []), ("2", ["--resume"])):
        command = [sys.executable, "examples/gan.py", "--epochs", epochs, "--work-dir", str(folder), *resume]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "smallest distance " in done.stdout
    assert "resumed from" in done.stderr + done.stdout
    saved = torch.load(folder / "last.pth", weights_only=True)
    assert list(saved["state_dict"]) == list(saved["optimizer"]) == list(saved["scheduler"]) == ["g", "d"]
    assert list(saved["ema_state_dict"]) == ["g"]
