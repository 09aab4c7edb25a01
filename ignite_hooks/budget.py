"""Which hooks cost more of the time than they may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

WEIGHED_EVERY = 100
"""So many iterations lie between two looks at what the hooks cost."""

FEWEST_CALLS = 2
"""A hook is judged by no fewer timed calls since it was last slowed down."""


class Spent(NamedTuple):
    """How many calls of a hook there were so far, how many of them were timed, and what these have taken."""

    calls: int
    timed: int
    seconds: float


@dataclass
class Budget:
    """Doubles the intervals of hooks until each takes no more than its share.

    Args:
        most: The share of the time that one hook may take.

    Example:
        >>> budget = Budget(0.02)
        >>> budget.begin(0.0)
        >>> spent = {"dear": Spent(10, 10, 0.5), "cheap": Spent(10, 10, 0.01)}
        >>> over = budget.over(spent, now=10.0)
        >>> budget.slow(over, spent, now=10.0)
        >>> over, budget.factors
        ({'dear': 0.05}, {'dear': 2})
    """

    most: float
    factors: dict[str, int] = field(default_factory=dict)
    """By how much the interval of each hook has grown."""
    _since: dict[str, tuple[Spent, float]] = field(default_factory=dict)
    _began: float = 0.0

    def begin(self, now: float) -> None:
        """A run begins: every hook has its own interval again."""
        self.factors.clear()
        self._since.clear()
        self._began = now

    def over(self, spent: Mapping[str, Spent], now: float) -> dict[str, float]:
        """The share of each hook that takes more than it may."""
        found = {}
        for name, (calls, timed, seconds) in spent.items():
            before, at = self._since.get(name, (Spent(0, 0, 0.0), self._began))
            if timed - before.timed >= FEWEST_CALLS and now > at:
                mean = (seconds - before.seconds) / (timed - before.timed)
                share = mean * (calls - before.calls) / (now - at)
                if share > self.most:
                    found[name] = share
        return found

    def slow(self, names: Iterable[str], spent: Mapping[str, Spent], now: float) -> None:
        """Double the intervals of these; from now on they are judged anew."""
        for name in names:
            self.factors[name] = 2 * self.factors.get(name, 1)
            self._since[name] = spent[name], now
