"""Slots made ready for a run, and the one way hooks are called: timed, counted, failing as they were told to."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.engine.accounting import Failures, Report, Tally
from ignite_hooks.errors import ConfigError, HookError, Problem
from ignite_hooks.plan.arguments import ArgumentSets, Available, CannotSupply, match
from ignite_hooks.plan.plan import Plan, Slot
from ignite_hooks.plan.points import EPOCH_POINTS, ITERATION_POINTS, POINTS
from ignite_hooks.plan.schedule import NEVER, Clock, When
from ignite_hooks.run.runner import Runner
from ignite_hooks.run.services import KNOWN_SERVICES, LIVE
from ignite_hooks.secrets import masked

IN_A_ROW = 3
"""So many failures in a row switch a hook off whose ``on_error`` is ``warn``."""


class Call:
    """A slot made ready: the function, the list its arguments stand in, its record, and when it is next due."""

    __slots__ = ("arguments", "function", "next_due", "slot", "tally")

    def __init__(self, slot: Slot, function: Callable[..., Any], arguments: list[Any], tally: Tally) -> None:
        self.slot, self.function, self.arguments, self.tally = slot, function, arguments, tally
        self.next_due = 0


def on_error_of(hook: object) -> str:
    """What a failure of a hook comes to: one that talks to the same hook on other ranks cannot be left out on one."""
    alone = world_size() == 1 or not getattr(type(hook), "collective", False)
    return (getattr(hook, "on_error", None) or "raise") if alone else "raise"


class Dispatcher:
    """The calls of one run, point by point.

    Args:
        agree: Makes an answer of rank 0 the answer of all ranks.
        now: Seconds, for schedules in seconds.
    """

    def __init__(self, agree: Callable[[int, int], tuple[int, int]], now: Callable[[], float] = time.monotonic) -> None:
        self.is_bound = False
        self.report = Report()
        self.off: set[str] = set()
        """The hooks that are switched off; they are only cleaned up."""
        self._plan = Plan({})
        self._ready: dict[str, tuple[list[Call], ArgumentSets]] = {}
        self._payload: Mapping[str, Any] = {}
        self._inner_seconds = 0.0
        self._clocks = {"iter": Clock(now, agree), "epoch": Clock(now, agree)}
        self._fired: dict[str, tuple[int, frozenset[object]]] = {}
        self.next_weighing = NEVER
        """The next iteration after which somebody looks at what the hooks cost."""

    def bind(self, runner: Runner) -> None:
        """Hold the runner, which supplies the arguments of methods, until ``forget``."""
        self.runner, self.is_bound = runner, True

    # -- making ready -----------------------------------------------------------------------------------------

    def prepare(self, plan: Plan) -> None:
        """Read every signature of a plan; what nobody can supply is one error, before anything is called."""
        self._plan = plan
        problems: list[Problem] = []
        ready = {}
        for point in POINTS.values():
            ready[point.name] = self._make_ready(point.name, point.payload, problems)
        if problems:
            raise ConfigError(problems)
        self._ready = ready

    def forget(self) -> None:
        """Let go of everything that belongs to the run."""
        self._ready = {}
        self._payload = {}
        if self.is_bound:
            self.is_bound = False
            del self.runner

    def at(self, point: str) -> tuple[list[Call], ArgumentSets]:
        """The calls of a point in order, and their arguments."""
        return self._ready.get(point) or ([], ArgumentSets(self.look_up))

    def _make_ready(
        self, point: str, payload: Collection[str], problems: list[Problem]
    ) -> tuple[list[Call], ArgumentSets]:
        services = self.runner.services
        withheld = [service for service in KNOWN_SERVICES if service not in services]
        available = Available(self.runner, services, LIVE, payload, withheld)
        sets = ArgumentSets(self.look_up)
        calls = []
        for slot in self._plan.at(point):
            if slot.hook in self.off and point != "cleanup":
                continue
            try:
                function, sources = match(slot.call, available, f"{slot.hook}.{slot.method}")
            except CannotSupply as error:
                problems.append(Problem("", str(error)))
                continue
            tally = self.report.tallies.setdefault((slot.hook, slot.method), Tally())
            calls.append(Call(slot, function, sets.of(sources), tally))
        return calls, sets

    def look_up(self, name: str) -> Any:
        """What a name stands for now."""
        return self._payload[name] if name in self._payload else getattr(self.runner, name)

    # -- calling ----------------------------------------------------------------------------------------------

    def run(
        self, point: str, payload: Mapping[str, Any] | None = None, *, quietly: bool = False, to_the_end: bool = False
    ) -> None:
        """Call the hooks of one point in order.

        Args:
            point: A known point, or any method name.
            payload: What the point itself has to give.
            quietly: Log failures and go on, because an exception is already on its way.
            to_the_end: Call every hook even when one fails; the first failure is raised at the end.
        """
        if point not in self._ready:
            problems: list[Problem] = []
            calls, sets = self._make_ready(point, tuple(payload or ()), problems)
            if problems:
                raise ConfigError(problems)
        else:
            calls, sets = self._ready[point]
        if not calls:
            return
        outer, self._payload = self._payload, payload or {}
        first_error: Exception | None = None
        try:
            for call in calls:
                if call.slot.hook in self.off and point != "cleanup":
                    continue
                if not self._is_due(call):
                    continue
                sets.gather()
                try:
                    self.call(call, quietly=quietly)
                except Exception as error:
                    if not to_the_end:
                        raise
                    first_error = first_error or error
        finally:
            sets.release()
            self._payload = outer
        if first_error is not None:
            raise first_error

    def clean_up(self, name: str, hook: object) -> None:
        """Clean up after one hook, which has left the plan."""
        whole, self._plan = self._plan, Plan({name: hook})
        try:
            calls, sets = self._make_ready("cleanup", (), [])
        finally:
            self._plan = whole
        sets.gather()
        try:
            for call in calls:
                self.call(call)
        finally:
            sets.release()

    def call(self, call: Call, *, quietly: bool = False) -> None:
        """Make one call and note its time."""
        outer, self._inner_seconds = self._inner_seconds, 0.0
        start = time.perf_counter()
        call.tally.calls += 1
        try:
            call.function(*call.arguments)
        except Exception as error:
            self.fail(call, error, quietly=quietly)
        finally:
            seconds = time.perf_counter() - start
            # A hook that evaluates is not charged with the hooks of the evaluation.
            call.tally.time(seconds - self._inner_seconds)
            self._inner_seconds = outer + seconds

    def fail(self, call: Call, error: Exception, *, quietly: bool = False) -> None:
        """Raise, warn or switch off, as the hook's ``on_error`` says."""
        if isinstance(error, HookError) and not quietly:
            raise error
        slot, state, logger = call.slot, self.runner.trainer_state, self.runner.logger
        failed = HookError(slot.hook, slot.method, int(state.epoch), int(state.iteration), error)
        record = self.report.failures.setdefault(slot.hook, Failures())
        record.in_a_row = record.in_a_row + 1 if call.tally.calls == record.last_call + 1 else 1
        record.count, record.last, record.last_call = record.count + 1, masked(str(failed)), call.tally.calls
        on_error = on_error_of(slot.owner)
        if on_error == "raise" and not quietly:
            raise failed from error
        trace = "\n" + "".join(traceback.format_exception(error)).rstrip() if record.count == 1 else ""
        logger.warning("%s%s", failed, trace)
        if on_error == "disable" or (on_error == "warn" and record.in_a_row >= IN_A_ROW):
            record.off = True
            self.off.add(slot.hook)
            logger.warning("%s is switched off for the rest of the run", slot.hook)

    # -- what is due ------------------------------------------------------------------------------------------

    def _is_due(self, call: Call) -> bool:
        slot = call.slot
        if slot.acts_always:
            return True
        state = self.runner.trainer_state
        when = slot.when or When()
        by_epoch = when.unit == "epoch" or slot.point.name in EPOCH_POINTS
        n = int(state.epoch if by_epoch else state.iteration)
        if slot.decides:
            return self.decides(call, n - 1)
        if when.unit == "second":
            return slot in self.fired("epoch", n)
        return when.due(n)

    def decides(self, call: Call, step: int) -> bool:
        """Ask a hook that decides itself; a failure of its answer is a failure of the hook."""
        try:
            return bool(call.slot.owner.should_trigger(step))  # type: ignore[attr-defined]
        except Exception as error:
            call.tally.calls += 1
            self.fail(call, error)
            return False

    def start_clocks(self) -> None:
        """Begin to count time for the schedules in seconds."""
        state = self.runner.trainer_state
        for unit, points, done in (("iter", ITERATION_POINTS, state.iteration), ("epoch", EPOCH_POINTS, state.epoch)):
            slots = [call.slot for point in points for call in self.at(point)[0]]
            self._clocks[unit].start({s: s.when for s in slots if s.when and s.when.unit == "second"}, int(done))
        self._fired.clear()

    def fired(self, unit: str, n: int) -> frozenset[object]:
        """The slots with a schedule in seconds that fire at this iteration or epoch; decided once for each."""
        seen, fired = self._fired.get(unit, (-1, frozenset()))
        if seen != n:
            fired = self._clocks[unit].due(n)
            self._fired[unit] = (n, fired)
        return fired

    @property
    def next_look(self) -> int:
        """The next iteration in which a schedule in seconds has to look at the clock."""
        return self._clocks["iter"].next_look
