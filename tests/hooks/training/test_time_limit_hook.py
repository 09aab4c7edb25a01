from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.training.time_limit_hook import TimeLimitHook, seconds_of
from tests.ranks import run_ranks

CHECKPOINT = {"type": "CheckpointHook", "save_best": False}


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("2h 30m", 9000),
        ("2h30m", 9000),
        ("1 day, 2 hours", 93600),
        ("90 min", 5400),
        ("1.5h", 5400),
        ("45s", 45),
    ],
)
def test_a_limit_is_read_as_people_write_it(limit: Any, seconds: float) -> None:
    assert seconds_of(limit) == seconds


@pytest.mark.parametrize("limit", ["", "soon", "90", "2h 30", "3 epochs", 0, -1, "0 s"])
def test_what_is_no_length_of_time_is_refused(limit: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="limit: "):
        attach_hooks(Engine(lambda *_: None), [{"type": "TimeLimitHook", "limit": limit}], work_dir=tmp_path)


class Hands:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_run(folder: Path, limit: Any, *others: Any, resume: Any = None, **settings: Any) -> tuple[Any, Any]:
    """Return a run whose epochs take a minute."""
    trainer, hands = Engine(lambda engine, batch: 0.5), Hands()
    hook = TimeLimitHook(limit=limit, **settings)
    hook.clock = hands
    model = torch.nn.Linear(1, 1)
    runner = attach_hooks(trainer, [hook, *others], work_dir=folder, resume=resume, model=model)

    @trainer.on(Events.EPOCH_COMPLETED)
    def pass_time() -> None:
        # Through the runner: what the script holds itself is a part of the run, and is put back.
        runner.hooks["TimeLimitHook"].clock.now += 60

    trainer.run(range(3), max_epochs=6)
    return trainer, runner


def test_run_ends_when_its_time_is_up_and_saves(tmp_path: Path) -> None:
    trainer, runner = a_run(tmp_path, "2 min", CHECKPOINT)
    assert (trainer.state.epoch, runner.stop_reason) == (2, "time limit of 2 min reached")
    assert torch.load(tmp_path / "last.pth")["meta"]["epoch"] == 2


def test_it_saves_the_last_state_if_no_hook_does(tmp_path: Path) -> None:
    trainer, _ = a_run(tmp_path, 120)
    assert [path.name for path in tmp_path.glob("*.pth")] == ["time_limit_iter_6.pth"]
    trainer, _ = a_run(tmp_path, 240, resume="auto")
    assert trainer.state.epoch == 4


def test_the_time_of_earlier_processes_counts(tmp_path: Path) -> None:
    a_run(tmp_path, "2 min", CHECKPOINT)
    again, runner = a_run(tmp_path, "2 min", CHECKPOINT, resume="auto")
    assert (again.state.epoch, runner.stop_reason) == (2, "time limit of 2 min reached")
    more, _ = a_run(tmp_path, "3 min", CHECKPOINT, resume="auto")
    assert more.state.epoch == 3


def test_a_job_can_have_its_own_time(tmp_path: Path) -> None:
    epochs = []
    for resume in (None, "auto", "auto"):
        trainer, _ = a_run(tmp_path, "2 min", CHECKPOINT, resume=resume, per_process=True)
        epochs.append(trainer.state.epoch)
    assert epochs == [2, 4, 6]


def test_a_run_that_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    trainer, runner = a_run(tmp_path, "1 day")
    assert (trainer.state.epoch, runner.stop_reason, list(tmp_path.glob("*.pth"))) == (6, None, [])


def test_it_ends_in_the_middle_of_an_epoch_too(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, [{"type": "TimeLimitHook", "limit": 0.1}], work_dir=tmp_path)
    trainer.run(itertools.repeat(0), max_epochs=1, epoch_length=10**12)
    assert 0 < trainer.state.iteration < 10**12


def in_each_process(folder: str) -> list[Any]:
    trainer = Engine(lambda engine, batch: 0.5)
    hook = TimeLimitHook(limit=0.2)
    if rank() == 1:
        hook.clock = lambda: 0.0
    runner = attach_hooks(trainer, [hook], work_dir=folder, model=torch.nn.Linear(1, 1))
    needed = []
    trainer.add_event_handler(Events.STARTED, lambda: needed.append(runner.installation.stopping.vote.needed))
    trainer.run(range(10**9), max_epochs=1)
    files = sorted(path.name for path in Path(folder).glob("*.pth"))
    return [trainer.state.iteration, runner.stop_reason, files, needed]


@pytest.mark.slow
def test_ranks_end_together_by_clock_of_rank_0_without_vote(tmp_path: Path) -> None:
    first, second = run_ranks(in_each_process, str(tmp_path))
    assert first == second
    iteration, reason, files, needed = first
    assert reason == "time limit of 0.2 s reached"
    assert files == [f"time_limit_iter_{iteration}.pth"]
    assert needed == [False]
