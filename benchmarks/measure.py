"""What the benchmarks share: interleaved repeats, medians with quartiles, a table, JSON.

A machine that others use changes its speed from second to second, so no number here comes from one long run: every
case runs once per round, in a new order each round, and a ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

OURS = "ours"
"""The prefix of the names of our cases, which charts show in their own colour."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a sample."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least two values."""
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)

    def text(self, form: str) -> tuple[str, str]:
        """Return the median and the quartiles as text."""
        return f"{self.median:{form}}", f"{self.lower:{form}} … {self.upper:{form}}"


class Rounds:
    """The measured values of every case, round by round.

    Args:
        values: Those of each case.
        turns: In which rounds a case was measured that was not in all of them.
    """

    def __init__(self, values: Mapping[str, Sequence[float]], turns: Mapping[str, Sequence[int]] | None = None) -> None:
        self.values, self._turns = values, turns or {}

    def _by_turn(self, case: str) -> dict[int, float]:
        values = self.values[case]
        return dict(zip(self._turns.get(case, range(1, len(values) + 1)), values, strict=True))

    def add(self, name: str, values: Sequence[float], case: str) -> None:
        """Add a second number that a case has measured each time it ran; its last values count."""
        self.values = {**self.values, name: values[len(values) - len(self.values[case]) :]}
        if case in self._turns:
            self._turns = {**self._turns, name: self._turns[case]}

    def spread(self, case: str) -> Spread:
        """Return the spread of one case."""
        return Spread.of(self.values[case])

    def combined(self, combine: Callable[..., float], *cases: str) -> Spread:
        """Return the spread of a number made from several cases of the same round: a ratio, a slope.

        Rounds in which one of the cases was not measured are left out.
        """
        found = [self._by_turn(case) for case in cases]
        shared = [turn for turn in found[0] if all(turn in each for each in found)]
        return Spread.of([combine(*(each[turn] for each in found)) for turn in shared])

    def against(self, case: str, other: str, without: str) -> Spread:
        """Return what a case takes more than `without`, as a multiple of the median of what another takes more.

        Not round by round: where the other takes hardly more, noise would make a ratio of any size.
        """
        least = self.combined(lambda a, b: a - b, other, without).median
        return self.combined(lambda a, b: (a - b) / least, case, without)


def interleaved(
    cases: Mapping[str, Callable[[], float]], rounds: int, every: Mapping[str, int] | None = None
) -> Rounds:
    """Run every case once per round, in a new order each round, after one round that does not count.

    Garbage is collected between rounds and not in them.

    Args:
        cases: What to measure.
        rounds: How many rounds count.
        every: In each how many rounds a case runs that takes long; it counts from its first time on.
    """
    values: dict[str, list[float]] = {name: [] for name in cases}
    turns: dict[str, list[int]] = {name: [] for name in cases}
    pace = every or {}
    order = list(cases)
    shuffle = random.Random(0).shuffle
    gc.disable()
    try:
        for turn in range(rounds + 1):
            shuffle(order)
            if turn % 50 == 0:
                gc.collect()
            for name in order:
                if (turn + 1) % pace.get(name, 1):
                    continue
                value = cases[name]()
                if turn:
                    values[name].append(value)
                    turns[name].append(turn)
    finally:
        gc.enable()
    return Rounds(values, turns)


class Lane:
    """A run in progress that is advanced a number of iterations at a time, in a separate thread.

    While one lane runs all others wait, so cases can take turns within milliseconds, and neither the start nor the end
    of a run is ever timed. The clock is read by the data: when the batch after the warm-up is asked for, and when the
    one after the last is; handing out a batch costs no Python code.

    Args:
        run: An Ignite engine, or a function that goes through the data it is given.
        iterations: How many are timed at a time.
        warm_up: How many come before these.
        clock: Seconds.
        batch: What the data consist of; not None, which Lightning leaves out with all that its callbacks do.
    """

    def __init__(
        self,
        run: Any,
        iterations: int,
        warm_up: int = 20,
        clock: Callable[[], float] = time.perf_counter,
        batch: Any = 0,
    ) -> None:
        self._batch = batch
        self._iterations, self._warm_up, self._clock = iterations, warm_up, clock
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False
        self._seconds = 0.0
        follow = run if callable(run) else lambda data: run.run(data, max_epochs=1)
        self._thread = threading.Thread(target=self._run, args=(follow,), daemon=True)
        self._error: BaseException | None = None

    def _run(self, follow: Callable[[Iterable[Any]], Any]) -> None:
        try:
            follow(chain.from_iterable(self._parts()))
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def _parts(self) -> Iterator[Iterator[Any]]:
        while not self._over:
            yield repeat(self._batch, self._warm_up)
            start = self._clock()
            yield repeat(self._batch, self._iterations)
            self._seconds = self._clock() - start
            self._done.release()
            self._go.acquire()

    def advance(self) -> float:
        """Run the next iterations; return the nanoseconds per iteration."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._seconds / self._iterations * 1e9

    def end(self) -> None:
        """Let the run end."""
        self._over = True
        self._go.release()
        self._thread.join()


@dataclass(frozen=True)
class Figure:
    """A number with the target it is held against; a target of None is for information.

    Args:
        name: What was measured.
        measured: The number.
        unit: Its unit.
        at_most: The target.
        why: Where the target is known to be out of reach, the reason, with what it was found by.
    """

    name: str
    measured: Spread
    unit: str
    at_most: float | None = None
    why: str = ""

    @property
    def verdict(self) -> str:
        """Whether the median reaches the target, in words."""
        if self.at_most is None:
            return ""
        return "reached" if self.measured.median <= self.at_most else "missed"


@dataclass(frozen=True)
class Chart:
    """Bars beside each other: less is better.

    Args:
        name: The name of its file.
        title: What is compared.
        unit: The unit of the bars.
        bars: Who takes how much; the names of ours begin with ``ours``.
        limit: What cannot be gone below, drawn as a line.
        limit_name: What that is.
    """

    name: str
    title: str
    unit: str
    bars: Mapping[str, Spread]
    limit: float | None = None
    limit_name: str = ""


@dataclass(frozen=True)
class Result:
    """What a script has measured.

    Args:
        about: One line above its table.
        unit: The unit of the values.
        values: Every case, round by round.
        figures: The numbers that count, with their targets.
        charts: The pictures of the page.
        form: How numbers are written.
        notes: What else there is to say, a sentence each.
    """

    about: str
    unit: str
    values: Mapping[str, Sequence[float]]
    figures: Sequence[Figure]
    charts: Sequence[Chart] = ()
    form: str = ",.2f"
    notes: Sequence[str] = field(default_factory=tuple)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Text to the left in the first column, to the right in the others."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip())
    print()


def print_figures(figures: Sequence[Figure], form: str = ".2f") -> None:
    """Print a table of figures and targets."""
    rows = []
    for figure in figures:
        median, quartiles = figure.measured.text(form)
        target = "" if figure.at_most is None else f"≤ {figure.at_most:g}"
        rows.append([figure.name, f"{median} {figure.unit}", quartiles, target, figure.verdict])
    print_table(["figure", "median", "quartiles", "target", ""], rows)


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of any number of values."""
    return Spread.of(values) if len(values) > 1 else Spread(values[0], values[0], values[0])


def exactly(value: float) -> Spread:
    """Return the figure of a number that was counted."""
    return Spread(value, value, value)


def arguments(description: str | None) -> argparse.Namespace:
    """Return the arguments ``--quick`` and ``--json FILE``."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short rounds: does it run, not how fast is it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every number to FILE")
    return parser.parse_args()


def put_in(page: Path, name: str, command: str, lines: Sequence[str]) -> None:
    """Replace what stands between the marks of a name, which tell what writes it."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: written by {command} -->", f"<!-- end of {name} -->"
    found = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not found.search(text):
        raise SystemExit(f"{page} has no place called {name}")
    page.write_text(found.sub(lambda _: "\n".join([begin, "", *lines, "", end]), text), encoding="utf-8")


def as_json(result: Result, seconds: float) -> dict[str, Any]:
    """Return a result as plain types."""
    return {
        "about": result.about,
        "unit": result.unit,
        "form": result.form,
        "seconds": round(seconds, 1),
        "notes": list(result.notes),
        "values": {name: list(values) for name, values in result.values.items()},
        "figures": [{**asdict(figure), "verdict": figure.verdict} for figure in result.figures],
        "charts": [asdict(chart) for chart in result.charts],
    }


def script(measure: Callable[[bool], Result], description: str | None) -> None:
    """Run a script: measure, print, write.

    Args:
        measure: Measures; receives whether it only has to show that it works.
        description: The docstring of the script.
    """
    given = arguments(description)
    start = time.perf_counter()
    result = measure(given.quick)
    seconds = time.perf_counter() - start
    print(f"{result.about}\n")
    rows = [[name, *spread_of(values).text(result.form), str(len(values))] for name, values in result.values.items()]
    print_table([result.unit, "median", "quartiles", "rounds"], rows)
    print_figures(result.figures, result.form)
    for note in result.notes:
        print(note)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(as_json(result, seconds), indent=1, ensure_ascii=False)
        given.json.write_text(text + "\n", encoding="utf-8")
