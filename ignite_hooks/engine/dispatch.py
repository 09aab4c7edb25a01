"""Calls hooks in order, counts and times the calls, and treats failures as ``on_error`` says."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.errors import ConfigError, HookError, LossError, Problem
from ignite_hooks.plan.arguments import Available, CannotSupply, Source, match_arguments
from ignite_hooks.plan.methods import own_method
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.points import EPOCH_POINTS, ITERATION_POINTS, POINTS
from ignite_hooks.plan.schedule import NEVER, Clock
from ignite_hooks.plan.slots import Slot
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.run.report import Failures, Report, Tally
from ignite_hooks.run.services import KNOWN_SERVICES, LIVE
from ignite_hooks.secrets import masked

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

IN_A_ROW = 3
"""The number of failures in a row that disables a hook whose ``on_error`` is ``warn``."""


class Call:
    """A slot that is ready to be called: its function, argument list, tally, and the iteration it is next due."""

    __slots__ = ("arguments", "function", "next_due", "slot", "tally")

    def __init__(self, slot: Slot, function: Callable[..., Any], arguments: list[Any], tally: Tally) -> None:
        self.slot, self.function, self.arguments, self.tally = slot, function, arguments, tally
        self.next_due = 0


class ArgumentSets:
    """The argument lists of one point; methods with the same parameters share a list, filled once per event."""

    def __init__(self, look_up: Callable[[str], Any]) -> None:
        self._look_up = look_up
        self._lists: dict[tuple[object, ...], list[Any]] = {}
        self.live: list[tuple[list[Any], tuple[Source, ...]]] = []
        """The lists with values that change from event to event."""

    def of(self, sources: tuple[Source, ...]) -> list[Any]:
        """Return the list that holds the values of these sources while an event is handled."""
        key = tuple([id(source.value) if source.name is None else source.name for source in sources])
        if key not in self._lists:
            self._lists[key] = values = [source.value for source in sources]
            if any(source.name is not None for source in sources):
                self.live.append((values, sources))
        return self._lists[key]

    def gather(self) -> None:
        """Look up the values that change."""
        look_up = self._look_up
        for values, sources in self.live:
            values[:] = [s.value if s.name is None else look_up(s.name) for s in sources]

    def release(self) -> None:
        """Drop batches and outputs, so that their memory is free for the next step."""
        for values, _ in self.live:
            values.clear()


def on_error_of(hook: object, wanted: str) -> str:
    """Return how to treat failures of a hook: always ``raise`` for collective hooks if there are several ranks."""
    alone = world_size() == 1 or not getattr(type(hook), "collective", False)
    return wanted if alone else "raise"


class Dispatcher:
    """Calls the hooks of one run, point by point.

    Args:
        agree: Takes two numbers and returns those of rank 0 on every rank.
        now: Returns the time in seconds, for schedules in seconds.
    """

    def __init__(self, agree: Callable[[int, int], tuple[int, int]], now: Callable[[], float] = time.monotonic) -> None:
        self.is_bound = False
        self.removed: list[tuple[Slot, ...]] = []
        """The last calls of the hooks that were removed during the run: their cleanup."""
        self.report = Report()
        self.disabled: set[str] = set()
        """The disabled hooks; they are only cleaned up."""
        self._plan = Plan({})
        self._ready: dict[str, tuple[list[Call], ArgumentSets]] = {}
        self._payload: Mapping[str, Any] = {}
        self._inner_seconds = 0.0
        self._clocks = {"iter": Clock(now, agree), "epoch": Clock(now, agree)}
        self._fired: dict[str, tuple[int, frozenset[object]]] = {}
        self.on_switched_off: Callable[[], None] = lambda: None
        """Called when a hook has been switched off."""
        self.next_budget_check = NEVER
        """The next iteration after which the overhead budget is checked."""

    @contextlib.contextmanager
    def ready(self, runner: Runner) -> Iterator[None]:
        """Prepare the hooks to be called, unless a run or an evaluation has prepared them already."""
        if self.is_bound:
            yield
            return
        self.bind(runner)
        try:
            self.prepare(runner.plan)
            yield
        finally:
            self.forget()

    def bind(self, runner: Runner) -> None:
        """Hold the runner, which supplies the arguments of methods, until ``forget``."""
        self.runner, self.is_bound = runner, True

    # -- making ready -----------------------------------------------------------------------------------------

    def prepare(self, plan: Plan) -> None:
        """Read every signature of a plan; raise one error for all parameters that nothing supplies."""
        self._plan = plan
        problems: list[Problem] = []
        ready, services = {}, self.runner.services
        for point in POINTS.values():
            ready[point.name] = self._make_ready(plan.at(point.name), point.payload, problems, services)
        if problems:
            raise ConfigError(problems)
        self._ready = ready
        if self._clocks["iter"].is_started:
            self.start_clocks()

    def forget(self) -> None:
        """Drop everything that belongs to the run."""
        self._ready = {}
        self._payload = {}
        self._fired.clear()
        for clock in self._clocks.values():
            clock.stop()
        if self.is_bound:
            self.is_bound = False
            del self.runner

    def at(self, point: str) -> tuple[list[Call], ArgumentSets]:
        """Return the calls of a point in order, and their arguments."""
        return self._ready.get(point) or ([], ArgumentSets(self.look_up))

    def _make_ready(
        self,
        slots: Iterable[Slot],
        payload: Collection[str],
        problems: list[Problem],
        services: Mapping[str, Any] | None = None,
    ) -> tuple[list[Call], ArgumentSets]:
        services = self.runner.services if services is None else services
        withheld = [service for service in KNOWN_SERVICES if service not in services]
        available = Available(self.runner, services, LIVE, payload, withheld)
        sets = ArgumentSets(self.look_up)
        calls = []
        for slot in slots:
            if slot.hook in self.disabled and slot.point.name != "cleanup":
                continue
            try:
                function, sources = match_arguments(slot.bound_method, available, f"{slot.hook}.{slot.method}")
            except CannotSupply as error:
                problems.append(Problem("", str(error)))
                continue
            tally = self.report.tallies.setdefault((slot.hook, slot.method), Tally())
            calls.append(Call(slot, function, sets.of(sources), tally))
        return calls, sets

    def look_up(self, name: str) -> Any:
        """Return the value that a parameter of this name receives now."""
        return self._payload[name] if name in self._payload else getattr(self.runner, name)

    # -- calling ----------------------------------------------------------------------------------------------

    def run(
        self, point: str, payload: Mapping[str, Any] | None = None, *, quietly: bool = False, to_the_end: bool = False
    ) -> None:
        """Call the hooks of one point in order.

        Args:
            point: A known point, or any method name.
            payload: The arguments that the point itself supplies.
            quietly: Log failures and continue, because an exception is already propagating.
            to_the_end: Call every hook even if one fails, and raise the first failure at the end.
        """
        if point not in self._ready:
            problems: list[Problem] = []
            calls, sets = self._make_ready(self._plan.at(point), tuple(payload or ()), problems)
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
                if call.slot.hook in self.disabled and point != "cleanup":
                    continue
                if not (call.slot.acts_always or self._is_due_now(call)):
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

    def clean_up_removed(self) -> None:
        """Clean up the hooks that were removed during the run."""
        while self.removed:
            self.call_alone(self.removed.pop(0))

    def call_alone(self, slots: Iterable[Slot]) -> None:
        """Call methods apart from their point."""
        problems: list[Problem] = []
        calls, sets = self._make_ready(slots, (), problems)
        if problems:
            raise ConfigError(problems)
        sets.gather()
        try:
            for call in calls:
                if call.slot.hook not in self.disabled or call.slot.point.name == "cleanup":
                    self.call(call)
        finally:
            sets.release()

    def call(self, call: Call, *, quietly: bool = False) -> None:
        """Make one call and record its time."""
        outer, self._inner_seconds = self._inner_seconds, 0.0
        start = time.perf_counter()
        call.tally.calls += 1
        try:
            call.function(*call.arguments)
        except Exception as error:
            self.fail(call, error, quietly=quietly)
        finally:
            seconds = time.perf_counter() - start
            # A hook that evaluates is not charged for the hooks of the evaluation.
            call.tally.time(seconds - self._inner_seconds)
            self._inner_seconds = outer + seconds

    def fail(self, call: Call, error: Exception, *, quietly: bool = False) -> None:
        """Raise, warn or disable the hook, as its ``on_error`` says."""
        if (isinstance(error, (HookError, LossError)) or is_stop(error)) and not quietly:
            # A function of the script that finds the loss is not the hook's, whoever asks for the loss first.
            raise error
        slot, state, logger = call.slot, self.runner.trainer_state, self.runner.logger
        on_error = on_error_of(slot.owner, slot.on_error)
        if isinstance(error, ConfigError) and slot.point.name == "before_run" and on_error != "raise" and not quietly:
            # What was asked for and cannot be is no failure of a hook that observes: nothing has begun.
            raise error
        failed = HookError(slot.hook, slot.method, int(state.epoch), int(state.iteration), error)
        record = self.report.failures.setdefault(slot.hook, Failures())
        record.in_a_row = record.in_a_row + 1 if call.tally.calls == record.last_call + 1 else 1
        record.count, record.last, record.last_call = record.count + 1, masked(str(failed)), call.tally.calls
        if on_error == "raise" and not quietly:
            raise failed from error
        trace = "\n" + "".join(traceback.format_exception(error)).rstrip() if record.count == 1 else ""
        logger.warning("%s%s", failed, trace)
        if on_error == "disable" or (on_error == "warn" and record.in_a_row >= IN_A_ROW):
            record.off = True
            self._switch_off(slot)

    def _switch_off(self, slot: Slot) -> None:
        """Call a hook no more but for its cleanup; it takes what it has put into the model out first."""
        self.disabled.add(slot.hook)
        self.on_switched_off()
        logger = self.runner.logger
        logger.warning("%s is switched off for the rest of the run", slot.hook)
        leave = own_method(type(slot.owner), "switched_off")
        try:
            if leave is not None:
                leave(slot.owner)
        except Exception:
            logger.exception("%s could not undo what it had begun", slot.hook)

    # -- what is due ------------------------------------------------------------------------------------------

    def is_due(self, call: Call, n: int, fired: Collection[object] = ()) -> bool:
        """Return whether a call is due; an exception in the hook's own decision is a failure of the hook."""
        try:
            return call.slot.is_due(n, fired)
        except Exception as error:
            self.fail_to_decide(call, error)
            return False

    def fail_to_decide(self, call: Call, error: Exception) -> None:
        """Treat an exception in a hook's own decision as a failed call of the hook."""
        call.tally.calls += 1
        self.fail(call, error)

    def _is_due_now(self, call: Call) -> bool:
        slot, state = call.slot, self.runner.trainer_state
        n = int(state.epoch if slot.counts_epochs else state.iteration)
        return self.is_due(call, n, self.fired("epoch", n) if slot.by_clock else ())

    def start_clocks(self) -> None:
        """Start the clocks of schedules in seconds."""
        state = self.runner.trainer_state
        for unit, points, done in (("iter", ITERATION_POINTS, state.iteration), ("epoch", EPOCH_POINTS, state.epoch)):
            slots = [call.slot for point in points for call in self.at(point)[0]]
            self._clocks[unit].start({s.key: s.when for s in slots if s.when and s.when.unit == "second"}, int(done))

    def fired(self, unit: str, n: int) -> frozenset[object]:
        """Return the slots with schedules in seconds that fire at this iteration or epoch; decide once for each."""
        seen, fired = self._fired.get(unit, (-1, frozenset()))
        if seen != n:
            fired = self._clocks[unit].due(n)
            self._fired[unit] = (n, fired)
        return fired

    @property
    def next_reading(self) -> int:
        """The next iteration in which the clock is read for schedules in seconds."""
        return self._clocks["iter"].next_reading
