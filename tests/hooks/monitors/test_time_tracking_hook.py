from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import Runner, attach_hooks
from ignite_hooks.hooks.monitors.time_tracking_hook import TimeTrackingHook
from ignite_hooks.writers.memory import MemoryWriter


@dataclass
class Tracked:
    """A run with iterations of a minute and an evaluation of two after each epoch."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.writer = MemoryWriter()
        self.hook = TimeTrackingHook(**self.settings)
        self.hook.clock = lambda: self.now
        self.hook.now = lambda: datetime(2026, 1, 1, 12, 0, 0)
        self.trainer = Engine(lambda engine, batch: self.turn(60.0))
        self.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: self.turn(120.0))

    def turn(self, seconds: float) -> None:
        self.now += seconds

    def attach(self, *hooks: Any, **more: Any) -> Runner:
        return attach_hooks(
            self.trainer, {"hooks": [self.hook, *hooks], "writers": [self.writer]}, work_dir=self.folder, **more
        )

    @property
    def lines(self) -> list[str]:
        file = self.folder / self.hook.log_path
        return file.read_text().splitlines() if file.exists() else []


def test_epoch_total_and_finish_include_evaluations(tmp_path: Path) -> None:
    run = Tracked(tmp_path)
    run.attach()
    run.trainer.run([1.0, 1.0, 1.0], max_epochs=3)
    assert run.lines == [
        "2026-01-01 12:00:00  epoch 1/3  took 0:05:00  total 0:05:00  left 0:10:00  done at 2026-01-01 12:10",
        "2026-01-01 12:00:00  epoch 2/3  took 0:05:00  total 0:10:00  left 0:05:00  done at 2026-01-01 12:05",
        "2026-01-01 12:00:00  epoch 3/3  took 0:05:00  total 0:15:00",
        "2026-01-01 12:00:00  done after 0:15:00",
    ]
    assert run.writer.lines == [
        ({"time/epoch": 300.0, "time/total": 300.0, "time/left": 600.0}, 3, "train", 1),
        ({"time/epoch": 300.0, "time/total": 600.0, "time/left": 300.0}, 6, "train", 2),
        ({"time/epoch": 300.0, "time/total": 900.0}, 9, "train", 3),
    ]


def test_the_frequency_counts_epochs(tmp_path: Path) -> None:
    run = Tracked(tmp_path, {"frequency": 2})
    run.attach()
    run.trainer.run([1.0], max_epochs=5)
    assert [step for _, step, _, _ in run.writer.lines] == [2, 4]


@pytest.mark.parametrize("settings", [{"log_to_file": False}, {"log_path": "elsewhere/times.log"}], ids=str)
def test_the_file_can_be_left_out_or_moved(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = Tracked(tmp_path, settings)
    run.attach()
    run.trainer.run([1.0])
    assert len(run.lines) == (0 if "log_to_file" in settings else 2)
    assert not (tmp_path / "time_tracking.log").exists()


def test_a_resumed_run_continues_counting_and_judges_by_itself(tmp_path: Path) -> None:
    checkpoint = {"type": "CheckpointHook", "save_best": False}
    first = Tracked(tmp_path)
    first.attach(checkpoint)
    first.trainer.run([1.0, 1.0], max_epochs=2)
    assert first.lines[-1].endswith("done after 0:08:00")
    second = Tracked(tmp_path)
    second.trainer = Engine(lambda engine, batch: second.turn(30.0))
    second.attach(checkpoint, resume="auto")
    second.trainer.run([1.0, 1.0], max_epochs=4)
    assert [line.partition("  ")[2] for line in second.lines[3:]] == [
        "going on at epoch 3, after 0:08:00",
        "epoch 3/4  took 0:01:00  total 0:09:00  left 0:01:00  done at 2026-01-01 12:01",
        "epoch 4/4  took 0:01:00  total 0:10:00",
        "done after 0:10:00",
    ]


def test_every_checkpoint_has_the_time_until_it_was_saved(tmp_path: Path) -> None:
    checkpoint = {"type": "CheckpointHook", "save_best": False}
    first = Tracked(tmp_path)
    first.attach(checkpoint)
    first.trainer.run([1.0, 1.0], max_epochs=3)
    second = Tracked(tmp_path)
    second.attach(checkpoint, resume="epoch_1.pth")
    second.trainer.run([1.0, 1.0], max_epochs=2)
    assert "going on at epoch 2, after 0:04:00" in second.lines[4]


def test_an_epoch_that_is_cut_short_is_said_to_be(tmp_path: Path) -> None:
    run = Tracked(tmp_path)
    runner = run.attach()
    run.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=3), lambda: runner.stop("enough"))
    run.trainer.run([1.0, 1.0], max_epochs=4)
    assert [line.partition("  ")[2].partition("  total")[0] for line in run.lines] == [
        "epoch 1/4  took 0:04:00",
        "epoch 2/4, cut short  took 0:01:00",
        "ended after 0:05:00",
    ]


def test_where_the_end_is_unknown_nothing_is_foreseen(tmp_path: Path) -> None:
    run = Tracked(tmp_path)
    run.attach()
    run.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=3), run.trainer.terminate)
    run.trainer.run(iter([1.0] * 9), max_epochs=None)
    assert [list(scalars) for scalars, *_ in run.writer.lines] == [["time/epoch", "time/total"]]
