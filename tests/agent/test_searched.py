"""Searches over a task of ClearML: by clones that run here, and by clones that an agent takes from a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from ignite_hooks.results.result import read_result
from tests.agent.agent import ROOT, Agent
from tests.agent.test_ends import verified
from tests.faults.tools import until
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


SEARCH = """
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 2, batch_size: 128, optimizer: {type: Adam, lr: 0.02}}
default_hooks: {logger: null}
custom_hooks: [{type: ClearMLHook, project: digits, interval: 5}]
search:
  space: {training.optimizer.lr: [0.001, 0.01, 0.1], model.hidden: [[8]]}
  sampler: grid
  jobs: 2
  cpus: 1
  engine: {type: clearml, queue: trials}
"""
LOST = "Forced stop (non-responsive)"
"""What the server says after two hours without a word."""


@pytest.mark.timeout(1800)
def test_agents_find_what_this_machine_finds_though_one_is_lost(agent: Agent, tmp_path: Path) -> None:
    server = agent.server
    (tmp_path / "search.yaml").write_text(SEARCH)
    here = SEARCH.replace("{type: clearml, queue: trials}", "local").replace("project: digits", "mode: disabled")
    (tmp_path / "here.yaml").write_text(here)
    command = ("-m", "ignite_hooks", "search", "search.yaml", "--work-dir", "there")
    with agent.beside(*command, folder=tmp_path) as searching:
        with agent.daemon("trials", dies=True):
            until(lambda: any(task["status"] == "in_progress" for task in trials_of(agent).values()))
        [lost] = (id_ for id_, task in trials_of(agent).items() if task["status"] == "in_progress")
        server.change(lost, "stopped", {"status_reason": LOST, "status_message": LOST})
        with agent.daemon("trials"):
            assert searching.wait(1200) == 0, (tmp_path / "beside.log").read_text()[-3000:]
    agent.by_hand("-m", "ignite_hooks", "search", "here.yaml", "--work-dir", "local", folder=tmp_path, timeout=600)

    there, local = (table_of(tmp_path / name) for name in ("there", "local"))
    assert [row for row in there if not row[0]] == local
    assert [row[0] for row in there].count(True) == 1
    said = (tmp_path / "beside.log").read_text()
    assert "(its agent was lost)" in said
    assert "3 finished" in said
    assert len(trials_of(agent)) == 4
    best = [(tmp_path / name / "best.yaml").read_text().partition("\n")[2] for name in ("there", "local")]
    assert best[0].replace("project: digits\n", "mode: disabled\n") == best[1]
    assert (tmp_path / "there" / "search.html").is_file()

    agent.by_hand("-m", "ignite_hooks", "train", "there/best.yaml", "--work-dir", "again", folder=tmp_path)
    assert read_result(tmp_path / "again").metrics["val_loss"].value == min(row[2] for row in local)


@pytest.mark.timeout(900)
def test_a_hopeless_trial_of_an_agent_is_pruned_and_saved(agent: Agent, tmp_path: Path) -> None:
    text = SEARCH.replace("epochs: 2", "epochs: 100000").replace("[0.001, 0.01, 0.1]", "[0.001]")
    (tmp_path / "search.yaml").write_text(f"{text}  pruner: {{type: threshold, upper: 0.1}}\n")
    command = ("-m", "ignite_hooks", "search", "search.yaml", "--work-dir", "there")
    with agent.daemon("trials"):
        said = agent.by_hand(*command, folder=tmp_path, timeout=800)
    assert "[1/1] trial 0: pruned, " in said
    [(id_, task)] = trials_of(agent).items()
    assert task["status"] == "stopped"
    result = read_result(tmp_path / "there" / "trials" / "0000")
    assert result.state == "stopped"
    [folder] = (agent.home / "runs").rglob(id_)
    assert verified(folder) == result.iterations


def trials_of(agent: Agent) -> dict[str, dict[str, Any]]:
    return {id_: task for id_, task in agent.server.tasks.items() if ", trial " in task["name"]}


def table_of(folder: Path) -> list[tuple[Any, ...]]:
    """Return the trials of a search in the order of what is tried: whether repeated, the values, what they are worth.

    An interrupted trial may have reported a value or not.
    """
    trials = optuna.load_study(study_name="search", storage=f"sqlite:///{folder / 'study.db'}").trials
    rows = []
    for trial in sorted(trials, key=lambda one: (one.user_attrs["index"], one.number)):
        repeated = bool(trial.user_attrs.get("repeated"))
        reported = {} if repeated else trial.intermediate_values
        rows.append((repeated, trial.params, trial.value, trial.state.name, reported))
    return rows
