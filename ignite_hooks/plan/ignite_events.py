"""Read events of Ignite with their filters, as objects or as text: ``EPOCH_COMPLETED(every=2)``."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ignite_hooks.errors import SettingError
from ignite_hooks.text import did_you_mean, shown

FILTERS = ("every", "once", "before", "after")
"""What an event takes."""


class EventFilter(NamedTuple):
    """Says at which of its events a handler is called."""

    event: Any
    words: str
    """How often, in words for the plan."""

    def passes(self, engine: Any) -> bool:
        """Return whether the handler is called now."""
        return bool(self.event.filter(engine, engine.state.get_event_attrib_value(self.event)))


class ReadEvent(NamedTuple):
    """An event of an engine, with its filter."""

    name: str
    event: Any
    """Ignite's object; None if Ignite has no event of this name."""
    only: EventFilter | None
    every: int | None
    """The number of events from one call to the next, where the filter says nothing else."""


def read_event(given: Any) -> ReadEvent:
    """Read an event that an entry of a configuration names.

    Example:
        >>> read_event("EPOCH_COMPLETED(every=2)").every, read_event("Events.STARTED").name
        (2, 'STARTED')
        >>> read_event("ITERATION_COMPLETED(once=3)").only.words
        'once=3'
    """
    from ignite.engine.events import EventsList

    if isinstance(given, EventsList) or (isinstance(given, str) and "|" in given):
        raise SettingError("event", "several events: write an entry for each of them")
    event = _event_in(given) if isinstance(given, str) else given
    name = getattr(event, "name", None)
    if not isinstance(name, str):
        # Whoever asks for it says which events there are.
        return ReadEvent(given, None, None, None)
    if getattr(event, "filter", None) is None:
        return ReadEvent(name, event, None, None)
    told = arguments_of(event.filter)
    words = ", ".join(f"{word}={value}" for word, value in told.items()) or "where event_filter says so"
    return ReadEvent(name, event, EventFilter(event, words), told["every"] if {*told} == {"every"} else None)


def _event_in(text: str) -> Any:
    """Return the event that a text spells; None where Ignite has none of this name."""
    from ignite.engine import Events

    name, filters = re.fullmatch(r"\s*(?:Events\.)?(\w*)\s*(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    if not filters:
        return Events.__members__.get(name)
    if name not in Events.__members__:
        raise SettingError("event", f"{shown(text)}{did_you_mean(name, Events.__members__) or ', no event of Ignite'}")
    arguments = _numbers(filters)
    wrong = next((word for word in arguments or () if word not in FILTERS), None)
    if not arguments or wrong is not None:
        hint = did_you_mean(wrong, FILTERS) if wrong else ""
        raise SettingError("event", f"{shown(text)}{hint or f': write one as {name}(every=2), with {_or(FILTERS)}'}")
    try:
        made: Any = Events[name]
        return made(**arguments)
    except (TypeError, ValueError) as error:
        raise SettingError("event", f"{shown(text)}: {error}") from None


def _numbers(filters: str) -> dict[str, int] | None:
    """Return the whole numbers by name in ``(every=2)``; None for anything else."""
    try:
        call = ast.parse(f"f{filters.strip()}", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if not isinstance(call, ast.Call) or call.args:
        return None
    found = {word.arg: word.value.value for word in call.keywords if word.arg and isinstance(word.value, ast.Constant)}
    return found if len(found) == len(call.keywords) and all(type(n) is int for n in found.values()) else None  # type: ignore[return-value]


def arguments_of(passes: Callable[..., Any]) -> dict[str, Any]:
    """Return what an event of Ignite was given to filter by; nothing for a function of the script."""
    if getattr(passes, "__module__", "") != "ignite.engine.events":
        return {}
    told: dict[str, Any] = {}
    for word, cell in zip(passes.__code__.co_freevars, passes.__closure__ or (), strict=True):
        told[word.rstrip("_")] = cell.cell_contents
    bounds = {"after": 0, "before": math.inf}
    told = {word: told[word] for word in FILTERS if word in told and told[word] != bounds.get(word)}
    # Ignite makes a list of one number.
    return {w: v[0] if isinstance(v, (list, tuple)) and len(v) == 1 else v for w, v in told.items()}


def _or(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}"
