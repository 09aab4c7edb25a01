"""Names and settings for ClearML; what is recorded is tested in `tests/hooks/trackers/test_clearml_hook.py`."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers.clearml import ClearMLWriter, _ClearML, has_credentials, named, plotted, titled
from ignite_hooks.writers.trackers.clearml_models import Models
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.spool import TrackerRecord
from ignite_hooks.writers.trackers.tracker import Offline, Refused
from tests import warm
from tests.tools import trackers_at

CREDENTIALS = ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY", "CLEARML_CONFIG_FILE")


@pytest.mark.parametrize(("name", "both"), [("val/loss", ("val", "loss")), ("lr", ("lr", "lr")), ("/a", ("/a", "/a"))])
def test_a_name_becomes_title_and_series(name: str, both: tuple[str, str]) -> None:
    assert titled(name) == both


@pytest.mark.parametrize(
    ("name", "both"),
    [("val/loss", ("loss", "val")), ("loss", ("loss", "train")), ("gpu/0", ("gpu", "0")), ("val/", ("val/", "val/"))],
)
def test_training_and_evaluations_share_a_plot(name: str, both: tuple[str, str]) -> None:
    assert plotted(name) == both


@pytest.mark.parametrize(
    "name", ["loss", "val/loss", "test/loss", "lr", "lr/0", "gpu/0/memory", "system/cpu", "val/a/b"]
)
def test_a_number_is_found_again_by_its_title_and_series(name: str) -> None:
    assert named(*plotted(name), "metric") == name
    assert named(*titled(name), "split") == name


@pytest.mark.parametrize(
    ("variables", "file", "known"),
    [
        ({}, None, False),
        ({"CLEARML_API_ACCESS_KEY": "a", "CLEARML_API_SECRET_KEY": "b"}, None, True),
        ({"CLEARML_API_ACCESS_KEY": "a"}, None, False),
        ({}, 'api { credentials { "access_key" = "a" } }', True),
        ({}, "api { }", False),
    ],
)
def test_credentials_are_in_variables_or_in_the_file(
    variables: dict[str, str], file: str | None, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        (tmp_path / "clearml.conf").write_text(file)
    assert has_credentials() is known


class Shows:
    """A task whose server shows these steps of curves."""

    def __init__(self, **curves: list[int]) -> None:
        self.curves = curves

    def get_logger(self) -> None:
        return None

    def get_reported_scalars(self) -> dict[str, Any]:
        return {title: {"train": {"x": steps, "y": steps}} for title, steps in self.curves.items()}


def test_gaps_of_short_curves_are_filled_and_long_ones_go_on(tmp_path: Path) -> None:
    """The server puts neighbours of a long curve together, so the steps that it shows are not those that were sent."""
    task = Shows(loss=[1, 2, 9], lr=[10, 20, 5000])
    tracker = _ClearML(task, "metric", tmp_path, offline=False, ours=False)
    records = [TrackerRecord("scalars", step, 0.0, {"loss": 1.0, "lr": 1.0}) for step in (2, 5, 10, 6000)]

    def missing(there: Delivered) -> list[list[str]]:
        return [list(part.content) if (part := there.missing_of(record)) else [] for record in records]

    assert missing(tracker.delivered()) == [[], ["loss"], ["loss"], ["loss", "lr"]]
    assert missing(tracker.arrived()) == [["lr"], ["loss", "lr"], ["loss", "lr"], ["loss", "lr"]]


@pytest.mark.parametrize(
    ("agent", "shown"), [("", ["a line", "run_id (iteration 3)\n7"]), ("4", ["run_id (iteration 3)\n7"])]
)
def test_lines_of_the_log_are_sent_where_no_agent_records_the_console(
    agent: str, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARML_TASK_ID", agent)
    said: list[str] = []
    log = types.SimpleNamespace(report_text=lambda text, print_console: said.append(text))
    tracker = _ClearML(types.SimpleNamespace(get_logger=lambda: log), "metric", tmp_path, offline=False, ours=True)
    for name, text in (("log", "a line"), ("run_id", "7")):
        tracker.text(TrackerRecord("text", 3, 0.0, {"name": name, "text": text}))
    assert said == shown


@pytest.mark.parametrize("run_id", [None, "3f", "77"])
def test_a_task_says_how_it_is_repeated_also_when_it_goes_on(
    run_id: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK replaces it by the command line that has resumed the run."""
    clearml = pytest.importorskip("clearml")
    task = types.SimpleNamespace(id="3f", output_uri="http://files", get_logger=lambda: None)
    said: list[Any] = []
    for name, value in (("current_task", None), ("is_offline", False)):
        monkeypatch.setattr(clearml.Task, name, lambda value=value: value)
    module = "ignite_hooks.writers.trackers.clearml"
    monkeypatch.setattr(f"{module}.begun_task", lambda **settings: said.append(settings) or task)
    monkeypatch.setattr(f"{module}.write_script", lambda task: said.append("script"))
    monkeypatch.setattr(ClearMLWriter, "_is_offline", lambda self: False)
    writer = ClearMLWriter(mode="online", work_dir=tmp_path)
    writer.run_id = run_id
    writer._connected()
    asked, then = said
    assert then == "script"
    # 0 shifts no step; None would go on after the last iteration.
    goes_on = (run_id, 0) if run_id else (False, False)
    assert (asked["reuse_last_task_id"], asked["continue_last_task"]) == goes_on
    # The SDK makes another where it cannot load the one that it was told.
    another = "the ClearML task 77 cannot be continued, so the run goes on in another: 3f"
    assert caplog.messages == ([another] if run_id == "77" else [])
    assert writer.run_id == "3f"


def test_a_task_that_began_before_a_failure_is_not_the_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clearml = pytest.importorskip("clearml")
    tasks: list[Any] = []
    module = "ignite_hooks.writers.trackers.clearml"
    monkeypatch.setattr(clearml.Task, "current_task", lambda: tasks[-1] if tasks else None)
    monkeypatch.setattr(clearml.Task, "is_offline", lambda: False)

    def begun(**settings: Any) -> Any:
        task = types.SimpleNamespace(id="3f", output_uri="", get_logger=lambda: None, is_offline=lambda: False)
        tasks.append(task)
        return task

    def fails(task: Any) -> None:
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(f"{module}.begun_task", begun)
    monkeypatch.setattr(f"{module}.write_script", fails)
    monkeypatch.setattr(ClearMLWriter, "_is_offline", lambda self: False)
    writer = ClearMLWriter(mode="online", work_dir=tmp_path)
    with pytest.raises(ConnectionError):
        writer._connected()
    assert writer._connected().is_ours
    assert [task.output_uri for task in tasks] == [True]
    assert writer.run_id == "3f"


class Stopped:
    """A task that somebody has aborted."""

    def get_status(self) -> str:
        return "stopped"


def test_an_aborted_task_takes_no_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CLEARML_TASK_ID", raising=False)
    models = Models(Stopped(), offline=False)
    for _ in range(2):
        with pytest.raises(Offline):
            models.put(tmp_path / "last.pth", {"name": "last"})
    assert caplog.messages == ["the ClearML task was aborted, so its models wait for 'ignite-hooks send'"]


@pytest.mark.parametrize("how", [None, OSError("no room")])
def test_what_was_not_uploaded_is_not_registered(
    how: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("clearml")
    from clearml.storage.helper import StorageHelper

    def upload(*_: Any, **__: Any) -> str | None:
        if how is not None:
            raise how
        return None

    monkeypatch.setattr(StorageHelper, "get", lambda address: types.SimpleNamespace(upload=upload))
    # It has nothing with which a model could be registered.
    task = types.SimpleNamespace(
        output_uri="http://files", get_status=lambda: "in_progress", _get_output_destination_suffix=str
    )
    path = tmp_path / "last.pth"
    path.write_bytes(b"weights")
    with pytest.raises(Refused, match=r"last\.pth was not uploaded.*" + (str(how) if how else "http://files")):
        Models(task, offline=False).put(path, {"name": "last", "details": {"checksum": "xxh3_128:3f"}})
    assert path.read_bytes() == b"weights"


TWO_SERVERS = """
import os, sys
from pathlib import Path
import torch
from ignite_hooks.writers.trackers.clearml import ClearMLWriter
from tests.writers.trackers.clearml_server import clearml_server

with clearml_server() as first, clearml_server() as second:
    for number, server in enumerate((first, second)):
        os.environ.update({f"CLEARML_{which}_HOST": server.url for which in ("API", "FILES", "WEB")})
        os.environ.update(CLEARML_API_ACCESS_KEY=f"key {number}", CLEARML_API_SECRET_KEY="secret")
        writer = ClearMLWriter(work_dir=Path(sys.argv[1], str(number)), deadline=240.0)
        writer.write_scalar("loss", 1.0, 1)
        writer.close()
    print("TASKS", len(first.tasks), len(second.tasks))
"""


@pytest.mark.slow
def test_a_later_run_uses_the_server_that_the_variables_name_by_then(tmp_path: Path) -> None:
    """ClearML keeps its first session, and would record the second run on the server of the first."""
    pytest.importorskip("clearml")
    with trackers_at(tmp_path):
        # ClearML would take the new process for one of this one's workers.
        mine = ("PROC_MASTER", "OFFLINE_MODE")
        environment = {name: value for name, value in os.environ.items() if not any(word in name for word in mine)}
        command = [sys.executable, "-W", "ignore", "-c", TWO_SERVERS, str(tmp_path)]
        done = warm.run(command, also=warm.TRACKERS, env=environment, capture_output=True, text=True)
    assert "TASKS 1 1" in done.stdout, done.stdout + done.stderr
