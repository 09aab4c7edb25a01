"""The report of a run: calls, time and failures of its hooks."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress, count

from ignite_hooks.terminal import width_of
from ignite_hooks.text import escaped, html_table, table

STEPS_PER_DOUBLING = 8
"""The buckets of times per doubling: a percentile is at most a ninth too large."""
SHORTEST, LONGEST = 2.0**-30, 2.0**18
"""The seconds up to which the first bucket counts, a billionth, and from which the last does, three days."""
_DOUBLINGS = round(math.log2(LONGEST / SHORTEST))
_NO_CALLS = array("Q", [0] * (_DOUBLINGS * STEPS_PER_DOUBLING + 1))


def _bucket(seconds: float) -> int:
    """Return the number of the bucket of a duration."""
    size = math.ceil(math.log2(max(seconds, SHORTEST) / SHORTEST) * STEPS_PER_DOUBLING)
    return min(size, len(_NO_CALLS) - 1)


@dataclass
class Tally:
    """The calls of one slot. All are counted; those made in every iteration are only timed now and then."""

    calls: int = 0
    timed: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    first: float = 0.0
    """The first of the timed calls: it may load and allocate what no other has to."""
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    """The number of calls of about the same duration, by the logarithm of that duration; all of them are there from the
    first call on, so that a long run takes no more memory than a short one.
    """

    def time(self, seconds: float) -> None:
        """Record the duration of one call."""
        if self.timed == 0:
            self.first = seconds
            self.lengths.extend(_NO_CALLS)
        self.timed += 1
        self.seconds += seconds
        self.worst = max(self.worst, seconds)
        self.lengths[_bucket(seconds)] += 1

    def percentile(self, share: float) -> float:
        """Return the seconds that this share of the timed calls did not exceed, at most a ninth too many.

        Example:
            >>> tally = Tally()
            >>> for milliseconds in range(1, 101):
            ...     tally.time(milliseconds / 1000)
            >>> f"{tally.percentile(0.5):.3f} {tally.percentile(0.99):.3f} {tally.percentile(1):.3f}"
            '0.053 0.100 0.100'
        """
        wanted, seen = share * self.timed, 0
        for bucket in compress(range(len(self.lengths) - 1), self.lengths):
            seen += self.lengths[bucket]
            if seen >= wanted:
                return min(self.worst, float(2 ** (bucket / STEPS_PER_DOUBLING)) * SHORTEST)
        return self.worst

    @classmethod
    def together(cls, tallies: Iterable[Tally]) -> Tally:
        """Return several tallies as one, whose total is the sum of theirs."""
        whole = cls(lengths=array("Q", _NO_CALLS))
        for tally in tallies:
            # Each timed call represents the untimed calls made for it.
            weight = tally.calls / tally.timed if tally.timed else 0.0
            whole.calls += tally.calls
            whole.timed += tally.calls
            whole.seconds += tally.total
            whole.worst = max(whole.worst, tally.worst)
            # Few of the buckets hold any calls.
            for bucket in compress(count(), tally.lengths):
                whole.lengths[bucket] += round(tally.lengths[bucket] * weight)
        return whole

    @property
    def mean(self) -> float:
        """Seconds per call."""
        return self.total / self.calls if self.calls and self.timed else 0.0

    @property
    def total(self) -> float:
        """The estimated seconds of all calls, assuming that untimed calls took as long as timed ones.

        The first and the longest call are not extrapolated: one long wait would be counted hundreds of times.
        """
        if not self.timed:
            return 0.0
        alone = {self.first, self.worst} if self.timed > 2 else {self.first}
        others = self.timed - len(alone)
        usual = (self.seconds - sum(alone)) / others if others > 0 else self.seconds
        return self.seconds + max(0, self.calls - self.timed) * usual


@dataclass
class Failures:
    """The failures of one hook."""

    count: int = 0
    in_a_row: int = 0
    last: str = ""
    last_call: int = -2
    off: bool = False


@dataclass(repr=False)
class Report:
    """The report that ``runner.report()`` returns; print it, or read ``tallies`` and ``failures``."""

    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """The calls, by hook and method."""
    failures: dict[str, Failures] = field(default_factory=dict)
    """The failures by hook; hooks that never failed are not in it."""
    seconds: float = 0.0
    """The duration of the run."""
    findings: dict[str, list[str]] = field(default_factory=dict)
    """What stands out in the run, as sentences, by the hook that found it."""
    slowed: dict[str, str] = field(default_factory=dict)
    """The hooks that went over ``overhead_budget``, and their new intervals."""
    logged: dict[str, Tally] = field(default_factory=dict)
    """The total cost of each hook that the log has told at the end of the run, before the cleanup; empty before."""

    def hooks(self) -> dict[str, Tally]:
        """Return the total cost of each hook, the most expensive first."""
        names = dict.fromkeys(hook for hook, _ in self.tallies)
        whole = {name: Tally.together(t for (hook, _), t in self.tallies.items() if hook == name) for name in names}
        return dict(sorted(whole.items(), key=lambda item: -item[1].total))

    def costs(self) -> list[dict[str, str]]:
        """Return the total cost of each hook as rows of a table."""
        return self._costs(self.hooks())

    def _costs(self, hooks: Mapping[str, Tally]) -> list[dict[str, str]]:
        return [{"hook": hook, **self._cost(tally)} for hook, tally in hooks.items() if tally.calls]

    def _cost(self, tally: Tally) -> dict[str, str]:
        return {
            "calls": str(tally.calls),
            "total ms": f"{tally.total * 1e3:.2f}",
            "mean µs": f"{tally.mean * 1e6:.1f}",
            "p99 µs": f"{tally.percentile(0.99) * 1e6:.1f}",
            "worst µs": f"{tally.worst * 1e6:.1f}",
            "share": f"{tally.total / self.seconds:.2%}" if self.seconds else "",
        }

    def rows(self) -> list[dict[str, str]]:
        """Return the tallies as rows of a table, the most expensive first."""
        called = [(key, tally) for key, tally in self.tallies.items() if tally.calls]
        return [
            {"hook": hook, "method": method, **self._cost(tally)}
            for (hook, method), tally in sorted(called, key=lambda item: -item[1].total)
        ]

    def failure_lines(self) -> list[str]:
        """Return a line for each hook that failed."""
        lines = []
        for hook, record in self.failures.items():
            times = "once" if record.count == 1 else f"{record.count} times"
            lines.append(f"{hook} failed {times}{', switched off' if record.off else ''}: {record.last}")
        return lines

    def finding_lines(self) -> list[str]:
        """Return a line for each thing that stands out."""
        found = [f"{hook}: {text}" for hook, texts in self.findings.items() for text in texts]
        return found + [f"{hook} {text}" for hook, text in self.slowed.items()]

    def brief(self) -> str:
        """Return the cost of each hook that the log tells, without a row for every point, then what failed."""
        lines = [*self.failure_lines(), *self.finding_lines()]
        return "\n".join([table(self._costs(self.logged)) or "no hook was called", *lines])

    def __str__(self) -> str:
        return self._text(None)

    def _text(self, width: int | None) -> str:
        parts = [table(self.rows(), width) or "no hook was called", *self.failure_lines(), *self.finding_lines()]
        several = len({hook for hook, _ in self.tallies}) > 1
        return "\n".join([*([table(self.costs(), width), ""] if several and self.costs() else []), *parts])

    def __repr__(self) -> str:
        """Show the report, as wide as the terminal is."""
        text, whole = self._text(width_of(sys.stdout)), str(self)
        return text if text == whole else f"{text}\nsome columns are not shown; print() shows all"

    def _repr_html_(self) -> str:
        several = len({hook for hook, _ in self.tallies}) > 1
        tables = [html_table(rows) for rows in (self.costs() if several else [], self.rows()) if rows]
        lines = [*([] if tables else ["no hook was called"]), *self.failure_lines(), *self.finding_lines()]
        return "".join([*tables, *(f"<div>{escaped(line)}</div>" for line in lines)])
