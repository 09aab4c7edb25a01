"""The hooks for trackers: when they write what, and what they record at the end of a run."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.drawing.thread import DrawingThread
from ignite_hooks.hooks.base_hook import settings
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook, crossed
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers import many
from ignite_hooks.writers.memory import MemoryWriter
from tests.ranks import run_ranks
from tests.sharded import Training
from tests.writers.test_tensorboard import read

PICTURE = numpy.zeros((4, 4, 3), numpy.uint8)


@settings
class ShelfHook(TrackerHook):
    """Writes to memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shelf = MemoryWriter()
        self.histograms: list[tuple[str, int]] = []
        self.shelf.write_histogram = self._note  # type: ignore[method-assign]

    def _note(self, name: str, values: Any, step: int) -> None:
        self.histograms.append((name, step))

    def make_writer(self, folder: Path) -> MemoryWriter:
        return self.shelf


class Draws(BaseHook):
    """Draws two pictures after every iteration."""

    def after_train_iter(self, runner: Any) -> None:
        for name in ("a", "b"):
            runner.writer.write_image(name, PICTURE, runner.global_step)


def trained(folder: Path, **given: Any) -> ShelfHook:
    """Train for 2 epochs of 6 iterations, with checkpoints."""
    run, hook = tiny_run(batches=6), ShelfHook(**given)
    cfg = {"default_hooks": {"checkpoint": {"best_metric": "accuracy"}}, "custom_hooks": [hook, Draws()]}
    attach_hooks(run.trainer, cfg, work_dir=folder, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    return hook


@pytest.mark.parametrize(("interval", "steps"), [(1, [*range(1, 13)]), (4, [4, 8, 12]), (5, [5, 10]), (7, [6, 7, 12])])
def test_losses_are_written_at_the_interval_of_the_hook(interval: int, steps: list[int], tmp_path: Path) -> None:
    hook = trained(tmp_path, interval=interval)
    assert [step for name, _, step in hook.shelf.scalars if name == "loss"] == steps


@pytest.mark.parametrize(
    ("given", "steps"),
    [({"image_interval": 5}, [1, 6, 11, 12]), ({"log_images": False}, []), ({}, [*range(1, 13)])],
    ids=str,
)
def test_pictures_come_at_their_interval_if_one_is_set(given: dict[str, Any], steps: list[int], tmp_path: Path) -> None:
    hook = trained(tmp_path, **given)
    assert [(name, step) for name, _, step in hook.shelf.images] == [(n, step) for step in steps for n in ("a", "b")]


class DrawsLate(BaseHook):
    """Asks for a picture in the last iteration, which is drawn only while the run is closing."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.closing = threading.Event()

    def before_run(self, runner: Any) -> None:
        self.thread = DrawingThread("late", sink=runner.writer)

    def after_train_iter(self, runner: Any) -> None:
        if runner.global_step == runner.max_iters:
            for name in ("a", "b"):
                self.thread.draw(name, runner.global_step, self.paint)

    def paint(self) -> Any:
        assert self.closing.wait(60)
        return PICTURE

    def cleanup(self, runner: Any) -> None:
        self.closing.set()
        self.thread.close(runner.writer.seconds_left)
        runner.writer.write_image("at the very end", PICTURE, runner.global_step)


@pytest.mark.parametrize("late", [{}, {"priority": "HIGHEST"}, {"priority": "LOWEST"}], ids=str)
def test_the_last_pictures_arrive_wherever_the_tracker_is_listed(late: Any, tmp_path: Path) -> None:
    run, shelf = tiny_run(batches=3), ShelfHook()
    events = {"type": "TensorBoardHook", "log_images": True}
    attach_hooks(run.trainer, [shelf, events, DrawsLate(**late)], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert [name for name, _, _ in shelf.shelf.images] == ["a", "b", "at the very end"]
    assert shelf.shelf.closed
    assert len([*tmp_path.glob("tensorboard/*")]) == 1, "nothing came after the file was closed"
    assert sorted(read(tmp_path / "tensorboard").Tags()["images"]) == ["a", "at the very end", "b"]


class NeverDraws(DrawsLate):
    """Its pictures do not come."""

    def cleanup(self, runner: Any) -> None:
        self.thread.close(runner.writer.seconds_left)


def test_the_end_waits_for_a_time_and_counts_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(many, "PRODUCERS_WAIT", 0.01)
    run, shelf, never = tiny_run(batches=3), ShelfHook(), NeverDraws()
    report = {"type": "ReportHook"}
    attach_hooks(run.trainer, [shelf, report, never, NeverDraws(name="two")], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    said = [record.getMessage() for record in caplog.records if "not drawn" in record.getMessage()]
    assert said == ["late: 2 pictures are not drawn after 0 s at the end of the run, so they are left out"] * 2
    assert "2 pictures are not drawn" in (tmp_path / "report.html").read_text()
    never.closing.set()
    drawing = [thread for thread in threading.enumerate() if thread.name == "late draws"]
    for thread in drawing[:1]:
        thread.join(60)
    assert shelf.shelf.images == []


def test_the_report_shows_what_a_tracker_said_when_it_closed(tmp_path: Path) -> None:
    run, shelf = tiny_run(batches=3), ShelfHook()
    shelf.shelf.close = lambda: logging.getLogger("ignite_hooks").warning("shelf: 3 records lie somewhere")  # type: ignore[method-assign]
    attach_hooks(run.trainer, [{"type": "ReportHook"}, shelf], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert "shelf: 3 records lie somewhere" in (tmp_path / "report.html").read_text()


def test_a_tracker_that_is_removed_in_mid_run_is_closed_at_once(tmp_path: Path) -> None:
    run, shelf = tiny_run(batches=3), ShelfHook(name="shelf")
    closed: list[bool] = []

    class Removes(BaseHook):
        def before_train_iter(self, runner: Any) -> None:
            closed.append(shelf.shelf.closed)
            if runner.global_step == 1:
                runner.remove_hook("shelf")

    attach_hooks(run.trainer, [shelf, Draws(), Removes()], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert closed == [False, True, True]


def test_histograms_are_written_on_request_at_their_interval(tmp_path: Path) -> None:
    assert trained(tmp_path / "no", interval=2).histograms == []
    found = trained(tmp_path / "yes", interval=2, log_histograms=True, histogram_interval=5).histograms
    assert sorted({step for _, step in found}) == [6, 10]
    assert {name.partition("/")[0] for name, _ in found} == {"weights", "gradients"}


@pytest.mark.parametrize("log_model", [False, True])
def test_best_and_last_checkpoints_are_written_on_request(log_model: bool, tmp_path: Path) -> None:
    hook = trained(tmp_path, log_model=log_model)
    best = [path.name for path in tmp_path.glob("best_*.pth")]
    names = [Path(path).name for path, _, kind in hook.shelf.artifacts if kind == "model"]
    assert names == ([*best, "last.pth"] if log_model else [])


def test_configuration_plan_and_summary_are_written(tmp_path: Path) -> None:
    hook = trained(tmp_path)
    assert [(name, step) for name, _, step in hook.shelf.texts] == [("plan", 0), ("run_id", 0), ("summary", 12)]
    assert hook.shelf.config["default_hooks"]["checkpoint"] == {"best_metric": "accuracy"}
    assert hook.shelf.closed


@pytest.mark.parametrize(("interval", "every", "steps"), [(1, 3, [3, 6, 9]), (4, 6, [8]), (3, 2, [3, 6, 9])])
def test_a_multiple_is_crossed_at_the_next_firing(interval: int, every: int, steps: list[int]) -> None:
    assert [step for step in range(interval, 10, interval) if crossed(step, interval, every)] == steps


def sharded_in_each_process(folder: str) -> list[Any]:
    hook = {"type": "TensorBoardHook", "interval": 1, "log_histograms": True, "histogram_interval": 1}
    training = Training(folder, hook)
    training.run(1)
    return [training.runner.writer.failures(), sorted(map(str, Path(folder).glob("tensorboard/*")))]


@pytest.mark.slow
def test_histograms_of_a_sharded_model_show_the_first_part(tmp_path: Path) -> None:
    (failures, files), (others, _) = run_ranks(sharded_in_each_process, str(tmp_path))
    assert failures == others == {}
    assert len(files) == 1
    seen = read(tmp_path / "tensorboard")
    assert [event.step for event in seen.Scalars("loss")] == [1, 2, 3]
    # Of 6 rows of 4 weights the first of two ranks has half.
    assert seen.Histograms("weights/0.weight")[0].histogram_value.num == 12
