"""Schedules that are spelled as Ignite spells them: ``every=Events.EPOCH_COMPLETED(every=2)``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ignite_hooks.errors import SettingError
from ignite_hooks.plan.ignite_events import arguments_of, read_event
from ignite_hooks.plan.schedule import NEVER, Unit, When, read_when, whole_number
from ignite_hooks.text import shown

UNITS: Final[dict[str, Unit]] = {
    "ITERATION_STARTED": "iter",
    "ITERATION_COMPLETED": "iter",
    "EPOCH_STARTED": "epoch",
    "EPOCH_COMPLETED": "epoch",
}
"""What the events count. At which of its points a hook acts is said by its methods."""
_SPELT: Final = re.compile(r"\s*(?:Events\.)?[A-Z]+_[A-Z_]+\s*(?:\(.*)?", re.DOTALL)


class Irregular(When):
    """A schedule without an interval."""

    @property
    def always(self) -> bool:
        return False

    @property
    def iterations(self) -> int:
        return 10_000


@dataclass(frozen=True)
class AtNumbers(Irregular):
    """At these iterations or epochs alone."""

    numbers: tuple[int, ...] = ()

    def due(self, n: int) -> bool:
        return n in self.numbers

    def following(self, n: int) -> int:
        return min((number for number in self.numbers if number > n), default=NEVER)

    def __str__(self) -> str:
        numbers = ", ".join(map(str, sorted(self.numbers)))
        return f"once, at {self.unit} {numbers}" if len(self.numbers) == 1 else f"at {self.unit}s {numbers}"


@dataclass(frozen=True)
class Before(When):
    """A schedule that ends."""

    before: int = 0

    @property
    def always(self) -> bool:
        return False

    def due(self, n: int) -> bool:
        return n < self.before and super().due(n)

    def following(self, n: int) -> int:
        number = super().following(n)
        return number if number < self.before else NEVER

    def __str__(self) -> str:
        return f"{super().__str__()} before {self.before}"


@dataclass(frozen=True)
class AsksEachTime(Irregular):
    """A function of the script decides."""

    passes: Callable[[int], bool] = field(default=bool, compare=False, repr=False)
    asks = True

    def due(self, n: int) -> bool:
        return bool(self.passes(n))

    def following(self, n: int) -> int:
        return n + 1

    def __str__(self) -> str:
        return (
            f"event_filter decides each time: one call of it in every {'iteration' if self.unit == 'iter' else 'epoch'}"
        )


def is_event(every: object) -> bool:
    """Return whether somebody writes an event of Ignite, or several.

    Example:
        >>> is_event("EPOCH_COMPLETED(every=2)"), is_event("2 epoch")
        (True, False)
    """
    if isinstance(every, str):
        return _SPELT.fullmatch(every) is not None
    return any(base.__module__ == "ignite.engine.events" for base in type(every).__mro__)


def when_of_event(every: Any, start: int | None, engine: Callable[[], Any]) -> When:
    """Return the schedule that an event of Ignite spells, which is due exactly where Ignite would call a handler.

    Args:
        every: The event, or its text.
        start: The first iteration or epoch, where a setting says so as well.
        engine: Returns the engine that a function of the script is asked with.

    Example:
        >>> str(when_of_event("EPOCH_COMPLETED(every=2)", None, lambda: None))
        'every 2 epochs'
        >>> str(when_of_event("ITERATION_COMPLETED(once=3)", None, lambda: None))
        'once, at iter 3'
    """
    try:
        read = read_event(every)
    except SettingError as error:
        raise SettingError("every", error.message) from None
    if read.name not in UNITS or read.event is None:
        events = "ITERATION_COMPLETED(every=50) or EPOCH_COMPLETED(every=2)"
        raise SettingError("every", f"{shown(every)} counts neither iterations nor epochs: write {events}")
    unit = UNITS[read.name]
    told = {} if read.only is None else arguments_of(read.event.filter)
    if read.only is None or {*told} == {"every"}:
        return When(told.get("every", 1), unit, start or 0)
    if start is not None:
        raise SettingError("start", "the event has a filter that says when it begins: leave out one of the two")
    if not told:
        passes = read.event.filter
        return AsksEachTime(1, unit, passes=lambda n: bool(passes(engine(), n)))
    if "once" in told:
        once = told["once"] if isinstance(told["once"], (list, tuple)) else [told["once"]]
        return AtNumbers(NEVER, unit, min(once), numbers=tuple(once))
    interval, after = told.get("every", 1), told.get("after", 0)
    # Versions of Ignite count differently where both are given.
    first = next((n for n in range(after + 1, after + interval + 1) if read.event.filter(None, n)), NEVER)
    return Before(interval, unit, first, before=told["before"]) if "before" in told else When(interval, unit, first)


def schedule_given(
    *, every: Any = None, start: object = None, engine: Callable[[], Any] = lambda: None, **words: Any
) -> When:
    """Return the schedule that the settings of a hook spell, as `read_when` does, or by an event of Ignite.

    Args:
        every: All of it in a text, or an event.
        start: The first iteration or epoch.
        engine: Returns the engine that a function of the script is asked with.
        **words: The other settings of the schedule.
    """
    if every is not None and is_event(every):
        return when_of_event(every, None if start is None else whole_number("start", start, least=0), engine)
    return read_when(every=every, start=start, **words)
