"""Counts what an iteration does: Python functions, C functions and opcodes. Counts are free of noise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

from ignite.engine import Engine

FIRST, LAST = 10, 16
"""Iterations in which nothing is due: after the first, which computes what is due, and before any interval below."""


class Cost(NamedTuple):
    """Of one iteration: Python functions and C functions called, opcodes executed."""

    calls: float
    c_calls: float
    opcodes: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(mine - its for mine, its in zip(self, other, strict=True)))


class Meter:
    """Counts what an engine does between two batches.

    It begins in the middle of a run, so the loop of the engine, which has begun before, is not counted itself.
    """

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self.first, self.last = first, last
        self.calls = self.c_calls = self.opcodes = 0
        self.seen: list[Cost] = []

    def profile(self, frame: FrameType, event: str, arg: object) -> None:
        self.calls += event == "call"
        self.c_calls += event == "c_call"

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes = True
        self.opcodes += event == "opcode"
        return self.trace

    def batches(self) -> Iterator[int]:
        before = sys.getprofile(), sys.gettrace()
        yield from range(self.first)
        sys.setprofile(self.profile)
        sys.settrace(self.trace)
        try:
            for batch in range(self.first, self.last):
                yield batch
                self.seen.append(Cost(self.calls, self.c_calls, self.opcodes))
        finally:
            sys.setprofile(before[0])
            sys.settrace(before[1])


def cost_of(trainer: Engine) -> Cost:
    """Return the cost of one idle iteration; all of them cost the same."""
    meter = Meter()
    trainer.run(meter.batches(), max_epochs=1)
    each = {after - before for before, after in pairwise(meter.seen)}
    assert len(each) == 1
    return each.pop()


def mean_cost_of(trainer: Engine, first: int, count: int) -> Cost:
    """Return the mean cost of iterations, some of which may have more to do than others."""
    meter = Meter(first, first + count + 1)
    trainer.run(meter.batches(), max_epochs=1)
    whole = meter.seen[-1] - meter.seen[0]
    return Cost(*(value / count for value in whole))
