"""`clearml_tasks.py`: what the state of a task says of a trial; `make agent` has whole searches with real agents."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.errors import ConfigError
from ignite_hooks.search.clearml_tasks import curve_of, end_of
from ignite_hooks.search.engines import Ended
from ignite_hooks.search.from_config import ConfigSearch
from ignite_hooks.search.makers import problems_of_engine
from ignite_hooks.trainer.search_section import SearchSection
from tests import warm
from tests.tools import trackers_at
from tests.writers.trackers.servers import unreachable

LOST = "Forced stop (non-responsive)"


@pytest.mark.parametrize(
    ("row", "ended"),
    [
        ({"status": "completed"}, Ended(7)),
        ({"status": "published"}, Ended(7)),
        ({"status": "queued"}, None),
        ({"status": "in_progress", "status_message": "stopping"}, None),
        ({"status": "created"}, None),
        ({"status": "failed", "status_reason": "worker execution exit code -9"}, Ended(7, killed="killed by SIGKILL")),
        ({"status": "failed", "status_reason": "worker execution exit code 137"}, Ended(7, killed="killed by SIGKILL")),
        ({"status": "failed", "status_reason": "worker execution exit code 1"}, 1),
        ({"status": "failed", "status_reason": "worker execution exit code 255"}, 1),
        ({"status": "failed", "status_message": "the configuration is wrong"}, 1),
        ({"status": "stopped", "status_reason": LOST, "status_message": LOST}, Ended(7, killed="its agent was lost")),
        ({"status": "stopped", "status_message": "Stopped by me"}, Ended(7, 1, reason="aborted in ClearML")),
        (None, Ended(7, 1, reason="its task was deleted")),
    ],
    ids=str,
)
def test_the_state_of_a_task_says_how_its_trial_has_ended(row: dict[str, Any] | None, ended: Any) -> None:
    found = end_of(7, row)
    if isinstance(ended, int):
        assert found is not None
        assert (found.code, found.killed) == (1, "")
        assert found.reason in (row or {}).values()
    else:
        assert found == ended


def test_a_trial_that_the_search_has_stopped_is_pruned_unless_it_was_faster() -> None:
    assert end_of(7, {"status": "stopped"}, pruned="hopeless") == Ended(7, pruned="hopeless")
    assert end_of(7, {"status": "completed"}, pruned="hopeless") == Ended(7)


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("in_progress", Ended(7, killed="no word from its agent for 11 min 40 s")),
        ("created", Ended(7, 1, reason="taken out of the queue")),
        ("queued", None),
        ("completed", Ended(7)),
    ],
)
def test_a_trial_of_which_nobody_hears_is_repeated_unless_it_waits(status: str, ended: Ended | None) -> None:
    assert end_of(7, {"status": status}, lost=700.0) == ended


CURVES = {
    "loss": {"train": {"x": [1, 2], "y": [3.0, 2.0]}, "val": {"x": [2], "y": [1.0]}},
    "val": {"accuracy": {"x": [2], "y": [0.5]}},
    "acc": {"val": {"x": [2], "y": [0.25]}},
}


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("val_loss", [1.0]),
        ("val/loss", [1.0]),
        ("loss", [1.0]),
        ("train_loss", [3.0, 2.0]),
        ("accuracy", [0.5]),
        ("val_acc", [0.25]),
        ("f1", None),
    ],
)
def test_the_curve_of_a_metric_is_found_in_either_layout(metric: str, found: list[float] | None) -> None:
    assert curve_of(CURVES, metric).get("y") == found


@pytest.mark.parametrize(
    ("hooks", "given", "places"),
    [
        ([{"type": "ClearMLHook", "project": "a"}], {}, []),
        ([{"type": "ClearMLHook", "mode": "offline"}], {}, ["search.engine"]),
        ([{"type": "ClearMLHook", "connect": False}], {"gpus": 1}, ["search.engine", "search.gpus"]),
        ([], {}, ["search.engine"]),
    ],
)
def test_what_agents_cannot_try_is_said_before_anything_is_tried(
    hooks: list[dict[str, Any]], given: dict[str, Any], places: list[str]
) -> None:
    section = SearchSection({"a": [1]}, engine="clearml", **given)
    assert [problem.place for problem in problems_of_engine(section, {"custom_hooks": hooks})] == places


def test_a_server_that_does_not_answer_is_a_problem_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    session: Any = pytest.importorskip("clearml.backend_api", reason="the extra 'clearml' is not installed").Session
    monkeypatch.setattr(session, "get_api_server_host", unreachable)
    path = tmp_path / "search.yaml"
    path.write_text(
        "model: {type: mlp}\ndataset: {type: digits}\ncustom_hooks: [{type: ClearMLHook}]\n"
        "search: {space: {training.epochs: [1, 2]}, engine: clearml}\n"
    )
    with pytest.raises(ConfigError, match=r"search\.engine: http://127.* does not answer: run clearml-init"):
        ConfigSearch(str(path), folder=tmp_path).run()


WITHOUT_AGENTS = """
import json, os, sys
from pathlib import Path
from ignite_hooks.search import clearml_tasks
from ignite_hooks.search.engines import Ended, Job
from ignite_hooks.search.study import NAME, Study
from ignite_hooks.trainer.search_section import SearchSection
from tests.writers.trackers.clearml_server import clearml_server

clearml_tasks.LOOK_EVERY = 0.0
folder = Path(sys.argv[1])
engine = {"type": "clearml", "queue": "trials"}
pruner = {"type": "threshold", "upper": 1.0}
space = {"training.seed": {"seeds": 2}, "model.hidden": [[4], [8, 8]]}
section = SearchSection(space, sampler="grid", pruner=pruner, engine=engine)
HOOKS = "custom_hooks: [{type: ClearMLHook, project: a}]"
study = Study(section, folder / "study.db")


def job():
    _, number, values = study.ask()
    config = folder / f"{number:04}.yaml"
    config.write_text(f"model: {{hidden: {values['model.hidden']}}}  # tried\\n{HOOKS}\\n")
    asks = {"storage": study.url, "study": NAME, "number": number, "pruner": section.pruner}
    return Job(number, config, folder / "trials" / f"{number:04}", config.with_suffix(".log"), asks, "my.yaml")


with clearml_server() as server:
    os.environ.update({f"CLEARML_{which}_HOST": server.url for which in ("API", "FILES", "WEB")})
    os.environ.update(CLEARML_API_ACCESS_KEY="key", CLEARML_API_SECRET_KEY="secret")
    first = clearml_tasks.ClearMLTasks(section)
    jobs = [job(), job()]
    (folder / "trials").mkdir()
    for each in jobs:
        first.start(each)
    template, *trials = server.tasks.values()
    assert template["script"]["entry_point"] == "-m ignite_hooks train my.yaml", template["script"]
    assert template["name"] == "search of my", template["name"]
    assert server.queues == {"queue-trials": [task["id"] for task in trials]}
    for task, hidden in zip(trials, ("[4]", "[8, 8]")):
        shown = {name: item["value"] for name, item in task["hyperparams"]["Model"].items()}
        assert shown == {"hidden": hidden}, shown
        assert f"hidden: {hidden}}}  # tried" in task["configuration"]["ignite_hooks"]["value"]
        assert (task["status"], task["parent"], task["script"]) == ("queued", template["id"], template["script"])
    assert first.ended() == []

    killed, hopeless = trials
    for task in trials:
        server.change(task["id"], "in_progress", {})
    server.change(killed["id"], "failed", {"status_reason": "worker execution exit code -9"})
    event = {"type": "training_stats_scalar", "metric": "loss", "variant": "val", "iter": 5, "value": 2.0}
    server.take_events(json.dumps({**event, "task": hopeless["id"]}).encode())
    assert first.ended() == [Ended(0, killed="killed by SIGKILL")]
    [ended] = first.ended()
    assert ended.pruned == "pruned by the search at val_loss 2, report 1", ended
    assert study.rows()[1].reports == 1
    assert hopeless["status_reason"] == "abort request"
    assert "pruned by the search at val_loss 2" in (folder / "0001.log").read_text()

    for number in (0, 1):
        study.end(number, None)
    server.change(killed["id"], "created", {"force": True})
    server.enqueue(killed["id"], "trials")
    clearml_tasks.ClearMLTasks(section).start(job())
    assert killed["status"] == "queued", "of this search it knows no file"
    (folder / "trials" / "0000.task").write_text(killed["id"])
    clearml_tasks.ClearMLTasks(section).start(job())
    assert killed["status"] == "stopped", killed["status"]
    print("ALL AS SAID")
"""


@pytest.mark.slow
def test_trials_are_clones_that_say_what_they_try_and_are_ended_with_their_search(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    pytest.importorskip("clearml", reason="the extra 'clearml' is not installed")
    with trackers_at(tmp_path):
        # ClearML would take the new process for one of this one's workers.
        mine = ("PROC_MASTER", "OFFLINE_MODE")
        environment = {name: value for name, value in os.environ.items() if not any(word in name for word in mine)}
        command = [sys.executable, "-W", "ignore", "-c", WITHOUT_AGENTS, str(tmp_path)]
        done = warm.run(command, also=warm.TRACKERS, env=environment, capture_output=True, text=True)
    assert "ALL AS SAID" in done.stdout, done.stdout + done.stderr
