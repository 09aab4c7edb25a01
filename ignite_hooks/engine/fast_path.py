"""The single handler of an iteration event, with a fast path for iterations in which nothing is due."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.plan.points import ITERATION_POINTS
from ignite_hooks.plan.schedule import NEVER

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.engine.dispatch import Call, Dispatcher
    from ignite_hooks.engine.handlers import Handlers
    from ignite_hooks.plan.arguments import Source

TIMED_EVERY = 100
"""One in this many of the calls made at every iteration is timed."""

OF_STATE = {"outputs": "output", "data_batch": "batch"}
"""The parameters that most hooks ask for in an iteration, and the attributes of the engine's state with them."""


class IterationBox:
    """The calls of hooks at one iteration event of one engine.

    Before iteration ``next_due`` only the hooks that act at every iteration are called. At ``next_due`` all hooks are
    checked in order, their calls are timed, and the next such iteration is computed. If there is none, the handler
    rests: it is out of its event until `wake`, so a run whose hooks answer no iteration pays nothing for them.

    Args:
        dispatcher: Calls the hooks of the run.
        engine: The engine whose iterations are counted.
        point: The point of this event.
        afterwards: Called after everything that was due; the place to stop a run.
        wakes: Returns the next iteration in which ``afterwards`` must be called for reasons outside of the plan.
        handlers: Those of the engine, among which the handler may rest; None if it never does.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        engine: Engine,
        point: str,
        afterwards: Callable[[], None] | None = None,
        wakes: Callable[[], int] = lambda: NEVER,
        handlers: Handlers | None = None,
    ) -> None:
        self._dispatcher, self._engine, self.point, self._afterwards = dispatcher, engine, point, afterwards
        self._wakes, self._handlers = wakes, handlers
        self.next_due = 0
        self._asked = NEVER
        self._counted = 0
        self._all: list[Call] = []
        self._always: list[Call] = []
        self._quick: list[Any] = []
        self._values: list[tuple[Any, ...]] = []
        self._readers: list[tuple[int, Callable[[], tuple[Any, ...]]]] = []
        self._sets = dispatcher.at(point)[1]
        self.handler = self._make_handler()
        self.fill()

    def fill(self) -> None:
        """Take over the calls of the current plan."""
        self.count()
        n = int(self._engine.state.iteration)
        self._all, self._sets = self._dispatcher.at(self.point)
        for call in self._all:
            slot = call.slot
            call.next_due = slot.when.following(n) if slot.when is not None and slot.by_count else 0
        self._make_quick()
        self.wake()

    def wake(self, iteration: int = 0) -> None:
        """Check everything in this iteration, or in the current one; any thread may call this, and a signal."""
        # In this order: `_check_all` may be setting the next iteration at the same time.
        self._asked = min(self._asked, iteration)
        self.next_due = min(self.next_due, iteration)
        handlers, handler = self._handlers, getattr(self, "handler", None)
        if handlers is not None and handler is not None:
            handlers.wake(handler)

    def leave_out(self) -> None:
        """Leave out the hooks that have been switched off, also in an iteration that is being handled."""
        off = self._dispatcher.disabled
        gone = [i for i, call in enumerate(self._always) if call.slot.hook in off]
        if not gone:
            return
        self.count()
        for i in gone:
            # In place: the iteration continues with this list.
            self._quick[i] = (_do_nothing, self._quick[i][1]) if self._readers else _do_nothing
        self._make_quick()

    def _make_quick(self) -> None:
        """Prepare an iteration in which nothing is due: functions, and the arguments each receives.

        Arguments that several hooks share are read once per event; those that never change are read only here.
        """
        off = self._dispatcher.disabled
        self._always = [c for c in self._all if (c.slot.acts_always or c.slot.decides) and c.slot.hook not in off]
        lists = {id(call.arguments): call.arguments for call in self._always}
        changing = {id(values): sources for values, sources in self._sets.live}
        # A tuple is cheaper to call with than a list.
        self._values = [() if key in changing else tuple(values) for key, values in lists.items()]
        self._readers = [(i, self._reader(changing[key])) for i, key in enumerate(lists) if key in changing]
        which = {key: i for i, key in enumerate(lists)}
        functions = [self._asking(call) if call.slot.decides else _quiet(call) for call in self._always]
        places = [which[id(call.arguments)] for call in self._always]
        if self._readers:
            self._quick = list(zip(functions, places, strict=True))
        else:
            self._quick = [
                partial(function, *self._values[place]) if self._values[place] else function
                for function, place in zip(functions, places, strict=True)
            ]
        self._of_event = self._always, self._quick, self._readers, self._values

    def _reader(self, sources: tuple[Source, ...]) -> Callable[[], tuple[Any, ...]]:
        engine, look_up = self._engine, self._dispatcher.look_up
        alone = OF_STATE.get(sources[0].name or "") if len(sources) == 1 else None
        if alone is not None:
            return lambda: (getattr(engine.state, alone),)
        return lambda: tuple([source.value if source.name is None else look_up(source.name) for source in sources])

    def start(self) -> None:
        """Start counting at the current iteration of the engine."""
        self._counted = int(self._engine.state.iteration)
        self.fill()

    def close(self) -> None:
        """Count for the last time, and break the reference cycle between the handler and this box."""
        self.count()
        # The script may have detached in this event, which still calls the handler.
        self.next_due, self._quick, self._handlers = NEVER, [], None
        del self.handler

    def count(self, unfinished: bool = False) -> None:
        """Record the calls that were made without being timed; an unfinished iteration had none."""
        passed = int(self._engine.state.iteration) - self._counted - unfinished
        if passed > 0:
            self._count(passed)

    def _count(self, passed: int) -> None:
        self._counted += passed
        for call in self._always:
            if not call.slot.decides:
                call.tally.calls += passed

    def _asking(self, call: Call) -> Callable[..., Any]:
        engine, off, is_due = self._engine, self._dispatcher.disabled, call.slot.is_due

        def ask(*arguments: Any) -> None:
            if call.slot.hook in off:
                return
            try:
                due = is_due(engine.state.iteration)
            except Exception as error:
                self._dispatcher.fail_to_decide(call, error)
                return
            if due:
                call.tally.calls += 1
                call.function(*arguments)

        return ask

    def _make_handler(self) -> Callable[[], None]:
        engine, state = self._engine, self._dispatcher.runner.state

        def on_iteration() -> None:
            n = engine.state.iteration
            if n >= self.next_due:
                self._check_all(n)
            elif self._quick:
                # A hook may add or remove hooks, which replaces the lists; this event continues with the old ones.
                always, quick, readers, values = self._of_event
                state.in_iteration = True
                if readers:
                    values = values.copy()
                    for which, read in readers:
                        values[which] = read()
                try:
                    if readers:
                        for call in quick:
                            function, which = call
                            function(*values[which])
                    else:
                        for call in quick:
                            call()
                except Exception as error:
                    self._continue_after(error, always[quick.index(call) :])
                state.in_iteration = False
                if self.next_due == 0 and self._afterwards is not None:
                    self._afterwards()

        return on_iteration

    def _continue_after(self, error: Exception, calls: list[Call]) -> None:
        """Handle the failure of the first of these calls, then make the calls after it."""
        failed, *rest = calls
        self.count()
        for call in rest:
            call.tally.calls -= not call.slot.decides  # counted just now, but not made yet
        self._dispatcher.fail(failed, error)
        # The fast path does not fill the argument lists.
        sets = self._sets
        sets.gather()
        try:
            for call in rest:
                if call.slot.hook not in self._dispatcher.disabled and self._dispatcher.is_due(call, self._counted):
                    self._dispatcher.call(call)
        finally:
            sets.release()
        self._make_quick()

    def _check_all(self, n: int) -> None:
        calls, runner = self._dispatcher, self._dispatcher.runner
        self._count(n - 1 - self._counted)
        self._counted = n
        runner.state.in_iteration = True
        fired = frozenset[object]()
        if calls.next_reading < NEVER and self.point in ITERATION_POINTS:
            fired = calls.fired("iter", n)
        before, sets = self._all, self._sets
        sets.gather()
        try:
            for call in before:
                slot = call.slot
                if n < call.next_due or slot.hook in calls.disabled:
                    continue
                if slot.when is not None and slot.by_count:
                    is_due, call.next_due = slot.is_due(n), slot.when.following(n)
                else:
                    is_due = slot.acts_always or calls.is_due(call, n, fired)
                if is_due:
                    calls.call(call)
        finally:
            sets.release()
            runner.state.in_iteration = False
        if before is self._all:
            if calls.disabled:
                self._make_quick()
            due = [call.next_due for call in self._all if call.next_due > n]
            checks = calls.next_reading, calls.next_budget_check
            self.next_due = min([*due, *checks, n + TIMED_EVERY if self._always else NEVER])
        if self._afterwards is not None:
            # What was asked for until here is done now; what is asked for from here on is not lost.
            self._asked = NEVER
            self._afterwards()
            self.next_due = min(self.next_due, max(self._wakes(), n + 1))
            if self.next_due >= NEVER and self._handlers is not None:
                self._handlers.rest(self.handler)
            if self._asked < NEVER:
                self.wake(self._asked)


def _quiet(call: Call) -> Callable[..., Any]:
    """Return what is called where nothing is due: the method, or what its hook has in its place.

    A method that a subclass or an object has replaced is called itself.
    """
    hook, method = call.slot.owner, getattr(call.slot.bound_method, "__func__", None)
    return hook.quiet_calls.get(method, call.function) if method and isinstance(hook, BaseHook) else call.function


def _do_nothing(*_: Any) -> None:
    """Stand for a hook that has been switched off."""


class IterationBoxes:
    """The iteration events that are being handled, by name."""

    def __init__(self) -> None:
        self._boxes: dict[str, IterationBox] = {}
        self.recheck_requested = False
        """Whether something has finished, such as a save, that the next iteration must handle."""

    def __contains__(self, name: str) -> bool:
        return name in self._boxes

    def add(self, name: str, box: IterationBox) -> None:
        """Add a box; it stays until it is removed."""
        self._boxes[name] = box

    def remove(self, name: str) -> None:
        """Close and remove a box."""
        self._boxes.pop(name).close()

    def remove_all(self) -> None:
        """Close and remove every box."""
        while self._boxes:
            self._boxes.popitem()[1].close()

    def start(self) -> None:
        """Start counting at the current iterations of the engines."""
        for box in self._boxes.values():
            box.start()

    def fill(self) -> None:
        """Take over the calls of a plan that has changed."""
        for box in self._boxes.values():
            box.fill()

    def leave_out(self) -> None:
        """Leave out the hooks that have been switched off."""
        for box in list(self._boxes.values()):
            box.leave_out()

    def wake(self) -> None:
        """Check everything in the current iteration; any thread may call this."""
        for box in list(self._boxes.values()):
            box.wake()

    def request_recheck(self) -> None:
        """Ask for a check after the current iteration, because something has finished; any thread may call this."""
        self.recheck_requested = True
        self.wake()

    def check_at(self, name: str, iteration: int) -> None:
        """Check everything in this iteration of a box."""
        if name in self._boxes:
            self._boxes[name].wake(iteration)

    def count(self, unfinished: bool = False) -> None:
        """Record the calls that were made without being timed; in an unfinished iteration none after its step."""
        for name, box in self._boxes.items():
            box.count(unfinished and name.startswith("after_"))
