"""What the hooks of a run did and cost: calls, time, failures."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from ignite_hooks.plan import table


@dataclass
class Tally:
    """The record of one slot. Calls are counted all, timed only now and then where they come every iteration."""

    calls: int = 0
    timed: int = 0
    seconds: float = 0.0
    worst: float = 0.0

    def time(self, seconds: float) -> None:
        """Note how long one call took."""
        self.timed += 1
        self.seconds += seconds
        self.worst = max(self.worst, seconds)

    @property
    def mean(self) -> float:
        """Seconds per call."""
        return self.seconds / self.timed if self.timed else 0.0

    @property
    def total(self) -> float:
        """Seconds of all calls, taken from those that were timed."""
        return self.mean * self.calls


@dataclass
class Failures:
    """The record of one hook's failures."""

    count: int = 0
    in_a_row: int = 0
    last: str = ""
    last_call: int = -2
    off: bool = False


@dataclass
class Report:
    """What ``runner.report()`` returns; print it, or look into ``tallies`` and ``failures``."""

    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """By hook and method."""
    failures: dict[str, Failures] = field(default_factory=dict)
    """By hook; hooks that never failed are not in it."""
    seconds: float = 0.0
    """How long the run took."""

    def rows(self) -> list[dict[str, str]]:
        """The tallies as a table, the most expensive first."""
        called = [(key, tally) for key, tally in self.tallies.items() if tally.calls]
        return [
            {
                "hook": hook,
                "point": point,
                "calls": str(tally.calls),
                "total ms": f"{tally.total * 1e3:.2f}",
                "mean µs": f"{tally.mean * 1e6:.1f}",
                "worst µs": f"{tally.worst * 1e6:.1f}",
                "share": f"{tally.total / self.seconds:.2%}" if self.seconds else "",
            }
            for (hook, point), tally in sorted(called, key=lambda item: -item[1].total)
        ]

    def failure_lines(self) -> list[str]:
        """A line for each hook that failed."""
        lines = []
        for hook, record in self.failures.items():
            times = "once" if record.count == 1 else f"{record.count} times"
            lines.append(f"{hook} failed {times}{', switched off' if record.off else ''}: {record.last}")
        return lines

    def __str__(self) -> str:
        return "\n".join([table(self.rows()) or "no hook was called", *self.failure_lines()])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
