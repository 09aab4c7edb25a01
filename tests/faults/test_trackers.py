"""Trackers and logs must not end a run, and runs must leave nothing of them behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.testing import tiny_run
from tests.faults.test_full_disk import Ballast, disk
from tests.faults.tools import times
from tests.tools import trackers_at

pytestmark = pytest.mark.faults
__all__ = ["disk"]  # the fixture


@pytest.fixture(autouse=True, scope="module")
def _trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with trackers_at(tmp_path_factory.mktemp("trackers")):
        yield


HOOKS: list[dict[str, Any]] = [
    {"type": "LoggerHook", "interval": 1},
    {"type": "ProgressBarHook", "form": "file"},
    {"type": "TensorBoardHook", "interval": 1},
    # Its thread and spool, without a database for every run.
    {"type": "MLflowHook", "interval": 1, "tracking_uri": "http://127.0.0.1:1", "mode": "offline"},
]


class Fails(BaseHook):
    def after_train_iter(self, runner: Any) -> None:
        if runner.global_step == 3:
            raise RuntimeError("boom")


def live(folder: Path, fail: bool) -> None:
    """Attach, run, detach."""
    run = tiny_run()
    runner = attach_hooks(run.trainer, [*HOOKS, *([Fails()] if fail else [])], work_dir=folder, **run.services)
    try:
        run.trainer.run(run.data, max_epochs=2)
    except RuntimeError:
        assert fail
    runner.detach()


@pytest.mark.slow
def test_many_runs_half_of_them_failing_leave_nothing_behind(tmp_path: Path) -> None:
    process = psutil.Process()
    for number in range(10):
        live(tmp_path / f"first-{number}", fail=number % 2 == 0)
    gc.collect()
    threads, files, memory = threading.active_count(), process.num_fds(), process.memory_info().rss
    for number in range(times(200, 2000)):
        live(tmp_path / str(number), fail=number % 2 == 0)
    gc.collect()
    assert threading.active_count() == threads
    assert process.num_fds() <= files
    # What 200 runs leave is less than 100 kB each; a leaked model, writer or thread is more.
    assert process.memory_info().rss - memory < times(200, 2000) * 100_000


# TensorBoard's own thread ends with the error; what is written next is told of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_log_disk_does_not_end_training(
    disk: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    ballast = Ballast(disk, free=0.02)
    ballast.drop_in()
    run = tiny_run(batches=200)
    runner = attach_hooks(run.trainer, HOOKS, work_dir=disk / "run", **run.services)
    run.trainer.run(run.data, max_epochs=5)
    assert run.trainer.state.iteration == 1000
    assert runner.writer.failures(), "the disk was full indeed"
    assert runner.report().failures == {}
    said = capfd.readouterr().err
    assert said.count("the log is not written any more: [Errno 28] No space left on device") == 1
    assert "Logging error" not in said
    assert any("is switched off: 3 failures in a row" in message for message in caplog.messages)
