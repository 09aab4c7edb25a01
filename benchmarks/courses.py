"""Whole runs of several libraries that take turns part by part, in threads of their own."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from measure import Rounds

Run = Callable[[Any, Path], None]
"""Does some work, whose data is a `Data`, with its files in a folder."""


class Moment(NamedTuple):
    """When something happened, by a clock on the wall and by what its thread has computed until then."""

    clock: float
    cpu: float


def now() -> Moment:
    """Return the present moment."""
    return Moment(time.perf_counter(), time.thread_time())


class Data:
    """A number of copies of one batch; notes when the first and the last are requested, and pauses in the middle."""

    def __init__(self, batch: Any, length: int) -> None:
        self.batch, self.length = batch, length
        self.dataset = range(length * len(batch[1]))
        self.began: Moment | None = None
        self.last: Moment | None = None
        """When the last batch of the latest epoch was requested."""
        # Weak: hooks of ours look for what a script keeps, and a course is no part of the script that is measured.
        self.course: weakref.ref[Course] | None = None

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        if self.began is None:
            self.began = now()
        return chain.from_iterable(self._parts())

    def _parts(self) -> Iterator[Iterator[Any]]:
        half = self.length // 2
        yield repeat(self.batch, half)
        course = None if self.course is None else self.course()
        if course is not None:
            course.pause()
        yield repeat(self.batch, self.length - half - 1)
        self.last = now()
        if course is not None:
            course.has_done(self.length - half - 1, self.last)
        yield repeat(self.batch, 1)


class Course:
    """A whole run in a thread of its own, in parts that take turns with those of the others.

    The first part ends in the middle of the first epoch, each further one in the middle of the next, and the last one
    with the run: so what is written beside an epoch is paid for by the run whose checkpoint it is.
    """

    def __init__(self, run: Run, work: Any, folder: Path) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._follow, args=(run,), daemon=True)
        self._error: BaseException | None = None
        self._work: Any = work
        self.folder = folder
        self._resumed: Moment | None = None
        self.clock = self.cpu = self.start = self.start_cpu = self.end = self.end_cpu = 0.0
        """Seconds by both clocks: of all parts, to the first batch, and from the last one to the end."""
        self._inside = 0.0
        self._iterations = 0

    def advance(self) -> None:
        """Run the next part."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error

    def _follow(self, run: Run) -> None:
        torch.set_num_threads(1)
        data = self._work.data
        data.course = weakref.ref(self)
        try:
            called = now()
            run(self._work, self.folder)
            ended = now()
            assert data.began is not None
            assert data.last is not None
            self._add(ended)
            self.start, self.start_cpu = data.began.clock - called.clock, data.began.cpu - called.cpu
            self.end, self.end_cpu = ended.clock - data.last.clock, ended.cpu - data.last.cpu
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def pause(self) -> None:
        """Let the others have their turn."""
        self._add(now())
        self._done.release()
        self._go.acquire()
        self._resumed = now()

    def has_done(self, iterations: int, until: Moment) -> None:
        """Note the end of the second half of an epoch, but for its last iteration."""
        assert self._resumed is not None
        self._inside += until.cpu - self._resumed.cpu
        self._iterations += iterations

    @property
    def inside_cpu(self) -> float:
        """The seconds that the thread computes in an iteration of the second half of an epoch."""
        return self._inside / self._iterations

    def _add(self, until: Moment) -> None:
        since = self._resumed or self._work.data.began
        assert since is not None
        self.clock += until.clock - since.clock
        self.cpu += until.cpu - since.cpu


class Found(NamedTuple):
    """What whole runs have taken: µs per iteration by both clocks, and ms of their starts and ends."""

    clock: Rounds
    cpu: Rounds
    start: Rounds
    start_cpu: Rounds
    end: Rounds
    end_cpu: Rounds
    inside_cpu: Rounds
    """Of an iteration within an epoch: without starts, ends, evaluations, and most of what a save takes."""


def whole_runs(
    contenders: Mapping[str, Run],
    make: Callable[[], Any],
    folder: Path,
    epochs: int,
    rounds: int,
    every: Mapping[str, int],
    afterwards: Mapping[str, Callable[[Path], float]],
) -> Found:
    """Run each contender once per round, the parts of their runs in turn, in a new order each time.

    A machine that is slow for a second is so for a part of each of them. The first round does not count. Garbage is
    collected between rounds and not in them.

    Args:
        contenders: The runs by name.
        make: Returns new work.
        folder: Where their files go.
        epochs: How many each run has.
        rounds: How many rounds count.
        every: In each how many rounds a contender runs that takes long.
        afterwards: What else is measured in the folder of a contender after its run, in ms.
    """
    courses: dict[str, list[Course]] = {name: [] for name in contenders}
    turns: dict[str, list[int]] = {name: [] for name in contenders}
    later: dict[str, list[float]] = {name: [] for name in afterwards}
    shuffle = random.Random(0).shuffle
    gc.disable()
    try:
        for turn in range(rounds + 1):
            gc.collect()
            order = [name for name in contenders if turn % every.get(name, 1) == 0]
            going = {name: Course(contenders[name], make(), folder / f"{turn} {name}") for name in order}
            for _ in range(epochs + 1):
                shuffle(order)
                for name in order:
                    going[name].advance()
            for name, course in going.items():
                value = afterwards[name](course.folder) if name in afterwards else 0.0
                if turn:
                    courses[name].append(course)
                    turns[name].append(turn)
                    if name in afterwards:
                        later[name].append(value)
    finally:
        gc.enable()

    def of(attribute: str, scale: float) -> dict[str, list[float]]:
        return {name: [getattr(one, attribute) * scale for one in found] for name, found in courses.items()}

    each = 1e6 / (epochs * len(make().data))
    ends = of("end", 1e3) | {f"{name}, afterwards": values for name, values in later.items()}
    turns |= {f"{name}, afterwards": turns[name] for name in later}
    starts = of("start", 1e3), of("start_cpu", 1e3)
    found = of("clock", each), of("cpu", each), *starts, ends, of("end_cpu", 1e3), of("inside_cpu", 1e6)
    return Found(*(Rounds(values, {name: turns[name] for name in values}) for values in found))
