"""Readings of the clock without Python code, and what they add up to."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from ignite_hooks.measure.phases import DATA, HOOKS, NAMES, OPTIMIZER, OTHER, UNSAMPLED, USUAL, Phases
from ignite_hooks.measure.step_marks import StepMarks


def one_by_one(rows: list[tuple[float, int]], phase: int, since: float) -> tuple[list[float], int, float, int]:
    """Return what marks add up to, by the definition of a phase: it lasts until the next one begins."""
    seconds, begun = [0.0] * 8, 0
    for now, to in rows:
        seconds[phase] += now - since
        begun += phase == DATA and to == HOOKS
        phase, since = to, now
    return seconds, phase, since, begun


def test_marks_add_up_to_the_same_in_any_order_of_phases() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(300):
        # Whole numbers, whose sums are exact; most phases in the usual order, cut at both ends, some out of order.
        order = list(itertools.islice(itertools.cycle(USUAL), chance.randint(0, 3), chance.randint(4, 90)))
        for _ in range(chance.choice([0, 0, 0, 1, 3])):
            order[chance.randrange(len(order))] = chance.choice([HOOKS, UNSAMPLED, DATA, OTHER])
        times = list(itertools.accumulate(chance.randint(0, 9) for _ in order))
        phase = chance.choice([DATA, HOOKS, UNSAMPLED])
        marks, seconds = StepMarks(iter(map(float, times)).__next__), [0.0] * 8
        for to in order:
            marks.marker(to)()
        found = marks.add_up(seconds, phase, 0.0, USUAL)
        assert (seconds, *found) == one_by_one(list(zip(times, order, strict=True)), phase, 0.0), seed
        assert marks.rows == []


def test_large_times_lose_nothing_when_added_up() -> None:
    # The clock of a machine that has been on for a year.
    times = [3e7 + step * 2**-20 for step in range(400)]
    marks, seconds = StepMarks(iter(times).__next__), [0.0] * 8
    for to in itertools.islice(itertools.cycle(USUAL), 400):
        marks.marker(to)()
    marks.add_up(seconds, DATA, times[0], USUAL)
    assert seconds[UNSAMPLED] == pytest.approx(100 * 2**-20, abs=1e-8)
    assert seconds[HOOKS] == pytest.approx(200 * 2**-20, abs=1e-8)


def test_a_mark_runs_no_python_code() -> None:
    phases, calls = Phases(time.perf_counter, sparing=True), list[str]()

    def profile(frame: Any, event: str, arg: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    def iteration() -> None:
        phases.batch_comes()
        phases.step_begins()
        phases.step_ends()
        phases.iteration_ends()

    iteration()
    iteration()
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        iteration()
    finally:
        sys.setprofile(before)
    assert calls == ["iteration"]


def test_a_sampled_step_that_fails_ends_no_later_one() -> None:
    marks, calls = StepMarks(time.perf_counter), list[int]()

    def begin() -> None:
        calls.append(len(marks.rows) // 2)
        if len(calls) == 1:
            raise ValueError("boom")

    mark = marks.marker_between(UNSAMPLED, lambda: 2, begin)
    mark()
    with pytest.raises(ValueError, match="boom"):
        mark()
    mark()
    mark()
    assert calls == [1, 2]


def test_a_step_without_an_end_is_followed_by_one_that_is_looked_into() -> None:
    clock = itertools.count(0.0, 1.0).__next__
    phases = Phases(clock, sparing=True)
    phases.step_begins()
    # The step failed: nothing marks its end.
    phases.skip()
    phases.batch_comes()
    phases.step_begins()
    phases.enter(OPTIMIZER)
    phases.step_ends()
    phases.iteration_ends()
    found = dict(zip(NAMES, phases.seconds(), strict=True))
    assert found["optimizer"] == 1.0
    assert phases.iterations == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda phases: pickle.loads(pickle.dumps(phases))])
def test_a_copy_begins_anew(copied: Callable[[Phases], Phases]) -> None:
    phases = Phases(sparing=True)
    phases.batch_comes()
    other = copied(phases)
    other.batch_comes()
    other.iteration_ends()
    assert (phases.iterations, other.iterations) == (1, 1)
