"""The session that ClearML writes offline."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest
import torch
from PIL import Image

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.trackers.clearml_hook import single_values
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.trackers import clearml as writers_clearml
from ignite_hooks.writers.trackers.clearml import ClearMLWriter, _ClearML
from ignite_hooks.writers.trackers.resend import waiting
from ignite_hooks.writers.trackers.spool import Spool
from tests import warm
from tests.faults.tools import LONG, until
from tests.hooks.trackers.tracked import (
    CANARY,
    PICTURE,
    Series,
    as_written,
    clearml_name,
    holding_the_canary,
    later_test_script,
    train,
)
from tests.tools import trackers_at
from tests.writers.results import write_all, write_media
from tests.writers.trackers.clearml_server import ClearMLServer, clearml_server
from tests.writers.trackers.servers import FAULTS, faulty

clearml: Any = pytest.importorskip("clearml")
HOOK = {
    "type": "ClearMLHook",
    "project": "digits",
    "task_name": "first",
    "tags": ["a", "b"],
    "log_model": True,
    "mode": "offline",
}


@pytest.fixture(scope="module", autouse=True)
def _trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with trackers_at(tmp_path_factory.mktemp("trackers")):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clearml")
    train(folder, {**HOOK, "log_histograms": True, "histogram_interval": 4})
    return folder


@pytest.fixture(scope="module")
def session(folder: Path) -> zipfile.ZipFile:
    return opened(folder)


def opened(folder: Path) -> zipfile.ZipFile:
    [path] = folder.glob("clearml-offline-*.zip")
    return zipfile.ZipFile(path)


def events(session: zipfile.ZipFile, kind: str) -> list[dict[str, Any]]:
    lines = session.read("metrics.jsonl").decode().splitlines()
    return [event for line in lines for event in json.loads(line) if event["type"] == kind]


def series(session: zipfile.ZipFile) -> Series:
    found: Series = {}
    for event in events(session, "training_stats_scalar"):
        if event["metric"] != SINGLE:
            name = clearml_name(event["metric"], event["variant"])
            found.setdefault(name, []).append((event["iter"], event["value"]))
    return found


SINGLE = "Summary"
"""Where ClearML keeps single values."""


def task_of(session: zipfile.ZipFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(session.read("task.json"))
    return found


def test_names_steps_and_values_match_metrics_jsonl(folder: Path, session: zipfile.ZipFile) -> None:
    written = as_written(folder)
    found = series(session)
    assert found == {name: [(step, pytest.approx(value)) for step, value in rows] for name, rows in written.items()}


def test_the_table_of_tasks_shows_best_and_last_values(folder: Path, session: zipfile.ZipFile) -> None:
    found = events(session, "training_stats_scalar")
    single = {event["variant"]: event["value"] for event in found if event["metric"] == SINGLE}
    accuracies = [value for _, value in as_written(folder)["val/accuracy"]]
    assert single["best accuracy"] == pytest.approx(max(accuracies))
    assert single["val_accuracy"] == pytest.approx(accuracies[-1])
    assert single["seconds"] > 0
    assert single["iterations per second"] == pytest.approx(12 / single["seconds"])


def test_the_table_of_tasks_shows_how_fast_a_run_was() -> None:
    run = tiny_run()
    services = {**run.services, "train_loader": torch.utils.data.DataLoader(list(range(8)), 8)}
    runner = attach_hooks(run.trainer, [], **services)
    assert single_values(runner, 2.0, 12) == {
        "seconds": 2.0,
        "iterations per second": 6.0,
        "samples per second": 48.0,
    }
    runner.detach()


@pytest.mark.parametrize(
    ("layout", "shown"),
    [("metric", {("loss", "train"), ("loss", "val")}), ("split", {("loss", "loss"), ("val", "loss")})],
)
def test_the_layout_says_which_numbers_share_a_plot(layout: Any, shown: set[tuple[str, str]], tmp_path: Path) -> None:
    writer = ClearMLWriter(layout=layout, mode="offline", work_dir=tmp_path, deadline=240.0)
    for kind in ("train", "val"):
        writer.write_scalars({"loss": 1.0}, 1, kind=kind)
    writer.close()
    found = events(opened(tmp_path), "training_stats_scalar")
    assert {(event["metric"], event["variant"]) for event in found} == shown


def test_pictures_and_histograms_are_recorded_once(session: zipfile.ZipFile) -> None:
    pictures = events(session, "training_debug_image")
    assert [(event["metric"], event["variant"], event["iter"]) for event in pictures] == [
        ("predictions", "cat", 4),
        ("predictions", "cat", 12),
    ]
    files = [name for name in session.namelist() if name.startswith("data/") and "predictions" in name]
    images = [name for name in files if not name.endswith("/")]
    assert {Image.open(io.BytesIO(session.read(name))).size for name in images} == {PICTURE.shape[1::-1]}
    plots = [(event["metric"], event["variant"], event["iter"]) for event in events(session, "plot")]
    assert [step for *name, step in plots if name == ["weights", "weight"]] == [4, 8, 12]


def test_name_tags_and_configuration_are_recorded(session: zipfile.ZipFile) -> None:
    task = task_of(session)
    assert task["name"].endswith("first")
    assert set(task["tags"]) >= {"a", "b"}
    config = task["configuration"]["ignite_hooks.trained"]["value"]
    assert "best_metric" in config
    assert "***" in config
    assert "best_metric" in task["configuration"]["ignite_hooks"]["value"]
    assert task["hyperparams"]["Hooks"]["checkpoint/best_metric"]["value"] == "accuracy"


def test_checkpoints_are_output_models_under_fixed_names(folder: Path, session: zipfile.ZipFile) -> None:
    models = task_of(session)["offline_output_models"]
    assert {model["init"]["name"] for model in models} == {"best", "last"}
    files = {name for name in session.namelist() if name.startswith("models/") and name.endswith(".pth")}
    # ClearML keeps the name of the file, which waits under its iteration.
    assert {Path(name).name for name in files} == {"best-12.pth", "last-12.pth"}
    [best] = folder.glob("best*.pth")
    kept = {Path(name).stem.removesuffix("-12"): session.read(name) for name in files}
    assert kept == {"best": best.read_bytes(), "last": (folder / "last.pth").read_bytes()}
    assert not (folder / ".uploads").exists()


def test_an_archive_has_the_newest_file_of_a_model_and_what_it_shows(tmp_path: Path) -> None:
    writer = ClearMLWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    for iteration in (4, 12):
        path = tmp_path / f"best-{iteration}.pth"
        path.write_bytes(b"%d" % iteration)
        writer.write_model(path, "best.pth", {"iteration": iteration})
    writer.close()
    session = opened(tmp_path)
    assert [name for name in session.namelist() if name.endswith(".pth")] == ["models/best-12.pth"]
    [model] = task_of(session)["offline_output_models"]
    assert model["metadata"] == {"iteration": {"value": "12", "type": "int"}}
    assert {path.name for path in tmp_path.glob("*.pth")} == {"best-4.pth", "best-12.pth"}, "ours stay"


def test_another_rank_leaves_what_the_first_one_still_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("clearml_hook", "tracker_hook"):
        monkeypatch.setattr(f"ignite_hooks.hooks.trackers.{module}.is_main_process", lambda: False)
    (tmp_path / ".uploads").mkdir()
    run = tiny_run()
    attach_hooks(run.trainer, [HOOK], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert (tmp_path / ".uploads").exists()


def test_the_secret_of_the_configuration_is_not_recorded(folder: Path, session: zipfile.ZipFile) -> None:
    assert holding_the_canary(folder) == []
    assert [name for name in session.namelist() if CANARY.encode() in session.read(name)] == []


def test_what_is_in_no_archive_yet_is_in_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds the folder in which ClearML keeps a session until it has ended, as after a kill."""
    ends, go_on, fetch = threading.Event(), threading.Event(), _ClearML._fetch

    def slowly(self: _ClearML, session: Path) -> bool:
        ends.set()
        return go_on.wait(60) and fetch(self, session)

    monkeypatch.setattr(_ClearML, "_fetch", slowly)
    writer = ClearMLWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    for step in (1, 2):
        writer.write_scalar("loss", 1.0, step)
    closing = threading.Thread(target=writer.close)
    closing.start()
    assert ends.wait(60)
    spool = tmp_path / "clearml.spool"
    assert [record.step for record in Spool(spool)] == [1, 2]
    assert list(tmp_path.glob("*.zip")) == []
    kept = spool.read_bytes()
    go_on.set()
    closing.join()
    assert opened(tmp_path)
    assert not spool.exists()
    # So it is if nobody has waited for the end.
    spool.write_bytes(kept)
    [send] = [send for path, send in waiting(tmp_path, {"ClearMLWriter": ClearMLWriter}.get) if path == spool]
    assert send() == "the archive of ClearML beside it has the same"
    assert not spool.exists()


def forks() -> set[psutil.Process]:
    """Return the processes that were forked from this one to run the same program."""
    found, program = set(), psutil.Process().cmdline()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.cmdline() == program:
                found.add(child)
    return found


def test_closing_waits_for_no_process_of_clearml(tmp_path: Path) -> None:
    """The reporting process of ClearML starts with a task and takes 7 to 17 s to end."""
    before = forks()
    writer = ClearMLWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    writer.write_scalar("loss", 1.0, 1)
    delivery = writer._delivery
    assert delivery is not None
    until(lambda: delivery._tracker is not None)
    # A command of ClearML's is a fork too, until it has begun; its process would stay.
    until(lambda: forks() <= before, seconds=30)
    writer.close()


def test_a_task_leaves_random_numbers_alone(tmp_path: Path) -> None:
    """ClearML seeds every generator when a task begins, which is in a thread, at any iteration."""
    before = random.getstate(), torch.get_rng_state(), numpy.random.get_state()[1].tolist()
    writer = ClearMLWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    writer.write_scalar("loss", 1.0, 1)
    writer.close()
    assert opened(tmp_path)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert numpy.random.get_state()[1].tolist() == before[2]
    assert clearml.Task._random_seed == 1337, "a task of the script is seeded as ever"


def test_a_task_that_begins_too_late_is_not_taken_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_begin = writers_clearml.begun_task, threading.Event()

    def late(**options: Any) -> Any:
        may_begin.wait(240)
        return begun(**options)

    monkeypatch.setattr(writers_clearml, "begun_task", late)
    first = ClearMLWriter(mode="offline", work_dir=tmp_path / "first", deadline=0.05)
    first.write_scalar("loss", 1.0, 1)
    first.close()
    second = ClearMLWriter(mode="offline", work_dir=tmp_path / "second", deadline=240.0)
    second.write_scalar("loss", 2.0, 1)
    may_begin.set()
    second.close()
    [event] = events(opened(tmp_path / "second"), "training_stats_scalar")
    assert event["value"] == 2.0
    assert clearml.Task.current_task() is None
    assert len(Spool(tmp_path / "first" / "clearml.spool")) == 1, "nothing is lost: it can be sent"


def test_a_script_task_stays_open_and_duplicates_are_logged(tmp_path: Path) -> None:
    """Run in a separate process: a task of a script captures everything until the process ends."""
    script = f"""
    import logging, sys
    import torch
    from clearml import Task
    from tests.hooks.trackers.tracked import train
    from pathlib import Path

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    Task.set_offline(True)
    Task._report_subprocess_enabled = False
    task = Task.init("mine", "mine", auto_connect_arg_parser=False, auto_resource_monitoring=False)
    task.connect_configuration({{"of_the_script": 3}}, name="config")
    train(Path({str(tmp_path)!r}), {{"type": "ClearMLHook", "task_name": "other", "tags": ["c"]}})
    assert Task.current_task() is task
    print("FOLDER", task.get_offline_mode_folder())
    task.close()
    """
    # ClearML would take the new process for one of this one's workers.
    environment = {name: value for name, value in os.environ.items() if "PROC_MASTER" not in name}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = warm.run(command, also=warm.TRACKERS, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    warned = [line for line in done.stderr.splitlines() if "captures" in line]
    assert len(warned) == 1
    assert "TensorBoard, matplotlib, torch.save by itself" in warned[0]
    [place] = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FOLDER")]
    session = zipfile.ZipFile(f"{place}.zip")
    assert series(session).keys() == as_written(tmp_path).keys()
    configuration = task_of(session)["configuration"]
    assert "of_the_script" in configuration["config"]["value"], "the object of the script is not replaced"
    assert "best_metric" in configuration["ignite_hooks"]["value"]


@pytest.mark.faults
@pytest.mark.parametrize("how", [None, *FAULTS])
def test_without_credentials_or_an_answer_it_works_offline(
    how: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hook = {"type": "ClearMLHook"}
    if how is None:
        train(tmp_path, hook)
        reason = "no credentials are configured (clearml-init)"
    else:
        with faulty(how) as url:
            monkeypatch.setenv("CLEARML_API_HOST", url)
            monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "a")
            monkeypatch.setenv("CLEARML_API_SECRET_KEY", "b")
            train(tmp_path, hook)
        reason = f"{url} does not answer"
    assert [message for message in caplog.messages if "works offline" in message] == [
        f"ClearMLWriter: {reason}, so it works offline, in {tmp_path}; 'ignite-hooks send {tmp_path}' sends it later"
    ]
    assert "log_model is false: nothing can be resumed from the ClearML server" in caplog.messages
    assert series(opened(tmp_path)).keys() == as_written(tmp_path).keys()


def test_a_call_of_exit_before_a_run_takes_nothing_from_it(tmp_path: Path) -> None:
    """ClearML keeps the code of every `sys.exit` after its first task, and then takes the end of a task for a crash."""
    hook = {"type": "ClearMLHook", "mode": "offline"}
    train(tmp_path / "first", hook)
    with pytest.raises(SystemExit):
        sys.exit(2)
    before = set(threading.enumerate())
    train(tmp_path / "second", hook)
    assert [thread for thread in threading.enumerate() if thread not in before] == []
    assert series(opened(tmp_path / "second")).keys() == as_written(tmp_path / "second").keys()


# -- online, against a stand-in that the real SDK talks to over HTTP -------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClearMLServer]:
    with clearml_server() as server:
        for which in ("API", "FILES", "WEB"):
            monkeypatch.setenv(f"CLEARML_{which}_HOST", server.url)
        monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "a")
        monkeypatch.setenv("CLEARML_API_SECRET_KEY", "b")
        yield server


IN_ITS_OWN_PROCESS = """
import json, sys
from pathlib import Path
import torch
from clearml import Task
from ignite_hooks import BaseHook
from ignite_hooks.writers.trackers.clearml_models import fetched
from tests.faults.tools import until
from tests.hooks.trackers.tracked import train
from ignite_hooks.testing import tiny_run

class Looks(BaseHook):
    # Fetches the best model of the first epoch while the second goes on: the loop hears of a save between iterations.
    def after_train_iter(self, runner):
        folder = runner.work_dir
        if runner.global_step == 5:
            listed = folder / "manifest.json"
            until(lambda: listed.exists() and '"best_' in listed.read_text())
            until(lambda: runner.checkpoints.ended == len(runner.checkpoints._pending))
            [self.best] = [path.read_bytes() for path in folder.glob("best*.pth")]
        if runner.global_step == 8:
            until(lambda: (folder / ".clearml.run").exists() and self.is_there(folder))
            print("\\nFETCHED the best model while the run goes on")

    def is_there(self, folder):
        task = Task.get_task(json.loads((folder / ".clearml.run").read_text())["run"])
        task.reload()
        found = fetched(task, "best", folder / "seen")
        return found and found[0].read_bytes() == self.best

hook = {"type": "ClearMLHook", "project": "digits", "task_name": "first", "log_model": True}
weights = Path(sys.argv[1], "given.pth")
torch.save(tiny_run(batches=4).services["model"].state_dict(), weights)
hooks = [{"type": "ReportHook"}, Looks()]
train(Path(sys.argv[1]), hook, hooks=hooks, load_from=weights, class_names=["cat", "dog", "owl"])
"""


FETCHES = """
import sys
import urllib.request
from pathlib import Path
from clearml import Task
from ignite_hooks.writers.trackers.clearml_models import fetched

print()
task = Task.get_task(sys.argv[1])
print(fetched(task, "last", Path(sys.argv[2])))
path, address = fetched(task, "best", Path(sys.argv[2]))
print(path)
# The SDK keeps what it has fetched, and knows it by its address alone.
urllib.request.urlopen(urllib.request.Request(address, data=b"another", method="PUT"))
print(fetched(task, "best", Path(sys.argv[2], "again"))[0].read_bytes())
"""


def told(server: ClearMLServer) -> Series:
    found: Series = {}
    for event in server.events:
        if event["type"] == "training_stats_scalar" and event["metric"] != SINGLE:
            name = clearml_name(event["metric"], event["variant"])
            found.setdefault(name, []).append((event["iter"], pytest.approx(event["value"])))
    return {name: sorted(rows, key=lambda row: row[0]) for name, rows in found.items()}


def in_a_process(*command: str, code: int = 0, run: Callable[..., Any] | None = None) -> str:
    """Return its output; ClearML reads its settings once per process, and offline stays offline."""
    mine = ("PROC_MASTER", "OFFLINE_MODE")
    environment = {name: value for name, value in os.environ.items() if not any(word in name for word in mine)}
    started = [sys.executable, "-W", "ignore", *command]
    run = run or partial(warm.run, also=warm.TRACKERS)
    done = run(started, capture_output=True, text=True, check=False, timeout=250, env=environment)
    assert done.returncode == code, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


@pytest.mark.slow
def test_online_everything_reaches_the_server_and_nothing_twice(server: ClearMLServer, tmp_path: Path) -> None:
    said = in_a_process("-c", IN_ITS_OWN_PROCESS, str(tmp_path))
    assert "FETCHED the best model while the run goes on" in said
    assert f"ClearML: {server.url}/projects/" in said
    written = as_written(tmp_path)
    assert told(server) == written
    [task] = server.tasks.values()
    assert task["status"] == "completed"
    assert "ClearMLHook" in str(task["configuration"])
    assert CANARY.encode() not in server.received
    artifacts = {one["key"]: one for one in task["execution"]["artifacts"]}
    assert artifacts.keys() == {"plan", "summary", "report", "metrics", "result"}
    page = server.uploads[artifacts["report"]["uri"].removeprefix(server.url)]
    assert page.startswith(b"<!doctype html>")
    # A short run has ended before the server has answered: its page is written again for the link.
    assert f'This run in clearml: <a href="{server.url}/projects/' in (tmp_path / "report.html").read_text()
    assert "after_val_epoch" in artifacts["plan"]["type_data"]["preview"]
    assert "iterations: 12" in artifacts["summary"]["type_data"]["preview"]
    console = "".join(event["msg"] for event in server.events if event["type"] == "log")
    assert "INFO     run ended after 3 epochs, 12 iterations" in console
    [best] = tmp_path.glob("best*.pth")
    files = {"best": best.read_bytes(), "last": (tmp_path / "last.pth").read_bytes()}
    models = {model["name"]: model for model in server.models.values()}
    paths = {name: models[name]["uri"].removeprefix(server.url) for name in files}
    uploaded = {name: server.uploads[path] for name, path in paths.items()}
    assert uploaded == files
    assert models["best"]["tags"] == ["best"]
    assert models["best"]["framework"] == "PyTorch"
    assert models["best"]["labels"] == {"cat": 0, "dog": 1, "owl": 2}
    assert "ClearMLHook" in str(models["best"]["design"])
    assert models["best"]["metadata"]["file"]["value"] == best.name
    assert {"val_accuracy", "iteration", "checksum", "run"} <= models["best"]["metadata"].keys()
    outputs = {one["name"]: one["model"] for one in task["models"]["output"]}
    assert outputs == {name: models[name]["id"] for name in ("best", "last")}
    assert input_models(server, task) == {"load_from": (tmp_path / "given.pth").as_uri()}
    # So a task ends that is killed before its upload.
    models["last"]["uri"] = f"{server.url}/uploading_file"
    *_, last, fetched, again = in_a_process("-c", FETCHES, task["id"], str(tmp_path / "fetched")).splitlines()
    assert last == "None"
    assert Path(fetched).read_bytes() == best.read_bytes()
    assert again == "b'another'"
    pictures = [(e["metric"], e["variant"], e["iter"]) for e in server.events if e["type"] == "training_debug_image"]
    assert sorted(pictures) == [("predictions", "cat", 4), ("predictions", "cat", 12)]
    assert list(tmp_path.glob("*.spool")) == []


def input_models(server: ClearMLServer, task: dict[str, Any]) -> dict[str, str]:
    """Return the addresses of the files that a task began from."""
    return {one["name"]: server.models[one["model"]]["uri"] for one in task["models"]["input"]}


IN_TWO_LIVES = """
import sys
from pathlib import Path
import torch
from tests.hooks.trackers.tracked import train

hook = {"type": "ClearMLHook", "project": "digits", "on_resume": sys.argv[2]}
if sys.argv[3] == "first":
    train(Path(sys.argv[1]), hook, fail=True)
elif sys.argv[3] == "later":
    from ignite_hooks.run.late_test import LateTest
    from ignite_hooks.writers.trackers.clearml import ClearMLWriter as Writer

    writer = Writer(work_dir=sys.argv[1], deadline=240.0)
    assert writer.go_on("finished", 1.8e9)
    LateTest("test", "best.pth", "raw", True, 16, {"accuracy": 0.25}).write(writer)
    writer.close()
else:
    train(Path(sys.argv[1]), hook, epochs=4, resume="epoch_2.pth")
"""


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(
    "on_resume", ["same", pytest.param("new", marks=pytest.mark.skipif(not LONG, reason="a minute: make faults"))]
)
def test_a_resumed_run_goes_on_in_its_task_without_a_step_twice(
    on_resume: str, server: ClearMLServer, tmp_path: Path
) -> None:
    in_a_process("-c", IN_TWO_LIVES, str(tmp_path), on_resume, "first")
    (first,) = server.tasks
    assert server.tasks[first]["status"] == "failed"
    reached = max(number for _, number, *_ in server.sent)
    in_a_process("-c", IN_TWO_LIVES, str(tmp_path), on_resume, "second")
    assert server.tasks[[*server.tasks][-1]]["status"] == "completed"
    later = [key for key in server.sent if key[1] > reached]
    assert {key[1] for key in later} >= {14, 16}
    if on_resume == "new":
        assert len(server.tasks) == 2
        assert {key[0] for key in later} == {[*server.tasks][1]}
        return
    assert [*server.tasks] == [first], "the same task"
    assert input_models(server, server.tasks[first]) == {"resumed from": (tmp_path / "epoch_2.pth").as_uri()}
    assert told(server) == as_written(tmp_path), "every step, where it was"
    assert [key for key, times in server.sent.items() if times > 1 and key[2] != SINGLE] == []
    in_a_process("-c", IN_TWO_LIVES, str(tmp_path), on_resume, "later")
    assert [*server.tasks] == [first]
    assert server.tasks[first]["status"] == "completed"
    assert told(server)["test@best-raw/accuracy"] == [(16, 0.25)], "a test after the end is in the same task"


STOPPED = """
import os, signal, sys
from pathlib import Path
import torch
from clearml import Task
from ignite.engine import Events
from ignite_hooks import BaseHook
from tests.hooks.trackers.tracked import train

class Stops(BaseHook):
    def after_train_iter(self, runner):
        if runner.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

made = {"auto_connect_arg_parser": False, "auto_resource_monitoring": False, "auto_connect_streams": False}
task = Task.init("mine", "mine", auto_connect_frameworks=False, **made)
train(Path(sys.argv[1]), {"type": "ClearMLHook"}, hooks=[Stops()])
"""


@pytest.mark.slow
def test_the_task_of_a_script_that_sigterm_ends_is_stopped(server: ClearMLServer, tmp_path: Path) -> None:
    in_a_process("-c", STOPPED, str(tmp_path), code=143, run=subprocess.run)
    assert [task["status"] for task in server.tasks.values()] == ["stopped"]


ABORTED = """
import sys
from pathlib import Path
import torch
from tests.hooks.trackers.tracked import train

train(Path(sys.argv[1]), {"type": "ClearMLHook", "log_model": True, "interval": 1000}, epochs=100_000)
"""
ASKS_OFTEN = "sdk { development { worker { report_period_sec: 1, ping_period_sec: 1 } } }"
TELLS_THE_SCRIPT = """
import sys
import threading
from pathlib import Path
import torch
from clearml import Task
from ignite_hooks.store import FolderStore
from tests.hooks.trackers.tracked import train

folder = Path(sys.argv[1])

def hear():
    kept = [entry for entry in FolderStore(folder).entries() if entry.name == "last.pth"]
    print("\\nTHE SCRIPT HEARS OF IT AFTER ITERATION", kept[0].iteration, flush=True)

made = {"auto_connect_arg_parser": False, "auto_resource_monitoring": False, "auto_connect_streams": False}
task = Task.init("mine", "mine", auto_connect_frameworks=False, **made)
task.register_abort_callback(hear, 30)
train(folder, {"type": "ClearMLHook", "interval": 1000, "abort_timeout": 200}, epochs=100_000)
if STAYS:
    threading.Event().wait(240)  # the SDK ends the process
"""


@pytest.mark.slow
@pytest.mark.parametrize("stays", [False, True])
def test_the_script_hears_of_an_abort_when_everything_is_saved(
    stays: bool, server: ClearMLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clearml.conf").write_text(ASKS_OFTEN)
    monkeypatch.setenv("CLEARML_CONFIG_FILE", str(tmp_path / "clearml.conf"))
    asked = "_abort_callback_timeout"

    def abort() -> None:
        # Before that, the script alone would hear of it.
        until(lambda: [task["runtime"].get(asked) for task in [*server.tasks.values()]] == [200.0], seconds=240)
        server.abort(next(iter(server.tasks)))

    aborting = threading.Thread(target=abort)
    aborting.start()
    said = in_a_process(
        "-c", TELLS_THE_SCRIPT.replace("STAYS", str(stays)), str(tmp_path / "run"), code=-signal.SIGKILL if stays else 0
    )
    aborting.join()
    assert "the task is aborted in ClearML" in said
    assert said.count("THE SCRIPT HEARS OF IT AFTER ITERATION") == 1
    assert [task["status"] for task in server.tasks.values()] == ["stopped"]


@pytest.mark.faults
@pytest.mark.skipif(not LONG, reason="half a minute: make faults")
def test_models_of_a_task_that_was_aborted_by_hand_are_sent_later(
    server: ClearMLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes none while the task is stopped; sending reopens it for them."""
    (tmp_path / "clearml.conf").write_text(ASKS_OFTEN)
    monkeypatch.setenv("CLEARML_CONFIG_FILE", str(tmp_path / "clearml.conf"))
    folder = tmp_path / "run"

    def abort() -> None:
        def runs() -> bool:
            tasks = list(server.tasks.values())
            return bool(tasks and tasks[0]["runtime"].get("_abort_callback_timeout"))

        until(runs, seconds=240)
        server.abort(next(iter(server.tasks)))

    aborting = threading.Thread(target=abort)
    aborting.start()
    said = in_a_process("-c", ABORTED, str(folder))
    aborting.join()
    [task] = server.tasks.values()
    assert task["status"] == "stopped"
    assert "was aborted, so its models wait" in said
    before = len(server.calls)
    assert "sent to ClearML" in in_a_process("-m", "ignite_hooks", "send", str(folder))
    assert [*server.tasks] == [task["id"]]
    assert task["status"] == "stopped", "as it had ended"
    assert "tasks.completed" not in {call for call, _ in server.calls[before:]}
    [last] = (server.models[one["model"]] for one in task["models"]["output"] if one["name"] == "last")
    assert server.uploads[last["uri"].removeprefix(server.url)] == (folder / "last.pth").read_bytes()
    assert not (folder / ".uploads").exists()
    assert list(folder.glob("*.spool")) == []


@pytest.mark.slow
def test_offline_records_are_sent_later(server: ClearMLServer, folder: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    later.mkdir()
    [archive] = folder.glob("clearml-offline-*.zip")
    shutil.copy(archive, later)
    # Its files are nowhere else: it was made on another machine.
    with zipfile.ZipFile(archive) as packed:
        task = json.loads(packed.read("task.json"))
    assert not Path(task["offline_folder"]).exists()
    assert "sent to ClearML as task" in in_a_process("-m", "ignite_hooks", "send", str(later))
    assert told(server) == as_written(folder)
    [sent] = server.tasks.values()
    models = {one["name"]: server.models[one["model"]] for one in sent["models"]["output"]}
    [best] = folder.glob("best*.pth")
    uploaded = {name: server.uploads[model["uri"].removeprefix(server.url)] for name, model in models.items()}
    assert uploaded == {"best": best.read_bytes(), "last": (folder / "last.pth").read_bytes()}
    assert models["best"]["metadata"]["val_accuracy"]["value"]
    assert models["last"]["metadata"]["iteration"] == {"key": "iteration", "value": "12", "type": "int"}
    assert [path.suffix for path in later.iterdir()] == [".sent"]
    assert "nothing waits to be sent" in in_a_process("-m", "ignite_hooks", "send", str(later))


def test_results_are_plots_and_tables_of_clearml(tmp_path: Path) -> None:
    writer = ClearMLWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    write_all(writer)
    writer.close()
    plots = {event["variant"]: json.loads(event["plot_str"]) for event in events(opened(tmp_path), "plot")}
    assert plots["confusion"]["data"][0]["z"] == [[3, 1], [0, 2]]
    assert plots["confusion"]["data"][0]["x"] == ["cat", "dog"]
    assert plots["iou"]["data"][0]["y"] == [0.5, 0.0]
    assert plots["cat"]["data"][0]["y"] == [1.0, 0.5]
    assert plots["worst"]["data"][0]["cells"]["values"] == [["(picture)", "a text"], ["0.5", "0.25"]]


def test_sounds_and_videos_are_samples_of_clearml(tmp_path: Path) -> None:
    writer = ClearMLWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    write_media(writer)
    writer.close()
    found = {(event["metric"], event["variant"]): event for event in events(opened(tmp_path), "training_debug_image")}
    assert found.keys() == {("val", "tone"), ("val", "film")}
    session = opened(tmp_path)
    kept = {Path(name).suffix: session.read(name)[:4] for name in session.namelist() if name.endswith((".wav", ".gif"))}
    assert kept == {".wav": b"RIFF", ".gif": b"GIF8"}


@pytest.mark.slow
@pytest.mark.faults
def test_a_test_of_an_offline_run_is_sent_with_the_run_and_into_it(server: ClearMLServer, tmp_path: Path) -> None:
    script = later_test_script("ClearMLHook", "clearml.ClearMLWriter")
    in_a_process("-c", script, str(tmp_path), "train")
    in_a_process("-c", script, str(tmp_path), "before")
    assert len([*tmp_path.glob("clearml-offline-*.zip")]) == 1, "no second task beside it"
    assert not server.tasks
    said = in_a_process("-m", "ignite_hooks", "send", str(tmp_path))
    assert said.index("sent to ClearML as task") < said.index("sent to ClearML\n")
    in_a_process("-c", script, str(tmp_path), "after")
    [task] = server.tasks.values()
    assert task["status"] == "completed"
    found = told(server)
    assert found["test@best-before/accuracy"] == found["test@best-after/accuracy"] == [(16, 0.25)]
    assert as_written(tmp_path).items() <= found.items()
    assert "nothing waits to be sent" in in_a_process("-m", "ignite_hooks", "send", str(tmp_path))
