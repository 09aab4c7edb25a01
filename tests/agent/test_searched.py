"""Searches over a task of ClearML: by clones that run here, and by clones that an agent takes from a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.results.result import read_result
from tests.agent.agent import ROOT, Agent
from tests.writers.trackers.clearml_queries import hashed

CONFIG = """
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 2, batch_size: 512, seed: 0, optimizer: {type: Adam, lr: 0.02}}  # found by hand
hooks:
  - {type: CheckpointHook, best_metric: val_loss}
  - {type: ClearMLHook, project: digits, interval: 1}
"""
SCRIPT = "from ignite_hooks import BaseTrainer\n\nBaseTrainer('digits.yaml').train()\n"
EXAMPLE = ROOT / "examples" / "clearml_search.py"
TRIED = {(lr, size) for lr in ("0.001", "0.01") for size in ("64", "256")}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("by", ["start_locally", "start"])
def test_a_search_finds_the_best_of_the_values_that_it_sets(by: str, agent: Agent, tmp_path: Path) -> None:
    server = agent.server
    (tmp_path / "digits.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text(SCRIPT)
    begin: dict[str, list[str]] = {
        "start_locally": ["train.py"],
        "start": ["-m", "ignite_hooks", "train", "digits.yaml"],
    }
    agent.by_hand(*begin[by], folder=tmp_path)
    [first] = server.tasks
    if by == "start":
        with agent.daemon("trials"):
            said = agent.by_hand(EXAMPLE, first, "--queue", "trials", folder=tmp_path, timeout=1000)
    else:
        said = agent.by_hand(EXAMPLE, first, folder=tmp_path, timeout=1000)
    search = next(id_ for id_, task in server.tasks.items() if task["name"].startswith("search: "))
    trials = {id_: task for id_, task in server.tasks.items() if task.get("parent") == search}
    assert [task["status"] for task in trials.values()] == ["completed"] * 4, said[-3000:]
    assert {values_of(task) for task in trials.values()} == TRIED
    worth = {}
    for id_, task in trials.items():
        [folder] = (agent.home / "runs").rglob(id_)
        result = read_result(folder)
        worth[id_] = result.best["val_loss"].value
        # What the search ranks by is what the run has reached, with the values that the page shows.
        assert task["last_metrics"][hashed("loss")][hashed("val")]["min_value"] == worth[id_]
        training = result.configuration["training"]
        assert (str(training["optimizer"]["lr"]), str(training["batch_size"])) == values_of(task)
    best = min(worth, key=worth.__getitem__)
    ranked = [line.split()[-1] for line in said.splitlines() if line.startswith("loss/val ")]
    assert ranked == sorted(worth, key=worth.__getitem__)

    text = (tmp_path / "best.yaml").read_text()
    assert "# found by hand" in text
    (tmp_path / "best.yaml").write_text(text.replace("project: digits", "mode: disabled"))
    agent.by_hand("-m", "ignite_hooks", "train", "best.yaml", "--work-dir", "best", folder=tmp_path)
    assert read_result(tmp_path / "best").best["val_loss"].value == worth[best]


def values_of(task: dict[str, Any]) -> tuple[str, str]:
    """Return the rate and the batch size that the page of a task shows."""
    shown = task["hyperparams"]["Training"]
    return shown["optimizer/lr"]["value"], shown["batch_size"]["value"]


def test_a_search_here_refuses_a_task_that_runs_a_module(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(CONFIG)
    agent.by_hand("-m", "ignite_hooks", "train", "digits.yaml", "--queue", "nobody", folder=tmp_path)
    [task] = agent.server.tasks
    said = agent.by_hand(EXAMPLE, task, folder=tmp_path, code=2)
    assert "runs a module, which ClearML does not start here: name a --queue" in said
