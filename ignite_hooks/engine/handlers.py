"""Adds our handlers to an Ignite engine, before, between or after those of the script, and removes them."""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ignite.engine import Engine, Events
from ignite.metrics import Metric


class HandlerOrder(enum.Enum):
    """The order of a handler among the handlers of its event."""

    FIRST = "first"
    AFTER_METRICS = "right after the last metric"
    LAST = "last"


class Handlers:
    """Our handlers on one engine.

    They are known by their functions: a script that removes or profiles handlers builds the lists of Ignite anew.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ours: list[tuple[Any, Callable[..., Any], HandlerOrder]] = []
        self._waiting: dict[Any, Callable[..., Any]] = {}
        self._resting: dict[Callable[..., Any], tuple[Any, Any]] = {}

    def add(self, event: Any, handler: Callable[..., Any], order: HandlerOrder = HandlerOrder.LAST) -> None:
        """Add a handler to an event, in an order relative to the handlers that are there now.

        It is called with what the event brings, such as an exception, and without the engine.
        """
        handlers = self._engine._event_handlers
        # Not by add_event_handler(), which reads the signature of each handler twice, at every run and evaluation.
        # A new list: Ignite may be iterating over the old one.
        handlers[event] = _seated(handlers.get(event, []), (handler, (), {}), order)
        self._ours.append((event, handler, order))

    def add_table(
        self,
        table: Iterable[tuple[Any, HandlerOrder, Callable[..., Any]]],
        owner: object,
        guarded: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda method: method,
    ) -> None:
        """Add a method of an object for each row of (event, order, function of the object's class).

        Args:
            table: The rows.
            owner: The object.
            guarded: Returns the handler that calls a method.
        """
        for event, order, method in table:
            self.add(event, guarded(method.__get__(owner)), order)

    def add_if_others_listen(self, event: Any, handler: Callable[..., Any]) -> None:
        """Add a handler as the first of an event if the script has handlers there, now or when we are seated again.

        Ignite swallows an exception as soon as anything listens to it.
        """
        if self._engine._event_handlers.get(event):
            self.add(event, handler, HandlerOrder.FIRST)
        else:
            self._waiting[event] = handler

    def reseat(self, firing: Any) -> None:
        """Put our handlers in their order again, among what the script has added since.

        Args:
            firing: The event that fires now; its handlers stay as they are.
        """
        handlers = self._engine._event_handlers
        for event, handler, order in self._ours:
            if event == firing or order is HandlerOrder.FIRST:
                continue
            entries = handlers.get(event, [])
            others = [entry for entry in entries if unwrapped(entry[0]) is not handler]
            if len(others) + 1 == len(entries):
                (ours,) = [entry for entry in entries if unwrapped(entry[0]) is handler]
                handlers[event] = _seated(others, ours, order)
        for event in [event for event in self._waiting if handlers.get(event)]:
            self.add(event, self._waiting.pop(event), HandlerOrder.FIRST)

    def move_last_to_end(self, firing: Any) -> None:
        """Move our last handler of the event that fires now behind those that the script has added since."""
        entries = self._engine._event_handlers[firing]
        for event, handler, order in self._ours:
            if event == firing and order is HandlerOrder.LAST and unwrapped(entries[-1][0]) is not handler:
                at = next((i for i, entry in enumerate(entries) if unwrapped(entry[0]) is handler), None)
                if at is not None:
                    # In place: Ignite is iterating over this list, and has not come to this handler yet.
                    entries.append(entries.pop(at))

    def rest(self, handler: Callable[..., Any]) -> None:
        """Take a handler out of its event until `wake`: an event without handlers costs nothing."""
        handlers = self._engine._event_handlers
        for event, entries in list(handlers.items()):
            ours = [entry for entry in entries if unwrapped(entry[0]) is handler]
            if ours:
                # A new list: Ignite is iterating over the old one.
                handlers[event] = [entry for entry in entries if entry is not ours[0]]
                self._resting[handler] = event, ours[0]
                return

    def wake(self, handler: Callable[..., Any]) -> None:
        """Put a resting handler behind the others of its event; any thread may call this, and a signal."""
        # Only one caller takes it out of the dict, so it is put back once.
        event, entry = self._resting.pop(handler, (None, None))
        if entry is not None:
            # In place: if Ignite is iterating over this list, the handler is called in this event.
            self._engine._event_handlers[event].append(entry)

    def remove_all(self) -> None:
        """Remove every handler that was added here."""
        self._resting.clear()
        for event, handler, _ in self._ours:
            remove_handlers(self._engine, {event: [handler]})
        self._ours.clear()
        self._waiting.clear()


def others_between(engine: Engine, event: Any, first: Callable[..., Any], last: Callable[..., Any]) -> bool:
    """Return whether an engine has handlers of an event between two others."""
    found = [unwrapped(entry[0]) for entry in engine._event_handlers.get(event, [])]
    return first in found and last in found and found.index(last) - found.index(first) > 1


def unwrapped(handler: Any) -> Any:
    """Return the handler that a profiler of Ignite has wrapped to time it."""
    while "_profiler_original" in getattr(handler, "__dict__", ()):
        handler = handler._profiler_original
    return handler


def is_trial(trainer: Engine) -> bool:
    """Return whether the next run only tries learning rates, for `FastaiLRFinder` of Ignite, and is undone after it."""
    module = sys.modules.get("ignite.handlers.lr_finder")
    started = _functions(trainer._event_handlers.get(Events.STARTED, []))
    owners = [getattr(function, "__self__", None) for function in started]
    return module is not None and any(isinstance(owner, module.FastaiLRFinder) for owner in owners)


def remove_handlers(engine: Engine | None, gone: Mapping[Any, list[Any]]) -> None:
    """Remove functions from an engine's handler lists, and the keys of empty lists, which Ignite would find."""
    if engine is None:
        return
    for event, functions in gone.items():
        entries = engine._event_handlers.get(event, [])
        left = [entry for entry in entries if not any(unwrapped(entry[0]) is function for function in functions)]
        if left or not functions:
            engine._event_handlers[event] = left
        else:
            engine._event_handlers.pop(event, None)


@contextlib.contextmanager
def tracking_new_handlers(engines: Iterable[Engine], on_detach: list[Callable[[], None]]) -> Iterator[None]:
    """Track handlers and events that third-party hooks add, so that ``detach`` can remove them.

    Args:
        engines: The engines to watch.
        on_detach: Receives a function that removes the new handlers and events, for each engine.
    """
    watched = list(engines)
    before = [{event: _functions(entries) for event, entries in e._event_handlers.items()} for e in watched]
    # By identity: an engine allows a score of events, and comparing them takes Python.
    allowed = [{id(event): event for event in e._allowed_events} for e in watched]
    try:
        yield
    finally:
        for engine, seen, events in zip(watched, before, allowed, strict=True):
            new = {
                event: [f for f in _functions(entries) if not any(f is old for old in seen.get(event, []))]
                for event, entries in engine._event_handlers.items()
            }
            registered = [event for event in engine._allowed_events if id(event) not in events]
            on_detach.append(partial(_take_back, weakref.ref(engine), new, registered))


def remove_events(engine: Engine | None, events: Iterable[Any]) -> None:
    """Take back the registration of events, with whatever handlers they have; leave the events of the script."""
    if engine is None:
        return
    gone = list(events)
    engine._allowed_events = [event for event in engine._allowed_events if event not in gone]
    for event in gone:
        engine._event_handlers.pop(event, None)


def _take_back(engine: weakref.ref[Engine], new: Mapping[Any, list[Any]], registered: list[Any]) -> None:
    remove_handlers(engine(), new)
    remove_events(engine(), registered)


def _functions(entries: list[Any]) -> list[Any]:
    return [unwrapped(handler) for handler, *_ in entries]


def _seated(entries: list[Any], ours: Any, order: HandlerOrder) -> list[Any]:
    """Return the entries of an event with ours among them, in its order."""
    at = {
        HandlerOrder.FIRST: 0,
        HandlerOrder.AFTER_METRICS: _after_metrics(entries),
        HandlerOrder.LAST: len(entries),
    }[order]
    return [*entries[:at], ours, *entries[at:]]


def _after_metrics(entries: list[Any]) -> int:
    functions = _functions(entries)
    metrics = [i for i, function in enumerate(functions) if isinstance(getattr(function, "__self__", None), Metric)]
    return max(metrics, default=-1) + 1


def guarded(run: Any, method: Callable[..., None]) -> Callable[..., None]:
    """Return the handler of an event of a `Lifecycle`: a hook may detach in it, or a script may have done so before."""

    @functools.wraps(method)
    def handle(*args: Any, **kwargs: Any) -> None:
        if not run.closed:
            with run.runner.installation.handling():
                method(*args, **kwargs)

    return handle
