"""The examples run as they are; ``attach_to_script.py`` has its test beside ``attach_hooks``."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from ignite_hooks import BaseTrainer
from tests import warm
from tests.tools import trackers_at

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow", "wandb", "clearml"])
def test_a_training_is_recorded_without_a_network(tracker: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    folder = tmp_path / "run"
    command = [sys.executable, "examples/tracking.py", tracker, "--epochs", "1", "--work-dir", str(folder)]
    with trackers_at(tmp_path):
        # Where our files are slow, those of the trackers are not: MLflow makes forty tables before it takes anything.
        left_out = ("PROC_MASTER", "SLOW_FILES")
        environment = {name: value for name, value in os.environ.items() if not any(word in name for word in left_out)}
        done = warm.run(command, also=warm.TRACKERS, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "look at it: " in done.stdout
    assert list(folder.glob("*.spool")) == []


@pytest.mark.slow
@pytest.mark.parametrize(("which", "shown"), [("text", "what a "), ("sound", "<audio"), ("video", "data:image/gif")])
def test_words_sounds_and_videos_are_in_the_report(which: str, shown: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "examples/words_sounds_videos.py", which, "--epochs", "1", "--work-dir", str(folder)]
    done = warm.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert shown in (folder / "report.html").read_text()


@pytest.mark.slow
def test_a_gan_is_trained_and_resumed(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    folder = tmp_path / "run"
    for epochs, resume in (("1", []), ("2", ["--resume"])):
        command = [sys.executable, "examples/gan.py", "--epochs", epochs, "--work-dir", str(folder), *resume]
        done = warm.run(command, also=warm.LEARNS, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "smallest distance " in done.stdout
    assert "resumed from" in done.stderr + done.stdout
    saved = torch.load(folder / "last.pth", weights_only=True)
    assert list(saved["state_dict"]) == list(saved["optimizer"]) == list(saved["scheduler"]) == ["g", "d"]
    assert list(saved["ema_state_dict"]) == ["g"]


@pytest.mark.slow
def test_data_of_ones_own_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    for path in (ROOT / "examples/own_data").glob("*.*"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("make_data").main(Path("data"))
    try:
        for name, least in (("images", 0.5), ("table", 0.9), ("labels", 0.2)):
            epochs = {"images": 6, "table": 10, "labels": 2}[name]
            trainer = BaseTrainer(f"{name}.yaml", overrides=[f"training.epochs={epochs}"])
            assert trainer.train()["val_accuracy"] >= least, name
    finally:
        for name in ("make_data", "my_data"):
            sys.modules.pop(name, None)


@pytest.mark.slow
def test_a_script_is_searched_with_optuna(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    command = [sys.executable, "examples/search.py", "--trials", "5", "--work-dir", str(tmp_path)]
    done = warm.run(command, also=warm.LEARNS, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "best loss " in done.stdout
    assert len(list(tmp_path.glob("trial_*/last.pth"))) == 5
    assert not list(tmp_path.rglob("exception*"))
