"""The budget for hooks that only observe: those that take more of the time than they may act less often."""

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
"""The overhead budget is checked this often."""

FEWEST_CALLS = 2
"""A hook is judged by at least this many timed calls since it was last slowed down."""


class Spent(NamedTuple):
    """The calls of a hook so far, how many of them were timed, and the seconds these took."""

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
        """Start a run: every hook has its own interval again."""
        self.factors.clear()
        self._since.clear()
        self._began = now

    def over(self, spent: Mapping[str, Spent], now: float) -> dict[str, float]:
        """Return the share of each hook that takes more than it may."""
        found = {}
        for name, (calls, timed, seconds) in spent.items():
            before, at = self._since.get(name, (Spent(0, 0, 0.0), self._began))
            if timed - before.timed >= FEWEST_CALLS and now > at:
                mean = (seconds - before.seconds) / (timed - before.timed)
                # Few timed calls may have been slow ones; no hook takes more than all of the time.
                share = min(1.0, mean * (calls - before.calls) / (now - at))
                if share > self.most:
                    found[name] = share
        return found

    def slow(self, names: Iterable[str], spent: Mapping[str, Spent], now: float) -> None:
        """Double the intervals of these hooks and judge them from now on."""
        for name in names:
            self.factors[name] = 2 * self.factors.get(name, 1)
            self._since[name] = spent[name], now


class BudgetController:
    """Holds the hooks of a run that only observe to a budget.

    Args:
        most: The share of the time that one hook may take.
        runner: The run.
        calls: The dispatcher, which counts and times the calls.
        now: Seconds.
    """

    def __init__(self, most: float, runner: Runner, calls: Dispatcher, now: Callable[[], float]) -> None:
        self.runner, self._calls, self._now = runner, calls, now
        self._budget = Budget(most)

    @property
    def factors(self) -> Mapping[str, int]:
        """By how much the interval of each hook has grown."""
        return self._budget.factors

    def begin(self) -> None:
        """Start judging from now on."""
        self._budget.begin(self._now())

    def schedule_next(self) -> None:
        """Check again after some iterations."""
        self._calls.next_weighing = self.runner.global_step + ITERATIONS_BETWEEN_CHECKS

    def slow_down(self) -> dict[str, float | None]:
        """Slow down hooks; return them with their share of the time, where it is known on this rank."""
        self.schedule_next()
        slots = {name: self._slots_to_slow(name, hook) for name, hook in self.runner.hooks.items()}
        spent = {
            name: _spent([self._calls.report.tallies[name, slot.method] for slot in found])
            for name, found in slots.items()
            if found and name not in self._calls.off
        }
        now = self._now()
        over = self._budget.over(spent, now)
        # Every rank has the same plan, so it is rank 0 that decides.
        mask = broadcast_object(sum(1 << i for i, name in enumerate(spent) if name in over))
        chosen = [name for i, name in enumerate(spent) if mask >> i & 1]
        self._budget.slow(chosen, spent, now)
        return {name: over.get(name) for name in chosen}

    def report(self, slowed: Mapping[str, float | None]) -> None:
        """Log and report the slower hooks, once the plan has the new intervals."""
        for name, share in slowed.items():
            slot = self._slots_to_slow(name, self.runner.hooks[name])[0]
            took = "took too much of the time" if share is None else f"took {share:.1%} of the time"
            text = f"{took}, more than the overhead_budget of {self._budget.most:.1%}: now {slot.how_often}"
            self._calls.report.slowed[name] = text
            self.runner.logger.warning("%s %s", name, text)

    def _slots_to_slow(self, name: str, hook: object) -> list[Slot]:
        """Return the slots of a hook that have an interval, where it only observes: nothing depends on when it acts."""
        observes = isinstance(hook, BaseHook) and type(hook).on_error != "raise" and not hook_state(hook)
        # A schedule of another kind, such as that of a profiler, has no interval that could be longer.
        return [s for s in self.runner.plan if s.hook == name and type(s.when) is When and not s.decides and observes]


def _spent(tallies: list[Tally]) -> Spent:
    # Without the first of each, which may load and allocate what no other has to.
    calls = sum(tally.calls for tally in tallies)
    timed = sum(max(0, tally.timed - 1) for tally in tallies)
    return Spent(calls, timed, sum(tally.seconds - tally.first for tally in tallies))
