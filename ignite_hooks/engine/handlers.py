"""Adds our handlers to an Ignite engine, before, between or after those of the script, and removes them."""

from __future__ import annotations

import contextlib
import enum
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ignite.engine import Engine
from ignite.metrics import Metric


class HandlerOrder(enum.Enum):
    """The order of a handler among the handlers of its event."""

    FIRST = "first"
    AFTER_METRICS = "right after the last metric"
    LAST = "last"


class Handlers:
    """Our handlers on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ours: list[tuple[Any, Any]] = []

    def add(self, event: Any, handler: Callable[..., Any], order: HandlerOrder = HandlerOrder.LAST) -> None:
        """Add a handler to an event, in an order relative to the handlers that are there now."""
        handlers = self._engine._event_handlers
        before = list(handlers.get(event, []))
        self._engine.add_event_handler(event, handler)
        ours = handlers[event][-1]
        at = {
            HandlerOrder.FIRST: 0,
            HandlerOrder.AFTER_METRICS: _after_metrics(before),
            HandlerOrder.LAST: len(before),
        }[order]
        # A new list: Ignite may be iterating over the old one.
        handlers[event] = [*before[:at], ours, *before[at:]]
        self._ours.append((event, ours))

    def add_table(self, table: Iterable[tuple[Any, HandlerOrder, Callable[..., Any]]], owner: object) -> None:
        """Add a method of an object for each row of (event, order, function of the object's class)."""
        for event, order, method in table:
            self.add(event, method.__get__(owner), order)

    def remove_all(self) -> None:
        """Remove every handler that was added here."""
        for event, ours in self._ours:
            remove_entries(self._engine, {event: [ours]})
        self._ours.clear()


def remove_entries(engine: Engine | None, entries: Mapping[Any, list[Any]]) -> None:
    """Remove entries from an engine's handler lists, and the keys of empty lists, which Ignite would find."""
    if engine is None:
        return
    for event, gone in entries.items():
        left = [entry for entry in engine._event_handlers.get(event, []) if not any(entry is g for g in gone)]
        if left or not gone:
            engine._event_handlers[event] = left
        else:
            engine._event_handlers.pop(event, None)


@contextlib.contextmanager
def tracking_new_handlers(engines: Iterable[Engine], on_detach: list[Callable[[], None]]) -> Iterator[None]:
    """Track handlers that third-party hooks add, so that ``detach`` can remove them.

    Args:
        engines: The engines to watch.
        on_detach: Receives a function that removes the new handlers, for each engine.
    """
    watched = list(engines)
    before = [{event: list(handlers) for event, handlers in e._event_handlers.items()} for e in watched]
    try:
        yield
    finally:
        for engine, seen in zip(watched, before, strict=True):
            new = {
                event: [h for h in handlers if not any(h is old for old in seen.get(event, []))]
                for event, handlers in engine._event_handlers.items()
            }
            reference = weakref.ref(engine)
            on_detach.append(lambda new=new, reference=reference: remove_entries(reference(), new))  # type: ignore[misc]


def _after_metrics(handlers: list[Any]) -> int:
    metrics = [i for i, (handler, *_) in enumerate(handlers) if isinstance(getattr(handler, "__self__", None), Metric)]
    return max(metrics, default=-1) + 1
