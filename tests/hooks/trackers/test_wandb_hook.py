"""The file that W&B writes offline, read with the messages of W&B."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook
from ignite_hooks.run.runner import Runner
from ignite_hooks.writers.trackers.wandb import WandbWriter
from tests import warm
from tests.faults.tools import LONG
from tests.hooks.trackers.tracked import (
    PICTURE,
    Series,
    as_written,
    holding_the_canary,
    later_test_script,
    size_of,
    train,
)
from tests.tools import trackers_at
from tests.writers.results import write_all, write_media
from tests.writers.trackers.servers import FAULTS, faulty
from tests.writers.trackers.wandb_server import wandb_server

wandb: Any = pytest.importorskip("wandb")
CONFIG = {"batch": 8, "act": object()}
HOOK = {"type": "WandbHook", "project": "digits", "name": "first", "config": CONFIG, "log_model": True}
BLOCK, FILE_HEAD, HEAD = 32768, 7, 7


@pytest.fixture(scope="module", autouse=True)
def _trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with trackers_at(tmp_path_factory.mktemp("trackers")):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wandb")
    train(folder, {**HOOK, "log_histograms": True, "histogram_interval": 4})
    return folder


def records(folder: Path) -> list[Any]:
    """Return the records of the only offline run in a folder, once the process of W&B has written all of them."""
    until = time.monotonic() + 120
    while True:
        found = records_so_far(folder)
        if any(record.HasField("exit") for record in found):
            return found
        assert time.monotonic() < until, "no end of the run is in the file"
        signal.sigtimedwait([], 0.05)


def records_so_far(folder: Path) -> list[Any]:
    """Return the records of a file of 32 KiB blocks, among which a record may be split."""
    from wandb.proto.wandb_internal_pb2 import Record

    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, whole, found = path.read_bytes(), FILE_HEAD, b"", []
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (1, 4):  # a whole one, or the last part of one
            found.append(Record.FromString(whole))
            whole = b""
    return found


def history(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for record in records(folder):
        row: dict[str, Any] = {}
        for item in record.history.item:
            *above, last = item.nested_key or [item.key]
            inner = row
            for key in above:
                inner = inner.setdefault(key, {})
            inner[last] = json.loads(item.value_json)
        rows += [row] if row else []
    return rows


def artifacts(folder: Path) -> list[Any]:
    found = records(folder)
    requests = [record.request.log_artifact.artifact for record in found if record.HasField("request")]
    return [a for a in requests if a.name] + [record.artifact for record in found if record.HasField("artifact")]


def series(folder: Path) -> Series:
    found: Series = {}
    for row in history(folder):
        for name, value in row.items():
            if not name.startswith("_") and isinstance(value, (int, float)):
                found.setdefault(name, []).append((row["_step"], value))
    return found


def test_names_steps_and_values_match_metrics_jsonl(folder: Path) -> None:
    assert series(folder) == as_written(folder)


def test_pictures_and_histograms_are_recorded(folder: Path) -> None:
    rows = history(folder)
    pictures = {row["_step"]: row["predictions/cat"] for row in rows if "predictions/cat" in row}
    assert list(pictures) == [4, 12]
    files = folder.glob("wandb/offline-run-*/files")
    [files] = files
    for picture in pictures.values():
        assert size_of(files / picture["path"]) == PICTURE.shape[1::-1]
    weights = [row["weights/weight"] for row in rows if "weights/weight" in row]
    assert [sum(histogram["values"]) for histogram in weights] == [12, 12, 12]


def test_configuration_name_and_end_are_recorded(folder: Path) -> None:
    everything = records(folder)
    [run] = [record.run for record in everything if record.HasField("run")]
    assert (run.project, run.display_name) == ("digits", "first")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    for record in everything:
        if record.HasField("config"):
            config |= {item.key: json.loads(item.value_json) for item in record.config.update}
    assert config["batch"] == 8
    assert config["act"].startswith("<object")
    assert config["tracker"] == {"api_key": "***"}
    assert config["default_hooks"]["checkpoint"]["best_metric"] == "accuracy"
    assert [record.exit.exit_code for record in everything if record.HasField("exit")] == [0]


def test_the_table_of_runs_has_the_best_values(folder: Path) -> None:
    updates = [item for record in records(folder) if record.HasField("summary") for item in record.summary.update]
    found = {"/".join(item.nested_key) or item.key: item.value_json for item in updates}
    best = max(value for _, value in as_written(folder)["val/accuracy"])
    assert json.loads(found["best/accuracy"]) == pytest.approx(best)


def test_the_code_of_the_folder_is_recorded_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    writer = WandbWriter(log_code=True, mode="offline", work_dir=tmp_path / "run", deadline=240.0)
    writer.write_scalar("loss", 1.0, 1)
    writer.close()
    [code] = [artifact for artifact in artifacts(tmp_path / "run") if artifact.type == "code"]
    assert "mine.py" in [Path(entry.path).name for entry in code.manifest.contents]


def test_checkpoints_are_artifacts(folder: Path) -> None:
    found = artifacts(folder)
    files = sorted(entry.path for artifact in found for entry in artifact.manifest.contents)
    kept = sorted(path.name for path in folder.glob("*.pth") if not path.name.startswith("epoch"))
    assert {artifact.type for artifact in found} == {"model"}
    assert len({artifact.name for artifact in found}) == 1, "versions of one model"
    aliases = {artifact.manifest.contents[0].path[:4]: sorted(artifact.aliases) for artifact in found}
    assert aliases == {"best": ["best", "latest"], "last": ["last", "latest"]}
    assert files == kept


def test_the_secret_of_the_configuration_is_not_recorded(folder: Path) -> None:
    assert holding_the_canary(folder) == []


def test_a_run_that_fails_ends_with_another_code(tmp_path: Path) -> None:
    train(tmp_path, {"type": "WandbHook"}, fail=True)
    assert [record.exit.exit_code for record in records(tmp_path) if record.HasField("exit")] == [1]


def test_a_run_of_the_script_is_used_and_stays_open(tmp_path: Path) -> None:
    run = wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True, console="off"))
    train(tmp_path, {"type": "WandbHook", "config": {"batch": 8}})
    assert wandb.run is run
    assert run.config["batch"] == 8
    run.finish()
    assert series(tmp_path) == as_written(tmp_path)


@pytest.mark.faults
@pytest.mark.parametrize("how", [None, *FAULTS])
def test_without_a_key_or_an_answer_it_works_offline(
    how: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    if how is None:
        train(tmp_path, {"type": "WandbHook"})
        reason = "no key is configured (wandb login)"
    else:
        with faulty(how) as url:
            monkeypatch.setenv("WANDB_BASE_URL", url)
            monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
            train(tmp_path, {"type": "WandbHook"})
        reason = f"{url} does not answer"
    where = f"in {tmp_path}/wandb; 'ignite-hooks send {tmp_path}' sends it later"
    said = [message for message in caplog.messages if "works offline" in message]
    assert said == [f"WandbWriter: {reason}, so it works offline, {where}"]
    assert series(tmp_path) == as_written(tmp_path)


def test_records_of_earlier_steps_are_kept(tmp_path: Path) -> None:
    """W&B drops records that come after a later step, such as pictures drawn by a thread."""
    writer = WandbWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    writer.write_scalars({"loss": 1.0}, 6)
    writer.write_image("cat", PICTURE, 4)
    writer.write_scalars({"memory": 2.0}, 5, kind="system")
    writer.write_scalars({"loss": 0.5}, 8)
    writer.close()
    assert series(tmp_path) == {"loss": [(6, 1.0), (8, 0.5)], "memory": [(6, 2.0)]}
    [picture] = [row["cat"] for row in history(tmp_path) if "cat" in row]
    assert picture["caption"] == "iteration 4"


def test_nothing_is_lost_if_the_script_logs_too(tmp_path: Path) -> None:
    """Every `log` of the script without a step is one more step for W&B, which may be ahead of the iterations."""
    run = wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True, console="off"))
    for _ in range(20):
        run.log({"own": 1.0})
    train(tmp_path, {"type": "WandbHook"})
    run.finish()
    written = as_written(tmp_path)
    found = series(tmp_path)
    assert found.keys() - {"own", "iteration"} == written.keys()
    assert [value for _, value in found["loss"]] == [value for _, value in written["loss"]]
    rows = [row for row in history(tmp_path) if "loss" in row]
    assert [row["iteration"] for row in rows] == [step for step, _ in written["loss"]]


ONLINE = """
import sys
import ignite_hooks.writers.trackers.wandb as module

module.FINISH = 2.0
writer = module.WandbWriter("digits", mode="online", work_dir=sys.argv[1])
for step in range(1, 11):
    writer.write_scalars({"loss": step / 2}, step)
    if step == 5:
        sys.stdin.readline()
writer.close()
"""


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fails", [False, True])
def test_undelivered_records_are_sent_later(tmp_path: Path, fails: bool) -> None:
    def send() -> str:
        command = [sys.executable, "-m", "ignite_hooks", "send", str(tmp_path)]
        where = {"cwd": elsewhere, "env": environment}
        return warm.run(command, also=warm.TRACKERS, **where, capture_output=True, text=True, check=True).stdout

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with wandb_server() as server:
        environment = {**os.environ, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40, "WANDB_MODE": "online"}
        command = [sys.executable, "-W", "ignore", "-c", ONLINE, str(tmp_path)]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        with warm.Popen(command, also=warm.TRACKERS, env=environment, text=True, **pipes) as process:
            assert server.begun.wait(60)
            server.down = fails
            _, said = process.communicate("\n", timeout=120)
        assert process.returncode == 0, said
        assert ("the end of the run has not arrived at W&B and lies in" in said) == fails
        server.down = False
        if fails:
            assert server.rows.keys() < set(range(1, 11))
            assert send().endswith(".wandb: sent to W&B\n")
        assert {step: row["loss"] for step, row in server.rows.items()} == {step: step / 2 for step in range(1, 11)}
        assert "nothing waits to be sent" in send()
        assert list(elsewhere.iterdir()) == []


IN_TWO_LIVES = """
import sys
from pathlib import Path
import torch
from tests.hooks.trackers.tracked import train

hook = {"type": "WandbHook", "on_resume": sys.argv[2], "mode": "online"}
if sys.argv[3] == "first":
    train(Path(sys.argv[1]), hook, fail=True)
elif sys.argv[3] == "later":
    from ignite_hooks.run.late_test import LateTest
    from ignite_hooks.writers.trackers.wandb import WandbWriter as Writer

    writer = Writer(mode="online", work_dir=sys.argv[1], deadline=240.0)
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
def test_a_resumed_run_goes_on_in_its_run_without_a_step_twice(on_resume: str, tmp_path: Path) -> None:
    with wandb_server() as server:
        environment = {**os.environ, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40, "WANDB_MODE": "online"}
        for life in ("first", "second", *(["later"] if on_resume == "same" else [])):
            command = [sys.executable, "-W", "ignore", "-c", IN_TWO_LIVES, str(tmp_path), on_resume, life]
            done = warm.run(command, also=warm.TRACKERS, env=environment, capture_output=True, text=True, timeout=250)
            assert done.returncode == 0, done.stderr[-3000:]
    runs = {name: rows for name, rows in server.runs.items() if rows}
    if on_resume == "new":
        assert len(runs) == 2
        return
    (rows,) = runs.values()
    steps = [row["_step"] for row in rows]
    assert steps == sorted(set(steps)), "no step twice, none shifted"
    found: Series = {}
    for row in rows:
        for name, value in row.items():
            if name in as_written(tmp_path):
                found.setdefault(name, []).append((row["_step"], value))
    assert found == as_written(tmp_path)
    assert rows[-1]["test@best-raw/accuracy"] == 0.25, "a test after the end is in the same run"


class Stops(BaseHook):
    """Stops the run in its second epoch."""

    def before_epoch(self, runner: Runner, epoch: int) -> None:
        if epoch == 1:
            runner.stop("enough")


def test_a_stopped_run_says_so_in_its_summary(tmp_path: Path) -> None:
    train(tmp_path, {"type": "WandbHook"}, hooks=[Stops()])
    said = records(tmp_path)
    updates = [item for record in said if record.HasField("summary") for item in record.summary.update]
    assert [item.value_json for item in updates if item.key == "stopped" or list(item.nested_key) == ["stopped"]] == [
        "true"
    ]
    assert [record.exit.exit_code for record in said if record.HasField("exit")] == [0]


ASKED = """
import asyncio, json, sys, threading
from pathlib import Path
from wandb.sdk.lib import run_stopping
from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.testing import tiny_run

run_stopping._SLEEP = lambda seconds: asyncio.sleep(0.05)  # W&B asks every 15 s
class Waits(BaseHook):
    def after_train_iter(self, runner):
        if runner.global_step == 3:
            print("running", flush=True)
            nobody = threading.Event()
            while not runner.stop_reason:
                nobody.wait(0.05)

run = tiny_run(batches=4)
wandb = {"type": "WandbHook", "mode": "online", "interval": 1}
hooks = [Waits(), wandb, {"type": "CheckpointHook", "save_best": False}]
attach_hooks(run.trainer, hooks, work_dir=sys.argv[1], **run.services)
run.trainer.run(run.data, max_epochs=3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "kind"), [("", ""), ("s1", "pruned")])
def test_a_run_that_is_stopped_in_wandb_is_saved_and_closed(tmp_path: Path, sweep: str, kind: str) -> None:
    with wandb_server() as server:
        environment = {**os.environ, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40, "WANDB_MODE": "online"}
        # It hears of it with the answers to what it sends.
        environment |= {"WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "0.2"}
        environment |= {"WANDB_SWEEP_ID": sweep} if sweep else {}
        command = [sys.executable, "-W", "ignore", "-c", ASKED, str(tmp_path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with warm.Popen(command, also=warm.TRACKERS, env=environment, text=True, **pipes) as process:
            assert process.stdout is not None
            begun = process.stdout.readline()
            server.stopped = True
            _, said = process.communicate(timeout=120)
    assert begun == "running\n", said
    assert process.returncode == 0, said
    found = json.loads((tmp_path / "result.json").read_text())
    assert [found[name] for name in ("state", "kind", "reason")] == ["stopped", kind, "stopped in W&B"], said
    assert (tmp_path / "last.pth").exists()
    assert not list(tmp_path.glob("exception*"))


@pytest.mark.slow
def test_results_are_charts_and_tables_of_wandb(tmp_path: Path) -> None:
    writer = WandbWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    write_all(writer)
    writer.write_table("texts", ["text"], [["a text"], [0.25]], 4)
    writer.close()
    [folder] = tmp_path.glob("wandb/offline-run-*/files")
    records(tmp_path)
    found = {path.name.rpartition("_")[0].rpartition("_")[0]: path.read_text() for path in folder.rglob("*.table.json")}
    assert sorted(found) == ["confusion_table", "iou_table", "pr_table", "texts", "worst"]
    assert '["cat","dog",1]' in found["confusion_table"]
    assert '["cat",0.5]' in found["iou_table"]
    assert '["a text"],["0.25"]' in found["texts"]
    # The pictures are in the artifact of the table; its preview names them.
    assert '"Image"' in found["worst"]


@pytest.mark.slow
def test_sounds_and_videos_are_media_of_wandb(tmp_path: Path) -> None:
    writer = WandbWriter(mode="offline", work_dir=tmp_path, deadline=240.0)
    write_media(writer)
    writer.close()
    [folder] = tmp_path.glob("wandb/offline-run-*/files/media")
    # W&B adds a step of its own and a checksum to the names.
    named = {str(path.relative_to(folder)).rsplit("_", 2)[0]: path for path in folder.rglob("*.*")}
    kept = {name: path.read_bytes()[:4] for name, path in named.items()}
    assert kept == {"audio/val/tone": b"RIFF", "videos/val/film": b"GIF8"}
    items = [item for record in records(tmp_path) if record.HasField("history") for item in record.history.item]
    types = {item.nested_key[0]: json.loads(item.value_json) for item in items if item.nested_key[-1:] == ["_type"]}
    assert types == {"val/tone": "audio-file", "val/film": "video-file"}


@pytest.mark.slow
@pytest.mark.faults
def test_a_test_of_an_offline_run_is_sent_with_the_run_and_into_it(tmp_path: Path) -> None:
    def life(*command: str) -> str:
        started = [sys.executable, "-W", "ignore", *command]
        done = warm.run(started, also=warm.TRACKERS, env=environment, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr[-3000:]
        return str(done.stdout + done.stderr)

    environment = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    environment |= {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    script = later_test_script("WandbHook", "wandb.WandbWriter")
    life("-c", script, str(tmp_path), "train")
    life("-c", script, str(tmp_path), "before")
    assert len([*tmp_path.glob("wandb/offline-run-*")]) == 1, "no second run beside it"
    with wandb_server() as server:
        environment["WANDB_BASE_URL"] = server.url
        life("-m", "ignite_hooks", "send", str(tmp_path))
        life("-c", script, str(tmp_path), "after")
    runs = {name: rows for name, rows in server.runs.items() if rows}
    assert len(runs) == 1
    found = {name: value for rows in runs.values() for row in rows for name, value in row.items()}
    assert found["test@best-before/accuracy"] == found["test@best-after/accuracy"] == 0.25
    assert as_written(tmp_path).keys() <= found.keys()
    assert "nothing waits to be sent" in life("-m", "ignite_hooks", "send", str(tmp_path))
