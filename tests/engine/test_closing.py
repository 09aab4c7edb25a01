"""Writers close after the cleanup of every hook, and who asks learns what has arrived."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ignite_hooks import BaseHook, BaseTrainer, ConfigError, attach_hooks
from ignite_hooks.engine.closing import WRITERS_CLOSED
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.results.result import RunResult, read_result
from ignite_hooks.testing import tiny_run
from ignite_hooks.trainer.base_trainer import CommandTrainer
from ignite_hooks.writers.memory import MemoryWriter


class Asks(BaseHook):
    """Notes whether the writers are closed."""

    custom_points: ClassVar[Sequence[str]] = (WRITERS_CLOSED,)

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryWriter()
        self.seen: list[tuple[str, bool]] = []

    def cleanup(self) -> None:
        self.seen.append(("cleanup", self.memory.closed))

    def after_writers_closed(self) -> None:
        self.seen.append((WRITERS_CLOSED, self.memory.closed))


class Fails(BaseHook):
    def cleanup(self) -> None:
        raise ValueError("cannot clean up")


@pytest.mark.parametrize("others", [[], [Fails()]], ids=["as usual", "a cleanup fails"])
def test_writers_close_between_the_cleanup_and_who_asks(others: list[Any], tmp_path: Path) -> None:
    run, asks = tiny_run(), Asks()
    attach_hooks(run.trainer, {"hooks": [*others, asks], "writers": [asks.memory]}, work_dir=tmp_path, **run.services)
    if others:
        with pytest.raises(Exception, match="cannot clean up"):
            run.trainer.run(run.data, max_epochs=1)
    else:
        run.trainer.run(run.data, max_epochs=1)
    assert asks.seen == [("cleanup", False), (WRITERS_CLOSED, True)]


class Looks(MemoryWriter):
    """Looks for the result of the run when it is closed, as a tracker does that uploads it."""

    folder: Path
    found: RunResult | None = None

    def close(self) -> None:
        super().close()
        self.found = read_result(self.folder)


def test_writers_that_close_find_the_result_and_all_that_was_logged(tmp_path: Path) -> None:
    run, looks = tiny_run(), Looks()
    looks.folder = tmp_path
    hooks = [{"type": "LoggerHook", "interval": 1}]
    attach_hooks(run.trainer, {"hooks": hooks, "writers": [looks]}, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert looks.found is not None
    assert looks.found.state == "finished"
    losses = [value for name, value, _ in looks.scalars if name == "loss"]
    assert looks.found.metrics["loss"].value == losses[-1]


def last_line(caplog: pytest.LogCaptureFixture) -> str:
    return next(line for line in reversed(caplog.messages) if line.startswith("run "))


class Empty(TrackerHook):
    """A tracker that never gets anything to measure."""

    def make_writer(self, folder: Path) -> Any:
        return MemoryWriter()

    def after_train_iter(self, outputs: Any) -> None:
        pass

    def _log(self, runner: Any, optimizer: Any) -> None:
        pass

    def _report(self, runner: Any, kind: str) -> None:
        pass


class Broken(MemoryWriter):
    def write_scalars(self, *_: Any, **__: Any) -> None:
        raise OSError("gone")


class Warns(BaseHook):
    on_error = "warn"

    def after_train_iter(self) -> None:
        raise ValueError("always")


@pytest.mark.parametrize(
    ("hooks", "writers", "words"),
    [
        ([Empty()], [], "writer MemoryWriter got no numbers"),
        (
            [{"type": "LoggerHook", "interval": 1}],
            [Broken()],
            "writer Broken failed 3 times, switched off: write_measured",
        ),
        ([Warns(name="warns")], [], "warns failed 3 times, switched off"),
    ],
)
def test_the_last_line_and_the_report_say_what_a_run_went_without(
    hooks: list[Any], writers: list[Any], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tiny_run(batches=4)
    caplog.set_level("INFO", logger="ignite_hooks")
    cfg = {"hooks": [*hooks, "ReportHook"], "writers": writers}
    attach_hooks(run.trainer, cfg, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert words in last_line(caplog)
    assert words in (tmp_path / "report.html").read_text()


def test_the_last_line_of_a_good_run_names_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tiny_run()
    caplog.set_level("INFO", logger="ignite_hooks")
    attach_hooks(run.trainer, ["LoggerHook"], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert last_line(caplog) == "run ended after 1 epoch, 3 iterations"


def test_pictures_that_nothing_draws_are_told_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for asked in ({}, {"log_images": True}):
        run = tiny_run()
        attach_hooks(
            run.trainer, [{"type": "TensorBoardHook", **asked}], work_dir=tmp_path / str(asked), **run.services
        )
        run.trainer.run(run.data, max_epochs=1)
    told = [line for line in caplog.messages if "log_images" in line]
    assert len(told) == 1
    assert told[0].startswith("TensorBoardHook: log_images: nothing has drawn a picture")


@pytest.mark.parametrize(
    ("hooks", "writers", "is_wrong"),
    [
        ([], [], True),
        (["HistoryPlotHook"], [], False),
        ([{"type": "FeatureMapHook", "layers": ["0"]}], [], False),
        ([Warns(name="of another")], [], False),
        ([], [Broken()], False),
    ],
)
def test_pictures_that_nothing_can_draw_are_an_error_of_a_configuration_alone(
    hooks: list[Any], writers: list[Any], is_wrong: bool, tmp_path: Path
) -> None:
    """A script could draw them itself, and so could its hooks and writers."""
    config = {
        "model": {"type": "cnn"},
        "dataset": {"type": "digits"},
        "hooks": [{"type": "TensorBoardHook", "log_images": True}, *hooks],
        "writers": writers,
    }
    wrong = "hooks[0].log_images: no hook of this configuration draws a picture: add a VisualizationHook"
    with pytest.raises(ConfigError, match=re.escape(wrong)) if is_wrong else contextlib.nullcontext():
        CommandTrainer(config, work_dir=tmp_path / "a")
    if is_wrong:
        BaseTrainer(config, work_dir=tmp_path / "b")
