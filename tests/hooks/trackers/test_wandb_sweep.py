"""The agent of W&B runs our command line: what its sweep tries is what is trained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.config.files import load_config
from tests.faults.tools import LONG
from tests.tools import trackers_at
from tests.writers.trackers.wandb_server import wandb_server

pytest.importorskip("wandb")
CONFIG = """
model: {type: mlp, hidden: [8]}
dataset: {type: csv, path: table.csv, target: kind}
training: {epochs: 1, batch_size: 512, optimizer: {type: SGD, lr: 0.1}}
hooks: [{type: CheckpointHook}, {type: WandbHook, project: digits, mode: online}]
"""
SWEEP = {
    "method": "grid",
    "metric": {"name": "val/accuracy", "goal": "maximize"},
    "parameters": {"training.optimizer.lr": {"values": [0.25, 0.5]}},
}


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(
    "passes_them_on",
    [False, pytest.param(True, marks=pytest.mark.skipif(not LONG, reason="half a minute: make faults"))],
)
def test_a_run_of_a_sweep_trains_what_the_sweep_tries(passes_them_on: bool, tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(CONFIG)
    # It needs no scikit-learn, which takes seconds to import.
    (tmp_path / "table.csv").write_text("a,b,kind\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(300)))
    # `--set` of a command that all runs share, which the sweep wins over.
    command = [sys.executable, "-W", "ignore", "-m", "ignite_hooks", "train", "digits.yaml"]
    command += ["--set", "training.optimizer.lr=9", "--work-dir", "run", *(["${args}"] if passes_them_on else [])]
    with wandb_server() as server, trackers_at(tmp_path):
        server.sweep = json.dumps({**SWEEP, "command": command})
        server.tries = [{"training.optimizer.lr": 0.25, "model.hidden": [4]}]
        own = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40, "PYTHONPATH": os.getcwd()}
        environment = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"} | own
        agent = [sys.executable, "-m", "wandb", "agent", "somebody/digits/s"]
        done = subprocess.run(
            agent, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
        )
    said = done.stdout + done.stderr
    assert server.tries == [], said[-3000:]
    config: dict[str, Any] = load_config(tmp_path / "run" / "config.yaml")
    assert config["training"]["optimizer"]["lr"] == 0.25, said[-3000:]
    assert config["model"]["hidden"] == [4]
    assert list(server.runs) == ["try0"], "the run of the sweep, and no other"
    assert any("val/accuracy" in row for row in server.runs["try0"]), "what the sweep compares"
