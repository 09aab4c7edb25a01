"""The end that a hook asks for; signals are in `test_signals.py`, other ranks in `distributed/test_agreement.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, attach_hooks, build_hook
from ignite_hooks.engine.stop_vote import (
    Order,
    StopRequest,
    StopVote,
    VotePoint,
    agreed_reason,
    may_end_a_run,
    place_in_words,
)
from ignite_hooks.plan.plan import Plan
from ignite_hooks.testing import RecordingHook
from tests.tools import Log, echo_trainer


def test_stop_ends_the_run_and_keeps_the_first_reason(tmp_path: Path) -> None:
    for point in (
        "before_run",
        "before_epoch",
        "before_train_iter",
        "after_train_iter",
        "after_train_epoch",
        "after_epoch",
    ):
        log: Log = []

        def stop(self: BaseHook, runner: Any) -> None:
            if runner.global_step in (0, 2, 3):
                runner.stop("enough")
                runner.stop("more than enough")

        trainer = echo_trainer()
        stopper = type("Stopper", (BaseHook,), {point: stop})()
        runner = attach_hooks(trainer, [stopper, RecordingHook(log=log, name="recorder")], work_dir=tmp_path / point)
        trainer.run([1, 2, 3], max_epochs=3)
        points = [at for _, at, *_ in log]
        assert runner.stop_reason == "enough", point
        assert points.count("before_train_iter") == points.count("after_train_iter")
        assert trainer.state.iteration == {"before_run": 0, "before_epoch": 0}.get(
            point, 2 if "iter" in point else 3
        ), point
        assert points[-1] == "cleanup"


def test_a_stop_between_runs_does_not_affect_the_next(tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    runner.stop("too early")
    trainer.run([1, 2])
    assert (runner.stop_reason, trainer.state.iteration) == (None, 2)


@pytest.mark.parametrize(
    ("asked_itself", "agreed", "seconds", "repeats"),
    [
        (False, Order.SAVE | Order.REQUEUE, 1.0, False),
        (False, Order.SAVE | Order.REQUEUE, 60.0, True),
        (False, Order.SAVE, 1.0, True),
        (True, Order.SAVE | Order.REQUEUE, 1.0, True),
    ],
    ids=["late copy", "later signal", "save without requeue", "second signal"],
)
def test_a_signal_that_reaches_a_rank_late_is_obeyed_once(
    asked_itself: bool, agreed: Order, seconds: float, repeats: bool, tmp_path: Path
) -> None:
    stopping = attach_hooks(echo_trainer(), [], work_dir=tmp_path).installation.stopping
    stopping.requeues, clock, wanted = True, [100.0], list[Order]()
    stopping.vote.needed, stopping.vote.now = True, lambda: clock[0]

    def take(request: StopRequest, *_: Any) -> StopRequest:
        wanted.append(request.orders)
        return StopRequest(orders=agreed)

    stopping.vote.take = take  # type: ignore[method-assign]
    if asked_itself:
        stopping.on_signal("SIGUSR1", "save")
    stopping.take_vote(echo_trainer(), VotePoint.IN_EPOCH)
    clock[0] += seconds
    stopping.on_signal("SIGUSR1", "save")
    stopping.take_vote(echo_trainer(), VotePoint.IN_EPOCH)
    assert bool(wanted[1]) is repeats


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        (["enough", "enough"], "enough"),
        ([None, "SIGTERM received"], "SIGTERM received on rank 1"),
        (["a", "b"], "a on rank 0"),
    ],
)
def test_the_first_rank_with_a_reason_gives_it(wishes: list[str | None], reason: str) -> None:
    assert agreed_reason(wishes) == reason


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 0, 0), "at the start of the run"),
        ((1, 2, 10), "at the start of epoch 2, iteration 10"),
        ((4, 3, 30), "in an evaluation in epoch 3, iteration 30"),
    ],
)
def test_places_have_words(place: tuple[int, int, int], words: str) -> None:
    assert place_in_words(*place) == words


def test_a_single_process_does_not_vote() -> None:
    agreement = StopVote()
    agreement.begin(Plan({"hook": BaseHook()}))
    assert not agreement.needed
    assert not agreement.is_due(1)


def test_observing_hooks_do_not_count_for_the_vote() -> None:
    names = ("RuntimeInfoHook", "IterTimerHook", "LoggerHook", "DistSamplerSeedHook", "SyncBuffersHook", "EMAHook")
    assert [may_end_a_run(build_hook({"type": name})) for name in names] == [False] * len(names)
    others = (BaseHook(), build_hook({"type": "CheckpointHook"}), build_hook({"type": "EarlyStoppingHook"}))
    assert all(map(may_end_a_run, others))
