"""Runs as the client of MLflow reads them, from a database in the work directory and from a real server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook
from ignite_hooks.cli.app import main
from ignite_hooks.results.outcome import StopKind
from ignite_hooks.run.late_test import LateTest
from ignite_hooks.run.runner import Runner
from ignite_hooks.writers.trackers.mlflow import MLflowWriter
from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from tests.faults.tools import until
from tests.hooks.trackers.tracked import PICTURE, as_written, holding_the_canary, size_of, train
from tests.tools import trackers_at
from tests.writers.results import every_kind, write_all, write_media
from tests.writers.trackers.servers import FAULTS, faulty, unreachable

HOOK = {"type": "MLflowHook", "experiment": "digits", "run_name": "first", "log_model": True}
mlflow: Any = pytest.importorskip("mlflow")


@pytest.fixture(scope="module", autouse=True)
def _trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with trackers_at(tmp_path_factory.mktemp("trackers")):
        # The first time this makes the tables, hundreds of times of waiting for the disk: no run is to wait for that.
        mlflow.MlflowClient(os.environ["MLFLOW_TRACKING_URI"]).get_experiment_by_name("digits")
        yield


def runs_at(uri: str, experiment: str = "digits") -> list[Any]:
    """Return the runs of an experiment, the newest first."""
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return [] if found is None else list(client.search_runs([found.experiment_id]))


def assert_all_is_there(uri: str, folder: Path, elsewhere: Path) -> None:
    """Check names, steps, values, pictures, configuration and checkpoints."""
    client = mlflow.MlflowClient(uri)
    [run] = runs_at(uri)
    run_id = run.info.run_id
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    written = as_written(folder)
    assert run.data.metrics.keys() == written.keys()
    for name, rows in written.items():
        history = client.get_metric_history(run_id, name)
        assert sorted((metric.step, metric.value) for metric in history) == rows
    times = [one.timestamp for name in written for one in client.get_metric_history(run_id, name)]
    assert run.info.start_time <= min(times), "also where it was sent later"
    assert run.info.end_time >= max(times)
    assert run.data.params["custom_hooks.0.type"] == "MLflowHook"
    assert run.data.params["tracker.api_key"] == "***"
    got = Path(client.download_artifacts(run_id, "", str(elsewhere)))
    config = json.loads((got / "config.json").read_text())
    assert config["default_hooks"]["checkpoint"]["best_metric"] == "accuracy"
    assert [size_of(path) for path in (got / "images").glob("*.png")] == [PICTURE.shape[1::-1]] * 2
    assert "after_train_iter" in (got / "texts" / "plan_0.txt").read_text()
    assert_models_are_there(uri, run, folder, elsewhere)
    assert holding_the_canary(got) == []


def assert_models_are_there(uri: str, run: Any, folder: Path, elsewhere: Path) -> None:
    """Check the files, steps and metrics of the best and the last checkpoint, each a model once."""
    client = mlflow.MlflowClient(uri)
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    best = next(path for path in folder.glob("best_accuracy_*.pth"))
    files = {"best": best, "last": folder / "last.pth"}
    assert sorted(model.name for model in models) == ["best", "last"]
    assert {output.model_id for output in run.outputs.model_outputs} == {model.model_id for model in models}
    entries = {entry["name"]: entry for entry in json.loads((folder / "manifest.json").read_text())["entries"]}
    for model in models:
        file, step = files[model.name], entries[files[model.name].name]["iteration"]
        assert (str(model.status), model.tags["iteration"], model.tags["file"]) == ("READY", str(step), file.name)
        place = str(elsewhere / model.name)
        got = Path(mlflow.artifacts.download_artifacts(model.artifact_location, dst_path=place, tracking_uri=uri))
        assert {path.name: path.read_bytes() for path in got.iterdir()} == {file.name: file.read_bytes()}
        written = {(m.key, m.step, m.value) for m in model.metrics}
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        assert written == {(m.key, m.step, m.value) for rows in history.values() for m in rows if m.step == step}
        assert any(name == "val/accuracy" for name, _, _ in written)


def test_everything_is_in_the_database(tmp_path: Path) -> None:
    uri = os.environ["MLFLOW_TRACKING_URI"]
    folder = tmp_path / "run"
    train(folder, HOOK)
    assert_all_is_there(uri, folder, tmp_path)
    assert holding_the_canary(folder) == []


def test_a_run_lasts_from_its_first_record_to_its_last(tmp_path: Path) -> None:
    times = iter((1000.0, 1030.0, 1060.5))
    writer = MLflowWriter(experiment="times", work_dir=tmp_path, deadline=240.0)
    writer.clock = lambda: next(times)
    for step in (1, 2, 3):
        writer.write_scalar("loss", 1.0, step)
    writer.close()
    [run] = runs_at(os.environ["MLFLOW_TRACKING_URI"], "times")
    assert (run.info.start_time, run.info.end_time) == (1_000_000, 1_060_500)


def test_a_model_has_the_numbers_of_its_own_step_and_is_made_once(tmp_path: Path) -> None:
    uri, file = os.environ["MLFLOW_TRACKING_URI"], tmp_path / "best.pth"
    file.write_bytes(b"weights")
    writer = MLflowWriter(experiment="steps", work_dir=tmp_path, deadline=240.0)
    for step in (1, 2, 3):
        writer.write_scalar("loss", 1 / step, step)
    writer.write_scalar("early", 1.0, 1)
    for _ in range(2):
        details = {"iteration": 2, "epoch": 1, "checksum": "xxh3_128:" + "0" * 32, "file": "best.pth"}
        writer.write_model(file, "best 'val'", details)
    writer.close()
    client, [run] = mlflow.MlflowClient(uri), runs_at(uri, "steps")
    [model] = client.search_logged_models([run.info.experiment_id])
    assert model.name == "best _val_", "MLflow takes no quotes"
    assert [(metric.key, metric.step, metric.value) for metric in model.metrics] == [("loss", 2, 0.5)]
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "loss")] == [1, 2, 3]


def test_mlflow_tells_which_numbers_and_pictures_it_has(tmp_path: Path) -> None:
    writer = MLflowWriter(experiment="told", work_dir=tmp_path, deadline=240.0)
    writer.write_scalars({"loss": 1.0, "f1(macro)": 1.0}, 2, kind="val")
    for step in (1, 2):
        writer.write_image("val/cat (1)", PICTURE, step)
    writer.close()
    again = MLflowWriter(experiment="told", work_dir=tmp_path, deadline=240.0)
    assert again.go_on("finished", 1.8e9)
    there = again.connect().arrived()

    def is_there(what: str, step: int, **content: Any) -> bool:
        return there.missing_of(TrackerRecord(what, step, 0.0, content)) is None

    assert is_there("scalars", 2, **{"val/loss": 1.0, "val/f1(macro)": 1.0})
    assert not is_there("scalars", 3, **{"val/loss": 1.0})
    assert [is_there("image", step, name="val/cat (1)") for step in (1, 2, 3)] == [True, True, False]
    assert not is_there("image", 1, name="val/cat")
    assert not is_there("text", 1, name="plan", text="")


def test_a_run_that_fails_is_shown_as_failed(tmp_path: Path) -> None:
    train(tmp_path, {"type": "MLflowHook", "experiment": "failing"}, fail=True)
    assert [run.info.status for run in runs_at(os.environ["MLFLOW_TRACKING_URI"], "failing")] == ["FAILED"]


class Stops(BaseHook):
    """Stops the run in its second epoch."""

    def __init__(self, kind: StopKind) -> None:
        self.kind: StopKind = kind

    def before_epoch(self, runner: Runner, epoch: int) -> None:
        if epoch == 1:
            runner.stop("enough", kind=self.kind)


@pytest.mark.parametrize(("kind", "status"), [("", "KILLED"), ("pruned", "KILLED"), ("planned", "FINISHED")])
def test_a_run_that_is_stopped_is_shown_as_killed_unless_that_was_planned(
    kind: StopKind, status: str, tmp_path: Path
) -> None:
    train(tmp_path, {"type": "MLflowHook", "experiment": f"stopped {kind}"}, hooks=[Stops(kind)])
    assert [run.info.status for run in runs_at(os.environ["MLFLOW_TRACKING_URI"], f"stopped {kind}")] == [status]


def test_a_resume_is_another_run_where_it_is_asked_for(tmp_path: Path) -> None:
    hook = {"type": "MLflowHook", "experiment": "resumed", "on_resume": "new"}
    train(tmp_path, hook, fail=True)
    train(tmp_path, hook, resume="epoch_2.pth")
    uri = os.environ["MLFLOW_TRACKING_URI"]
    second, first = runs_at(uri, "resumed")
    client = mlflow.MlflowClient(uri)
    steps = [[m.step for m in client.get_metric_history(run.info.run_id, "loss")] for run in (first, second)]
    assert steps == [[2, 4, 6, 8, 10, 12], [10, 12]]


def test_a_run_of_the_script_is_used_and_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # MLflow remembers the experiment in a variable.
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "")
    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
    # Else its files are kept where the first script of this process was started.
    mlflow.create_experiment("of the script", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("of the script")
    with mlflow.start_run() as mine:
        train(tmp_path, {"type": "MLflowHook", "experiment": "another"})
        assert mlflow.active_run().info.run_id == mine.info.run_id
        [run] = runs_at(os.environ["MLFLOW_TRACKING_URI"], "of the script")
        assert run.info.status == "RUNNING"
    assert "loss" in run.data.metrics
    assert runs_at(os.environ["MLFLOW_TRACKING_URI"], "another") == []


@pytest.mark.faults
@pytest.mark.parametrize("how", [*FAULTS, "is not there"])
def test_a_server_with_a_fault_costs_one_log_line(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.ExitStack() as stack:
        url = unreachable() if how == "is not there" else stack.enter_context(faulty(how))
        train(tmp_path, {**HOOK, "tracking_uri": url, "log_model": False})
    waiting: dict[str, list[Any]] = {}
    for record in Spool(tmp_path / "mlflow.spool"):
        for name, value in record.content.items() if record.what == "scalars" else ():
            waiting.setdefault(name, []).append((record.step, value))
    assert waiting == as_written(tmp_path), "every metric is in the spool"
    offline = [message for message in caplog.messages if "so it works offline" in message]
    assert offline == [
        f"MLflowWriter: {url} does not answer, so it works offline, in {tmp_path}; "
        f"'ignite-hooks send {tmp_path}' sends it later"
    ]
    assert holding_the_canary(tmp_path) == []


# -- a real server --------------------------------------------------------------------------------------------------


class Served:
    """The server of MLflow, with SQLite, on a free port; it can be killed and restarted."""

    def __init__(self, folder: Path) -> None:
        for module in ("flask", "flask_cors", "pandas", "aiohttp"):
            pytest.importorskip(module)
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.folder = folder

    def begin(self) -> None:
        """Wait until it answers."""
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        where += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        where += ["--artifacts-destination", f"{self.folder}/artifacts"]
        own = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
        # Where our files are slow, those of the server are not: it makes forty tables before it answers.
        left_out = ("MLFLOW_TRACKING_URI", "SLOW_FILES")
        environment = {name: value for name, value in os.environ.items() if name not in left_out} | own
        with (self.folder / "server.log").open("wb") as log:
            command = [sys.executable, "-m", "mlflow", "server", *where]
            self._server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + 240
        while True:
            with contextlib.suppress(OSError):  # also of one that accepts and is too busy to answer
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return
            assert self._server.poll() is None, (self.folder / "server.log").read_text()[-2000:]
            assert time.monotonic() < until
            signal.sigtimedwait([], 0.2)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Kill all of its processes that are still running."""
        if self._server.poll() is None:
            os.killpg(self._server.pid, number)
            self._server.wait(60)


@pytest.fixture(scope="module")
def server(_trackers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("server") / "server")
    server.begin()
    yield server
    server.end(signal.SIGTERM)


@pytest.mark.slow
def test_everything_reaches_a_real_server_also_later(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.url
    runner = train(tmp_path / "now", {**HOOK, "tracking_uri": url})
    page = runner.writer.pages()["mlflow"]
    assert page.startswith(f"{url}/#/experiments/")
    assert page.endswith(f"/runs/{runs_at(url, str(HOOK['experiment']))[0].info.run_id}")
    assert_all_is_there(url, tmp_path / "now", tmp_path / "got")
    # What was not delivered during the run is delivered later, into a run of the same name.
    train(tmp_path / "later", {**HOOK, "tracking_uri": url, "experiment": "later", "mode": "offline"})
    assert runs_at(url, "later") == []
    assert main(["send", str(tmp_path / "later")]) == 0
    assert "records sent to MLflow" in capsys.readouterr().out
    [run] = runs_at(url, "later")
    assert run.data.metrics.keys() == as_written(tmp_path / "later").keys()
    assert not (tmp_path / "later" / "mlflow.spool").exists()
    assert main(["send", str(tmp_path / "later")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'later'}: nothing waits to be sent\n"
    assert holding_the_canary(tmp_path) == holding_the_canary(server.folder) == []
    assert not [message for message in caplog.messages if "cannot be reached" in message]


@pytest.mark.slow
def test_send_beside_a_run_leaves_its_records_to_it(
    server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Sends(BaseHook):
        """Send what waits, in the middle of the run."""

        def after_epoch(self, epoch: int) -> None:
            if epoch == 1:
                until(lambda: len(Spool(tmp_path / "mlflow.spool")) > 0)
                assert main(["send", str(tmp_path)]) == 3

    train(tmp_path, {**HOOK, "tracking_uri": server.url, "experiment": "beside", "mode": "offline"}, hooks=[Sends()])
    assert "still delivers it: nothing to do" in capsys.readouterr().out
    assert runs_at(server.url, "beside") == []
    assert main(["send", str(tmp_path)]) == 0
    [run] = runs_at(server.url, "beside")
    assert run.data.metrics.keys() == as_written(tmp_path).keys()


@pytest.mark.slow
@pytest.mark.faults
def test_a_server_that_restarts_gets_everything(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Kills(BaseHook):
        """Kill the server once something has arrived and more is to come."""

        def after_epoch(self, epoch: int) -> None:
            if epoch == 1:
                until = time.monotonic() + 60
                while not (runs := runs_at(server.url, "dies")) or "loss" not in runs[0].data.metrics:
                    assert time.monotonic() < until
                server.end()

    train(tmp_path / "run", {**HOOK, "tracking_uri": server.url, "experiment": "dies"}, hooks=[Kills()])
    assert "MLflowWriter cannot be reached, records wait in" in caplog.text
    assert list(Spool(tmp_path / "run" / "mlflow.spool"))
    server.begin()
    assert main(["send", str(tmp_path / "run")]) == 0
    client = mlflow.MlflowClient(server.url)
    [run] = runs_at(server.url, "dies")
    found = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    points = {name: [(metric.step, metric.value) for metric in history] for name, history in found.items()}
    assert points == as_written(tmp_path / "run"), "all of it, in order, nothing twice"


def test_a_resumed_run_goes_on_in_its_run_without_a_step_twice(tmp_path: Path) -> None:
    hook = {"type": "MLflowHook", "experiment": "continued"}
    train(tmp_path, hook, fail=True)
    train(tmp_path, hook, epochs=4, resume="epoch_2.pth")
    uri = os.environ["MLFLOW_TRACKING_URI"]
    (run,) = runs_at(uri, "continued")
    assert run.info.status == "FINISHED"
    for name, rows in as_written(tmp_path).items():
        history = mlflow.MlflowClient(uri).get_metric_history(run.info.run_id, name)
        assert sorted((metric.step, metric.value) for metric in history) == rows, name


def test_a_run_whose_database_is_lost_goes_on_in_another_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where the disk is emptied between two lives and the checkpoints come from a mirror."""
    for name, epochs in (("lost", 3), ("found", 4)):
        hook = {"type": "MLflowHook", "experiment": "lost", "tracking_uri": f"sqlite:///{tmp_path}/{name}.db"}
        more = {"resume": "epoch_2.pth"} if name == "found" else {}
        train(tmp_path / "run", hook, epochs=epochs, fail=name == "lost", **more)
    (run,) = runs_at(hook["tracking_uri"], "lost")
    history = mlflow.MlflowClient(hook["tracking_uri"]).get_metric_history(run.info.run_id, "loss")
    steps = [metric.step for metric in history]
    # A checkpoint may hold numbers that had not been sent when it was saved.
    assert steps == list(range(steps[0], 17, 2))
    assert steps[0] <= 10
    assert caplog.text.count("what comes goes to a new run") == 1
    assert list((tmp_path / "run").glob("*.spool")) == []


def test_a_test_after_the_end_goes_to_the_run_which_stays_ended(tmp_path: Path) -> None:
    hook = {"type": "MLflowHook", "experiment": "tested"}
    train(tmp_path, hook, epochs=1)
    uri = os.environ["MLFLOW_TRACKING_URI"]
    writer = MLflowWriter(experiment="tested", work_dir=tmp_path, deadline=240.0)
    assert writer.go_on("stopped", 1.8e9)
    LateTest("test", "best.pth", "raw", True, 4, {"accuracy": 0.25}).write(writer)
    writer.close()
    (run,) = runs_at(uri, "tested")
    assert run.data.metrics["test_best-raw/accuracy"] == 0.25
    assert (run.info.status, run.info.end_time) == ("KILLED", 1_800_000_000_000)
    assert not MLflowWriter(work_dir=tmp_path / "elsewhere").go_on("finished", 1.8e9)


def test_results_are_files_and_pictures_of_mlflow(tmp_path: Path) -> None:
    writer = MLflowWriter(experiment="results", work_dir=tmp_path, deadline=240.0)
    write_all(writer)
    writer.close()
    client = mlflow.MlflowClient(writer.tracking_uri)
    [run] = runs_at(writer.tracking_uri, "results")
    got = Path(client.download_artifacts(run.info.run_id, "", str(tmp_path)))
    assert json.loads((got / "results/val/confusion_4.json").read_text()) == every_kind()["confusion"]
    table = json.loads((got / "results/val/worst_4.json").read_text())
    assert table == {"columns": ["sample", "loss"], "data": [["(picture)", "0.5"], ["a text", "0.25"]]}
    assert len([*(got / "images").rglob("*.png")]) == 3


def test_sounds_and_videos_are_files_of_mlflow(tmp_path: Path) -> None:
    writer = MLflowWriter(experiment="media", work_dir=tmp_path, deadline=240.0)
    write_media(writer)
    writer.close()
    [run] = runs_at(writer.tracking_uri, "media")
    got = Path(mlflow.MlflowClient(writer.tracking_uri).download_artifacts(run.info.run_id, "", str(tmp_path)))
    assert {path.name: path.read_bytes()[:4] for path in (got / "media/val").iterdir()} == {
        "tone_4.wav": b"RIFF",
        "film_4.gif": b"GIF8",
    }
