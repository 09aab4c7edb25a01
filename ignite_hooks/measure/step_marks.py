"""Readings of the clock in steps that are not looked into, taken without any Python code.

Between two training steps nothing of ours is in the caches of the processor, so each function of Python costs several
times what it costs alone. Four readings of the clock took seven of them in every iteration. Here an iterator of C reads
the clock and appends the time and the phase that begins then to a list; the list is added up when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise, repeat, starmap
from math import fsum
from operator import call
from typing import Any


class StepMarks:
    """Times and the phases that began at them, which are not added up yet.

    Example:
        >>> marks = StepMarks(iter([1.0, 3.0, 4.5]).__next__)
        >>> begin, end = marks.marker(1), marks.marker(0)
        >>> begin(), end(), begin()
        (None, None, None)
        >>> marks.rows
        [1.0, 1, 3.0, 0, 4.5, 1]
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rows: list[Any] = []
        """A time, a phase, a time, a phase, and so on: one list of plain values is the fastest to append to."""

    def _mark(self, phase: int) -> Iterator[None]:
        return map(self.rows.extend, zip(starmap(self._clock, repeat(())), repeat(phase), strict=False))

    def marker(self, phase: int) -> Callable[[], None]:
        """Return a function of C that marks the beginning of a phase."""
        return self._mark(phase).__next__

    def marker_between(self, phase: int, until: Callable[[], int], sampled: Callable[[], None]) -> Callable[[], None]:
        """Return a function of C that marks the beginning of a phase, but for the sampled steps.

        Args:
            phase: The phase.
            until: Returns in how many calls the next sampled one is: 1 if it is the next call.
            sampled: Called in its place.
        """

        def turns() -> Iterator[Iterator[None]]:
            while True:
                yield islice(self._mark(phase), until() - 1)
                # Called by an iterator of its own, so that this one goes on if it fails.
                yield map(call, (sampled,))

        return chain.from_iterable(turns()).__next__

    def add_up(self, seconds: list[float], phase: int, since: float, usual: list[int]) -> tuple[int, float, int]:
        """Add the time of each phase to its seconds; forget the marks.

        Args:
            seconds: The seconds of each phase.
            phase: The phase in which the first mark was made.
            since: The time at which it began.
            usual: The phases that begin in an iteration, in order; the last is the one between two iterations.

        Returns:
            The phase now, the time at which it began, and the number of iterations that have begun.
        """
        times, phases = self.rows[::2], self.rows[1::2]
        self.rows.clear()
        between, begun = usual[-1], 0

        def one_by_one(start: int, stop: int) -> None:
            nonlocal phase, since, begun
            for now, to in zip(times[start:stop], phases[start:stop], strict=True):
                seconds[phase] += now - since
                begun += phase == between and to == usual[0]
                phase, since = to, now

        start = 0 if phase == between else phases.index(between) + 1 if between in phases else len(phases)
        whole = (len(phases) - start) // len(usual)
        stop = start + whole * len(usual)
        if not whole or phases[start:stop] != usual * whole:
            stop = start
        one_by_one(0, start)
        if stop > start:
            # Iterations that are alike, which is nearly all, are added up by C.
            sums = [fsum(times[place : stop : len(usual)]) for place in range(start, start + len(usual))]
            last = times[stop - 1]
            seconds[between] += sums[0] - (sums[-1] - last) - since
            for place, (began, ended) in enumerate(pairwise(sums)):
                seconds[usual[place]] += ended - began
            phase, since, begun = between, last, begun + whole
        one_by_one(stop, len(times))
        return phase, since, begun
