"""A server of ClearML that dies at any step of a run: nothing is lost, and what waits is sent later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.tools import LONG
from tests.hooks.trackers.test_clearml_hook import in_a_process, told
from tests.hooks.trackers.tracked import as_written
from tests.tools import trackers_at
from tests.writers.trackers.clearml_server import clearml_server

pytest.importorskip("clearml")
RUN = """
import sys, time
from pathlib import Path
import torch
from ignite.engine import Events
from ignite_hooks import attach_hooks
from ignite_hooks.testing import tiny_run

run, began = tiny_run(batches=4), []
config = {
    "default_hooks": {"logger": {"interval": 2}, "timer": None, "checkpoint": {"best_metric": "accuracy"}},
    "custom_hooks": [{"type": "ClearMLHook", "project": "digits", "interval": 2, "log_model": True}],
}
runner = attach_hooks(run.trainer, config, work_dir=Path(sys.argv[1]), **run.services)
run.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: began.append(time.monotonic()))
run.trainer.run(run.data, max_epochs=3)
assert len(began) == 12
print("seconds between the first and the last iteration:", began[-1] - began[0])
"""
MOMENTS = range(1, 100, 3) if LONG else [43]
"""The numbers of the requests before which the server dies; a whole run makes about eighty."""


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_server_that_dies_costs_nothing(moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with trackers_at(tmp_path), clearml_server() as server:
        for which in ("API", "FILES", "WEB"):
            monkeypatch.setenv(f"CLEARML_{which}_HOST", server.url)
        monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "a")
        monkeypatch.setenv("CLEARML_API_SECRET_KEY", "b")
        server.dies_at = moment
        said = in_a_process("-c", RUN, str(folder))
        [seconds] = [float(line.rpartition(": ")[2]) for line in said.splitlines() if "the last iteration" in line]
        assert seconds < 60, "no request is waited for: the SDK alone repeats one for minutes"
        asked, server.dies_at = server.asked, None
        written = as_written(folder)
        if asked >= moment:
            assert "sent to ClearML" in in_a_process("-m", "ignite_hooks", "send", str(folder))
        assert told(server) == written
        assert server.tasks, os.listdir(folder)
        names = {one["name"] for task in server.tasks.values() for one in task["models"]["output"]}
        assert {"best", "last"} <= names
        kept = {path.read_bytes() for path in folder.glob("*.pth")}
        assert kept >= {content for path, content in server.uploads.items() if "/models/" in path}
        assert "nothing waits to be sent" in in_a_process("-m", "ignite_hooks", "send", str(folder))
