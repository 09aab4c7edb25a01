"""Schedules: interval, by_epoch, start and every are read once, into one When."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from ignite_hooks.errors import SettingError
from ignite_hooks.text import plain_number

Unit = Literal["iter", "epoch", "second"]
Method = TypeVar("Method", bound=Callable[..., Any])

SCHEDULE_WORDS = ("interval", "frequency", "by_epoch", "start", "begin", "every")
"""The settings of the schedule, in every hook that does not give them another meaning."""

NEVER = 1 << 62
"""An iteration that no run reaches."""

_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86400),
}
_COUNTS: dict[str, Unit] = {
    "it": "iter",
    "iter": "iter",
    "iteration": "iter",
    "step": "iter",
    "ep": "epoch",
    "epoch": "epoch",
}


def scheduled(method: Method) -> Method:
    """Mark a method of a hook as governed by the hook's schedule.

    Example:
        >>> class Snapshot:
        ...     interval = 100
        ...
        ...     @scheduled
        ...     def after_train_iter(self, runner): ...
        >>> is_scheduled(Snapshot.after_train_iter)
        True
    """
    method.__scheduled__ = True  # type: ignore[attr-defined]
    return method


def is_scheduled(method: object) -> bool:
    """Return whether a method carries the mark of ``@scheduled``."""
    return getattr(method, "__scheduled__", False) is True


@dataclass(frozen=True)
class When:
    """A schedule: every ``interval`` iterations, epochs or seconds, from ``start`` on.

    Example:
        >>> when = When(2, "epoch", start=5)
        >>> [n for n in range(1, 11) if when.due(n)]
        [5, 7, 9]
        >>> when.following(5)
        7
    """

    asks: ClassVar[bool] = False
    """Whether it has to be asked each time, as no number says when it fires next."""

    interval: float = 1
    unit: Unit = "iter"
    start: int = 0

    def due(self, n: int) -> bool:
        """Return whether it fires at the n-th iteration or epoch, counted from 1."""
        return n >= self.start and (n - self.start) % self.interval == 0

    def following(self, n: int) -> int:
        """Return the first number after n at which it fires."""
        if n < self.start:
            return self.start
        return int(n + self.interval - (n - self.start) % self.interval)

    @property
    def iterations(self) -> int:
        """The iterations between two firings; many where it counts epochs or seconds, whose length is not known."""
        return int(self.interval) if self.unit == "iter" else 10_000

    @property
    def always(self) -> bool:
        """Whether it fires every time it is asked."""
        return self.unit != "second" and self.interval == 1 and self.start <= 1

    def __str__(self) -> str:
        if self.unit == "second":
            return f"every {self.interval:g} s"
        each = f"every {self.unit}" if self.interval == 1 else f"every {self.interval:g} {self.unit}s"
        return each if self.start <= 1 else f"{each} from {self.start}"


def parse_every(every: str) -> tuple[float, Unit]:
    """Read ``"50 iter"``, ``"2 epochs"`` or ``"10 min"``.

    Example:
        >>> parse_every("10 min"), parse_every("2 epochs")
        ((600, 'second'), (2, 'epoch'))
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", str(every))
    if match:
        number, word = float(match[1]), match[2].lower()
        word = word if word in _SECONDS or word in _COUNTS else word.removesuffix("s")
        if word in _SECONDS and number > 0:
            seconds = number * _SECONDS[word]
            return (int(seconds) if seconds.is_integer() else seconds), "second"
        if word in _COUNTS and number >= 1 and number.is_integer():
            return int(number), _COUNTS[word]
    raise ValueError(f"{every!r} does not say how often: write '50 iter', '2 epoch' or '10 min'")


def read_when(
    *,
    interval: object = None,
    by_epoch: object = None,
    start: object = None,
    every: str | None = None,
    epochs_by_default: bool = False,
) -> When:
    """Turn the settings of a hook into a When; a SettingError says what would have worked.

    Example:
        >>> str(read_when(interval=50)), str(read_when(every="2 epoch", start=3))
        ('every 50 iters', 'every 2 epochs from 3')
    """
    begin = whole_number("start", 0 if start is None else start, least=0)
    if every is not None:
        try:
            amount, unit = parse_every(every)
        except ValueError as error:
            raise SettingError("every", str(error), text=str(error)) from None
        return When(amount, unit, begin)
    if by_epoch is None:
        by_epoch = epochs_by_default
    if not isinstance(by_epoch, bool):
        message = f"by_epoch is true or false, not {by_epoch!r}"
        raise SettingError("by_epoch", message, text=message)
    amount = whole_number("interval", 1 if interval is None else interval, least=1)
    return When(amount, "epoch" if by_epoch else "iter", begin)


def whole_number(name: str, value: object, least: int) -> int:
    """Return the value as an int, or raise a SettingError."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        message = f"{name} is a whole number of at least {least}, not {value!r}"
        raise SettingError(name, message, text=message)
    return value


class Clock:
    """Decides schedules in seconds, reading the time about once a second and not every iteration.

    ``now`` returns seconds and ``agree`` makes the answer of rank 0 the answer of all ranks, so that every rank
    fires in the same iteration.
    """

    def __init__(self, now: Callable[[], float], agree: Callable[[int, int], tuple[int, int]]) -> None:
        self._now, self._agree = now, agree
        self._last: dict[object, float] = {}
        self._seen: tuple[int, float] | None = None
        self._slots: dict[object, When] | None = None
        self.next_reading = NEVER

    def stop(self) -> None:
        """Forget the time of every slot."""
        self._last, self._seen, self._slots, self.next_reading = {}, None, None, NEVER

    @property
    def is_started(self) -> bool:
        """Whether the time of slots is running."""
        return self._slots is not None

    def start(self, slots: dict[object, When], iteration: int) -> None:
        """Start the time of these slots; those already started keep theirs."""
        if slots == self._slots:
            return
        now = self._now()
        self._slots = slots
        self._last = {key: self._last.get(key, now) for key in slots}
        self._seen = (iteration, now)
        self.next_reading = iteration + 1 if slots else NEVER

    def due(self, iteration: int) -> frozenset[object]:
        """Return the slots that fire in this iteration, and decide when to read the time next."""
        if iteration < self.next_reading:
            return frozenset()
        now, slots = self._now(), self._slots or {}
        keys = list(slots)
        mask = sum(1 << i for i, key in enumerate(keys) if now - self._last[key] >= slots[key].interval)
        mask, pause = self._agree(mask, self._pause(iteration, now))
        self.next_reading = iteration + pause
        fired = frozenset(key for i, key in enumerate(keys) if mask >> i & 1)
        for key in fired:
            self._last[key] = now
        return fired

    def _pause(self, iteration: int, now: float) -> int:
        """Return the number of iterations in a second, or in a tenth of the shortest interval."""
        seen_iteration, seen = self._seen or (iteration, now)
        self._seen = (iteration, now)
        if iteration <= seen_iteration or now <= seen:
            return 1
        shortest = min(when.interval for when in (self._slots or {}).values())
        wanted = min(1.0, shortest / 10)
        return max(1, int(wanted * (iteration - seen_iteration) / (now - seen)))
