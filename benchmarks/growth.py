"""How counts of calls grow with hooks, tensors and iterations: the exponent of each, free of noise.

A count that grows as the square of something is cheap at ten and the end at a thousand. Each row counts the functions
of Python that an operation calls at several sizes; the exponent is the slope of their logarithms between the two
largest. ``make scale`` writes the table of ``docs/scale.md``, and ``tests/benchmarks/test_growth.py`` holds the
exponents at smaller sizes.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from ignite.engine import Engine
from meter import mean_cost_of

from ignite_hooks import BaseHook, attach_hooks


class Idle(BaseHook):
    """Answers one iteration in a million."""

    def after_train_iter(self, runner: Any) -> None:
        pass


class Acting(BaseHook):
    """Answers every iteration."""

    def after_train_iter(self, runner: Any) -> None:
        pass


class Counter:
    """Counts the Python functions that are called while it is entered."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Counter:
        self._before = sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def _profile(self, frame: FrameType, event: str, arg: object) -> None:
        self.calls += event == "call"

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)


def hooks_of(count: int, cls: type[BaseHook], **settings: Any) -> list[BaseHook]:
    """Return this many hooks of a class."""
    return [cls(name=f"hook{i}", **settings) for i in range(count)]


def attached(folder: Path, hooks: Sequence[Any], **services: Any) -> Engine:
    """Return an engine with an empty step and these hooks."""
    trainer = Engine(lambda *_: 0.5)
    attach_hooks(trainer, list(hooks), work_dir=folder, **services)
    return trainer


def in_iteration(folder: Path, hooks: Sequence[Any], first: int = 10) -> float:
    """Return the functions called in a quiet iteration: Python's and C's."""
    cost = mean_cost_of(attached(folder, hooks), first, 5)
    return cost.calls + cost.c_calls


def to_attach(folder: Path, count: int) -> float:
    """Return the functions called in attaching this many hooks."""
    hooks = hooks_of(count, Idle, interval=1_000_000)
    with Counter() as counter:
        attached(folder, hooks)
    return counter.calls


def around_run(folder: Path, count: int, hooks: Sequence[Any] = (), **services: Any) -> float:
    """Return the functions called in a run of one iteration, from its start to its end."""
    trainer = attached(folder, hooks or hooks_of(count, Idle, interval=1_000_000), **services)
    with Counter() as counter:
        trainer.run([0], max_epochs=1)
    return counter.calls


def saving(folder: Path, count: int) -> float:
    """Return the functions called in a run of one iteration with a checkpoint, for this many tensors."""
    model = torch.nn.ParameterList([torch.zeros(8) for _ in range(count)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hooks = [{"type": "CheckpointHook", "async_save": False}]
    return around_run(folder, count, hooks, model=model, optimizer=optimizer)


def in_old_run(folder: Path, iteration: int) -> float:
    """Return the functions called in a quiet iteration of the logging set, that late in a run."""
    return in_iteration(folder, ["IterTimerHook", "LoggerHook"], iteration + 10)


class Row(NamedTuple):
    """What is counted, at which sizes, and the largest exponent that is right."""

    of: str
    count: Callable[[Path, int], float]
    most: float
    sizes: tuple[int, ...] = (10, 100, 1000)


ROWS = {
    "an iteration, hooks that are not due": Row(
        "hooks", lambda folder, n: in_iteration(folder, hooks_of(n, Idle, interval=1_000_000)), 0.0
    ),
    "an iteration, hooks that act": Row("hooks", lambda folder, n: in_iteration(folder, hooks_of(n, Acting)), 1.0),
    "attaching": Row("hooks", to_attach, 1.05),
    "a run of one iteration, but for its hooks' own work": Row("hooks", around_run, 1.05),
    "a run of one iteration with a checkpoint": Row("tensors", saving, 1.0),
    "a quiet iteration of the logging set, so late in a run": Row("iterations", in_old_run, 0.0, (100, 1000, 10_000)),
}


def counts_of(row: Row, sizes: Sequence[int] = ()) -> list[float]:
    """Return the counts of a row, each the second of two: the first imports and fills caches."""
    found = []
    for size in sizes or row.sizes:
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                count = row.count(Path(folder), size)
        found.append(count)
    return found


def exponent(sizes: Sequence[int], counts: Sequence[float]) -> float:
    """Return the power with which counts grow, between the two largest sizes.

    >>> exponent([10, 100], [7, 7]), exponent([10, 100, 1000], [0, 100, 1000]), exponent([10, 100], [1, 100])
    (0.0, 1.0, 2.0)
    """
    (small, large), (few, many) = sizes[-2:], counts[-2:]
    return round(math.log(many / few) / math.log(large / small), 2)


def table(most_sizes: int = 3) -> Iterator[str]:
    """Yield the table of the page.

    Args:
        most_sizes: How many sizes of each row are counted, from the smallest on.
    """
    yield "| functions called in | of how many | at each size | exponent |"
    yield "|---|--:|--:|--:|"
    for name, row in ROWS.items():
        sizes = row.sizes[:most_sizes]
        counts = counts_of(row, sizes)
        shown = " / ".join(f"{count:,.0f}" for count in counts)
        each = " / ".join(f"{size:,}" for size in sizes)
        yield f"| {name} | {each} {row.of} | {shown} | {exponent(sizes, counts):.2f} |"
