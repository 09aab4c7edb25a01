"""The overhead budget: observing hooks that take more than their share of the time act less often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ignite_hooks.checkpoint.capture import hook_state
from ignite_hooks.distributed.collectives import broadcast_object
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.plan.schedule import When

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Dispatcher
    from ignite_hooks.plan.slots import Slot
    from ignite_hooks.run.report import Tally
    from ignite_hooks.run.runner import Runner

ITERATIONS_BETWEEN_CHECKS = 100
"""Iterations between two checks of the overhead budget."""

FEWEST_CALLS = 2
"""The least number of timed calls, since a hook was last slowed down, that it is judged by."""


class Spent(NamedTuple):
    """The calls of a hook so far, the number of timed ones, and the seconds those took."""

    calls: int
    timed: int
    seconds: float


@dataclass
class Budget:
    """Doubles the intervals of hooks until each stays within its share of the time.

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
    """The factor by which the interval of each hook has grown."""
    _since: dict[str, tuple[Spent, float]] = field(default_factory=dict)
    _began: float = 0.0

    def begin(self, now: float) -> None:
        """Start a run: reset every hook to its configured interval."""
        self.factors.clear()
        self._since.clear()
        self._began = now

    def over(self, spent: Mapping[str, Spent], now: float) -> dict[str, float]:
        """Return the share of the time of each hook that is over the budget."""
        found = {}
        for name, (calls, timed, seconds) in spent.items():
            before, at = self._since.get(name, (Spent(0, 0, 0.0), self._began))
            if timed - before.timed >= FEWEST_CALLS and now > at:
                mean = (seconds - before.seconds) / (timed - before.timed)
                # A few slow calls may push the estimate above 1, but no hook takes more than all of the time.
                share = min(1.0, mean * (calls - before.calls) / (now - at))
                if share > self.most:
                    found[name] = share
        return found

    def slow(self, names: Iterable[str], spent: Mapping[str, Spent], now: float) -> None:
        """Double the intervals of these hooks, and judge them only by calls from now on."""
        for name in names:
            self.factors[name] = 2 * self.factors.get(name, 1)
            self._since[name] = spent[name], now


class BudgetController:
    """Keeps the observing hooks of a run within the overhead budget.

    Args:
        most: The share of the time that one hook may take.
        runner: The run.
        dispatcher: Calls the hooks, and counts and times the calls.
        now: Returns the time in seconds.
    """

    def __init__(self, most: float, runner: Runner, dispatcher: Dispatcher, now: Callable[[], float]) -> None:
        self.runner, self._dispatcher, self._now = runner, dispatcher, now
        self._budget = Budget(most)

    @property
    def factors(self) -> Mapping[str, int]:
        """The factor by which the interval of each hook has grown."""
        return self._budget.factors

    def begin(self) -> None:
        """Start judging from now on."""
        self._budget.begin(self._now())

    def schedule_next(self) -> None:
        """Check again after some iterations."""
        self._dispatcher.next_budget_check = self.runner.global_step + ITERATIONS_BETWEEN_CHECKS

    def slow_down(self) -> dict[str, float | None]:
        """Slow down the hooks over the budget; return each with its share of the time, None if unknown here."""
        self.schedule_next()
        slots = {name: self._slots_to_slow(name, hook) for name, hook in self.runner.hooks.items()}
        spent = {
            name: _spent([self._dispatcher.report.tallies[name, slot.method] for slot in found])
            for name, found in slots.items()
            if found and name not in self._dispatcher.disabled
        }
        now = self._now()
        over = self._budget.over(spent, now)
        # Every rank must have the same plan, so rank 0 decides.
        mask = broadcast_object(sum(1 << i for i, name in enumerate(spent) if name in over))
        chosen = [name for i, name in enumerate(spent) if mask >> i & 1]
        self._budget.slow(chosen, spent, now)
        return {name: over.get(name) for name in chosen}

    def report(self, slowed: Mapping[str, float | None]) -> None:
        """Log and report the hooks that were slowed down, once the plan has their new intervals."""
        for name, share in slowed.items():
            slot = self._slots_to_slow(name, self.runner.hooks[name])[0]
            took = "took too much of the time" if share is None else f"took {share:.1%} of the time"
            text = f"{took}, more than the overhead_budget of {self._budget.most:.1%}: now {slot.how_often}"
            self._dispatcher.report.slowed[name] = text
            self.runner.logger.warning("%s %s", name, text)

    def _slots_to_slow(self, name: str, hook: object) -> list[Slot]:
        """Return the slots of an observing hook that have an interval; nothing depends on when such a hook acts."""
        observes = isinstance(hook, BaseHook) and type(hook).on_error != "raise" and not hook_state(hook)
        # Other kinds of schedules, such as that of a profiler, have no interval to lengthen.
        return [s for s in self.runner.plan if s.hook == name and type(s.when) is When and not s.decides and observes]


def _spent(tallies: list[Tally]) -> Spent:
    # The first call of each slot is left out: it may load and allocate what later ones need not.
    calls = sum(tally.calls for tally in tallies)
    timed = sum(max(0, tally.timed - 1) for tally in tallies)
    return Spent(calls, timed, sum(tally.seconds - tally.first for tally in tallies))
