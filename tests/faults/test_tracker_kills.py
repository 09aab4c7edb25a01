"""A run is killed again and again and goes on: its tracker has one run, with each step once and where it was."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.faults.tools import LONG, drawn, times, until
from tests.hooks.trackers.tracked import Series, as_written, clearml_name
from tests.tools import trackers_at
from tests.writers.trackers.clearml_server import clearml_server
from tests.writers.trackers.clearml_state import SINGLE
from tests.writers.trackers.wandb_server import wandb_server

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(times(300, 1200))]
FIRST, LAST = 3, 40
"""The iteration of the first checkpoint, and the last iteration."""
LIFE = """
import json, sys, time
import torch
from ignite.engine import Events
from ignite_hooks import attach_hooks
from ignite_hooks.testing import tiny_run
from tests.hooks.trackers.tracked import Patient

run = tiny_run(batches=4)
attach_hooks(
    run.trainer,
    {
        "default_hooks": {
            "logger": {"interval": 1},
            "timer": None,
            "checkpoint": {"interval": 3, "by_epoch": False, "save_best": False, "max_keep_ckpts": 2},
        },
        "custom_hooks": [{"interval": 1, **json.loads(sys.argv[2])}, Patient()],
    },
    work_dir=sys.argv[1],
    resume="auto",
    **run.services,
)

@run.trainer.on(Events.ITERATION_COMPLETED)
def say():
    print(run.trainer.state.iteration, flush=True)
    time.sleep(240 if run.trainer.state.iteration == int(sys.argv[4]) else float(sys.argv[3]))

run.trainer.run(run.data, max_epochs=10)
"""


Found = Callable[[], dict[str, Series]]
"""Reads the points of each run of a tracker by the names of their series."""


class Job:
    """A run in one folder, a life at a time.

    Args:
        folder: The work directory.
        hook: The hook of its tracker.
        pace: The seconds between two iterations.
    """

    def __init__(self, folder: Path, hook: dict[str, Any], pace: float) -> None:
        self.folder, self.hook, self.pace = folder, hook, pace

    def live(self, moment: int | None, arrived: Callable[[], bool] | None = None) -> int:
        """Train to the end, or until the process is killed; return the first iteration of this life.

        Args:
            moment: After which iteration it is killed.
            arrived: What has to be true before it is killed; meanwhile it waits.
        """
        holds = str((moment or 0) if arrived is not None else 0)
        life = [LIFE, str(self.folder), json.dumps(self.hook), str(self.pace), holds]
        said, errors, mine = list[int](), self.folder.with_name("errors.txt"), ("PROC_MASTER", "OFFLINE_MODE")
        environment = {name: value for name, value in os.environ.items() if not any(word in name for word in mine)}
        command = [sys.executable, "-W", "ignore", "-c", *life]
        also = warm.TRACKERS if LONG else ()
        with (
            errors.open("a") as told,
            warm.Popen(command, also=also, stdout=subprocess.PIPE, stderr=told, text=True, env=environment) as process,
        ):
            for line in process.stdout:
                said += [int(line)] if line.strip().isdigit() else []
                if moment is not None and said and said[-1] == moment:
                    if arrived is not None:
                        until(arrived, 230)
                    process.kill()
        assert process.returncode == (0 if moment is None else -signal.SIGKILL), errors.read_text()[-3000:]
        return said[0]


@contextlib.contextmanager
def mlflow_at(folder: Path) -> Iterator[tuple[dict[str, Any], Found]]:
    uri = f"sqlite:///{folder}/mlflow.db"

    def found() -> dict[str, Series]:
        import mlflow

        client = mlflow.MlflowClient(uri)
        runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
        return {
            run.info.run_id: {
                name: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            for run in runs
        }

    yield {"type": "MLflowHook", "tracking_uri": uri}, found


@contextlib.contextmanager
def tensorboard_at(folder: Path) -> Iterator[tuple[dict[str, Any], Found]]:
    def found() -> dict[str, Series]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        runs = {}
        for path in sorted((folder / "run").glob("tensorboard*")):
            seen = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
            runs[path.name] = {
                name: [(event.step, event.value) for event in seen.Scalars(name)] for name in seen.Tags()["scalars"]
            }
        return runs

    yield {"type": "TensorBoardHook"}, found


@contextlib.contextmanager
def wandb_at(folder: Path) -> Iterator[tuple[dict[str, Any], Found]]:
    with wandb_server() as server:

        def found() -> dict[str, Series]:
            runs: dict[str, Series] = {}
            for run, rows in server.runs.items():
                for row in rows:
                    for name, value in row.items():
                        if not name.startswith("_") and isinstance(value, int | float):
                            runs.setdefault(run, {}).setdefault(name, []).append((row["_step"], value))
            return runs

        os.environ.update(WANDB_BASE_URL=server.url, WANDB_API_KEY="0" * 40, WANDB_MODE="online")
        yield {"type": "WandbHook", "mode": "online"}, found


@contextlib.contextmanager
def clearml_at(folder: Path) -> Iterator[tuple[dict[str, Any], Found]]:
    with clearml_server() as server:

        def found() -> dict[str, Series]:
            runs: dict[str, Series] = {name: {} for name in server.tasks}
            for event in server.events:
                if event["type"] == "training_stats_scalar" and event["metric"] != SINGLE:
                    name = clearml_name(event["metric"], event["variant"])
                    runs[event["task"]].setdefault(name, []).append((event["iter"], event["value"]))
            return runs

        os.environ.update({f"CLEARML_{which}_HOST": server.url for which in ("API", "FILES", "WEB")})
        os.environ.update(CLEARML_API_ACCESS_KEY="a", CLEARML_API_SECRET_KEY="b")
        yield {"type": "ClearMLHook", "project": "digits"}, found


TRACKERS = {"TensorBoard": tensorboard_at, "MLflow": mlflow_at, "W&B": wandb_at, "ClearML": clearml_at}
ALL = [
    pytest.param(
        name, marks=[] if name == "TensorBoard" else pytest.mark.skipif(not LONG, reason="minutes: make faults")
    )
    for name in TRACKERS
]


def runs_of(found: Found) -> dict[str, Series]:
    """Return the runs that have numbers of the training."""
    return {name: series for name, series in found().items() if series.get("loss")}


@pytest.mark.parametrize("tracker", ALL)
def test_a_run_that_is_killed_goes_on_in_its_run_of_the_tracker(tracker: str, tmp_path: Path) -> None:
    dice = drawn()
    moments = [*sorted(dice.sample(range(FIRST + 2, LAST), times(1, 4))), None]
    with trackers_at(tmp_path), TRACKERS[tracker](tmp_path) as (hook, found):
        job = Job(tmp_path / "run", hook, dice.uniform(0, 0.1))
        print([job.live(moment) for moment in moments])
        (series,) = runs_of(found).values()
    written = as_written(tmp_path / "run")
    assert [step for step, _ in written["loss"]] == list(range(1, LAST + 1))
    for name, rows in written.items():
        assert series[name] == [(step, pytest.approx(value)) for step, value in rows], name


@pytest.mark.parametrize("tracker", ALL)
def test_each_life_is_a_run_of_the_tracker_where_that_is_asked_for(tracker: str, tmp_path: Path) -> None:
    dice = drawn()
    moments = [*sorted(dice.sample(range(FIRST + 2, LAST), times(1, 2))), None]
    with trackers_at(tmp_path), TRACKERS[tracker](tmp_path) as (hook, found):
        job = Job(tmp_path / "run", {**hook, "on_resume": "new"}, dice.uniform(0, 0.1))
        begins = [
            job.live(moment, lambda number=number: len(runs_of(found)) == number)
            for number, moment in enumerate(moments, 1)
        ]
        runs = runs_of(found)
    assert len(runs) == len(moments)
    steps = sorted(([step for step, _ in series["loss"]] for series in runs.values()), key=lambda one: one[0])
    assert [one[0] for one in steps] == begins, "a life begins where its checkpoint was"
    assert all(one == list(range(one[0], one[-1] + 1)) for one in steps), "no step twice, none left out"
    assert steps[-1][-1] == LAST
