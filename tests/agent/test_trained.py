"""What the real agent trains: the values that the page of a task shows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import torch

from ignite_hooks.config.connected.parameters import parameters_of
from ignite_hooks.config.connected.yaml_text import read_text
from ignite_hooks.config.files import load_config
from tests.agent.agent import Agent

CONFIG = """# digits, small
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 1, batch_size: 512, seed: 0, optimizer: {type: Adam, lr: 0.01}}  # lr found by hand
hooks:
  - {type: CheckpointHook, save_best: false}
  - {type: EMAHook, momentum: 0.9}  # averaged
  - {type: GradClipHook, max_norm: 0.1}
  - {type: ClearMLHook, project: digits, interval: 1}
"""


def weights(folder: Path) -> dict[str, Any]:
    saved = torch.load(folder / "last.pth", weights_only=True)
    return {
        **saved["state_dict"],
        **{f"ema {name}": value for name, value in (saved.get("ema_state_dict") or {}).items()},
    }


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_edited_clone_without_a_repository(agent: Agent, tmp_path: Path) -> None:
    """The file is in no repository: what the agent trains is the text of the task."""
    server = agent.server
    place = tmp_path / "by hand"
    place.mkdir()
    (place / "digits.yaml").write_text(CONFIG)
    agent.by_hand("-m", "ignite_hooks", "train", "digits.yaml", "--work-dir", "first", folder=place)
    [first] = server.tasks
    assert server.tasks[first]["status"] == "completed"
    assert server.tasks[first]["script"]["entry_point"] == "-m ignite_hooks train digits.yaml"

    clone = server.clone(first)
    task = server.tasks[clone]
    server.set_parameter(clone, "Training/optimizer/lr", "0.05")
    text = task["configuration"]["ignite_hooks"]
    text["value"] = (
        text["value"]
        .replace("momentum: 0.9", "momentum: 0.6")
        .replace("  - {type: GradClipHook, max_norm: 0.1}\n", "  - {type: EmptyCacheHook}\n")
    )
    said = agent.execute(clone, "--standalone-mode")
    assert task["status"] == "completed", said[-3000:]
    values = (
        CONFIG.replace("lr: 0.01", "lr: 0.05")
        .replace("momentum: 0.9", "momentum: 0.6")
        .replace("{type: GradClipHook, max_norm: 0.1}", "{type: EmptyCacheHook}")
    )
    (place / "values.yaml").write_text(values.replace("interval: 1", "interval: 1, mode: disabled"))
    agent.by_hand("-m", "ignite_hooks", "train", "values.yaml", "--work-dir", "values", folder=place)
    [folder] = (agent.home / "runs").rglob(clone)
    assert_same(folder, place / "values")
    kept = parameters_of(load_config(folder / "config.yaml"))
    page = {name: item["value"] for name, item in task["hyperparams"]["Training"].items()}
    assert kept["Training/optimizer/lr"].value == 0.05
    assert page["optimizer/lr"] == "0.05"
    assert read_text(task["configuration"]["ignite_hooks"]["value"], "") == read_text(values, "")
    assert "values of the ClearML task: " in said
    assert "Training/optimizer/lr: 0.01 -> 0.05" in said
    # A clone of the clone says the same, and nothing in it counts as edited.
    again = server.tasks[server.clone(clone)]
    assert again["hyperparams"] == task["hyperparams"]
    said_again = {name: again["configuration"][name]["value"] for name in ("ignite_hooks", "ignite_hooks.base")}
    assert {name: read_text(text, "") for name, text in said_again.items()} == dict.fromkeys(
        said_again, read_text(values, "")
    )


SCRIPT = """
import torch
from ignite.engine import create_supervised_trainer
from ignite_hooks import attach_hooks, load_config

torch.set_num_threads(1)
config = load_config("own.yaml", connect=True)
torch.manual_seed(0)
x = torch.randn(64, 4)
data = torch.utils.data.DataLoader(list(zip(x, x.sum(1, keepdim=True))), batch_size=8)
model = torch.nn.Sequential(torch.nn.Linear(4, config["width"]), torch.nn.Linear(config["width"], 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
runner = attach_hooks(trainer, config, model=model, optimizer=optimizer)
trainer.run(data, max_epochs=2)
"""
OWN = """
width: 3
rate: 0.1  # by hand
work_dir: runs
hooks: [{type: CheckpointHook, save_best: false}, {type: EMAHook, momentum: 0.9}, {type: ClearMLHook, project: own}]
"""


def test_an_edited_clone_of_a_script_in_a_repository_with_a_change(agent: Agent, tmp_path: Path) -> None:
    server, place, shared = agent.server, tmp_path / "by hand", tmp_path / "shared.git"
    place.mkdir()
    git(tmp_path, "init", "--bare", "-b", "main", str(shared))
    git(place, "init", "-b", "main")
    git(place, "remote", "add", "origin", str(shared))
    (place / "train.py").write_text(SCRIPT.replace("max_epochs=2", "max_epochs=1"))
    (place / "own.yaml").write_text(OWN)
    git(place, "add", "-A")
    git(place, "commit", "-m", "first")
    git(place, "push", "origin", "main")
    (place / "train.py").write_text(SCRIPT)
    agent.by_hand("train.py", folder=place)
    [first] = server.tasks
    script = server.tasks[first]["script"]
    assert (script["entry_point"], script["repository"]) == ("train.py", str(shared))
    assert "+trainer.run(data, max_epochs=2)" in script["diff"]

    clone = server.clone(first)
    server.set_parameter(clone, "Run/rate", "0.02")
    server.set_parameter(clone, "Hooks/EMAHook/momentum", "0.6")
    said = agent.execute(clone)
    assert server.tasks[clone]["status"] == "completed", said[-3000:]
    (place / "own.yaml").write_text(
        OWN.replace("0.1 ", "0.02 ").replace("0.9", "0.6").replace("project: own", "mode: disabled")
    )
    (place / "runs").rename(place / "runs of the first")
    agent.by_hand("train.py", folder=place)
    [folder] = (agent.home / "runs").rglob(clone)
    assert_same(folder, place / "runs")
    assert torch.load(folder / "last.pth", weights_only=True)["meta"]["iter"] == 16


RANKS = """
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 1, batch_size: 64, seed: 0, optimizer: {type: SGD, lr: 0.1}}
hooks: [{type: CheckpointHook, save_best: false}, {type: ClearMLHook, project: digits}]
"""


def test_an_edited_clone_on_two_ranks(agent: Agent, tmp_path: Path) -> None:
    server, launch = agent.server, ("-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "ignite_hooks", "train")
    (tmp_path / "digits.yaml").write_text(RANKS)
    agent.by_hand(*launch, "digits.yaml", folder=tmp_path)
    [first] = server.tasks
    assert server.tasks[first]["script"]["entry_point"] == f"{' '.join(launch)} digits.yaml"
    clone = server.clone(first)
    server.set_parameter(clone, "Training/optimizer/lr", "0.01")
    said = agent.execute(clone, "--standalone-mode")
    assert server.tasks[clone]["status"] == "completed", said[-3000:]
    assert len(server.tasks) == 2, "one task for both ranks"
    (tmp_path / "values.yaml").write_text(RANKS.replace("0.1", "0.01").replace("project: digits", "mode: disabled"))
    agent.by_hand(*launch, "values.yaml", "--work-dir", "values", folder=tmp_path)
    [folder] = (agent.home / "runs").rglob(clone)
    assert_same(folder, tmp_path / "values")


def test_a_value_that_does_not_fit_fails_the_task(agent: Agent, tmp_path: Path) -> None:
    server = agent.server
    (tmp_path / "digits.yaml").write_text(CONFIG)
    agent.by_hand("-m", "ignite_hooks", "train", "digits.yaml", "--queue", "later", folder=tmp_path)
    [task] = server.tasks
    server.set_parameter(task, "Hooks/EMAHook/momentum", "lots")
    (tmp_path / "wrong.yaml").write_text(CONFIG.replace("momentum: 0.9", "momentum: lots"))
    told = agent.by_hand("-m", "ignite_hooks", "validate", "wrong.yaml", folder=tmp_path, code=2)
    [problem] = [line.partition(": ")[2] for line in told.splitlines() if "momentum" in line]
    agent.execute(task, "--standalone-mode", code=2)
    assert server.tasks[task]["status"] == "failed"
    assert any(problem in str(asked) for call, asked in server.calls if call == "tasks.failed")


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
