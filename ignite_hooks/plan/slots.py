"""Hooks -> slots: one method of one hook at one point, with its place and its schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.plan.methods import (
    Answer,
    answer,
    answers_of,
    answers_only_epochs,
    default_name,
    given_methods,
    has_default,
    own_method,
    schedule_of,
)
from ignite_hooks.plan.points import EPOCH_POINTS, ITERATION_POINTS, POINTS, Point, misspelt_points, point_named
from ignite_hooks.plan.priority import Priority, hook_priority
from ignite_hooks.plan.schedule import When


@dataclass(frozen=True, eq=False)
class Slot:
    """One method of one hook at one point: where it stands and when it fires."""

    point: Point
    hook: str
    owner: object
    method: str
    bound_method: Callable[..., Any] = field(repr=False)
    priority: int
    when: When | None = None
    """None where no schedule governs the method."""
    decides: bool = False
    """Whether the hook's own ``should_trigger`` decides instead of the schedule."""
    slowed: int = 1
    """The factor by which the interval is longer than the settings say."""

    # Plain attributes: they are read in every iteration.
    acts_always: bool = field(init=False, repr=False)
    """Whether it fires every time its point is reached."""
    by_clock: bool = field(init=False, repr=False)
    """Whether its schedule is in seconds."""
    by_count: bool = field(init=False, repr=False)
    """Whether numbers of iterations or epochs say when it fires, and when next."""
    counts_epochs: bool = field(init=False, repr=False)
    """Whether it is due by the number of the epoch, and not of the iteration."""

    def __post_init__(self) -> None:
        when, put = self.when, object.__setattr__
        unit = "iter" if when is None else when.unit
        put(self, "acts_always", not self.decides and (when is None or when.always))
        put(self, "by_clock", not self.decides and unit == "second")
        put(self, "by_count", not (self.decides or self.acts_always or self.by_clock))
        put(self, "counts_epochs", unit == "epoch" or self.point.name in EPOCH_POINTS)

    def is_due(self, n: int, fired: Collection[object] = ()) -> bool:
        """Return whether it fires at iteration ``n`` (epoch ``n`` if ``counts_epochs``), counted from 1.

        Args:
            n: The number of the iteration or epoch.
            fired: The slots whose interval in seconds has elapsed.

        Example:
            >>> slot = Slot(point_named("after_train_iter"), "log", None, "after_train_iter", print, 50, When(2))
            >>> [n for n in range(1, 7) if slot.is_due(n)]
            [2, 4, 6]
        """
        if self.decides:
            return bool(self.owner.should_trigger(n - 1))  # type: ignore[attr-defined]
        if self.when is None or self.acts_always:
            return True
        return self in fired if self.by_clock else self.when.due(n)

    @property
    def how_often(self) -> str:
        """Its schedule in words."""
        if self.decides:
            return "as should_trigger decides"
        own = own_method(type(self.owner), "how_often")
        said = None if own is None else own(self.owner, self.method)
        if self.slowed > 1 and self.when is not None:
            return f"{self.when}, slowed from {self.when.interval / self.slowed:g}"
        return said or ("always" if self.acts_always else str(self.when))

    def next_after(self, iterations: int, epochs: int) -> str:
        """Return in words when it fires next, if it is due by number, else an empty text."""
        if self.when is None or not self.by_count:
            return ""
        return f"{self.when.unit} {self.when.following(epochs if self.when.unit == 'epoch' else iterations)}"


def slots_of(name: str, hook: object, slowed: int = 1) -> list[Slot]:
    """Return every slot a hook takes at the known points; ``slowed`` multiplies its interval."""
    answers = answers_of(hook)
    if not answers:
        return []
    given = given_methods(hook)
    marked = frozenset(answer.point.name for answer in answers if answer.scheduled)
    decides = own_method(type(hook), "should_trigger") is not None or "should_trigger" in (given or {})
    when = when_of(hook)
    when = when if slowed == 1 else replace(when, interval=when.interval * slowed)
    governed_points = _governed(answers, when)
    found = []
    for method, point, order, scheduled in answers:
        if scheduled and _is_left_out(point.name, when, marked):
            continue
        governed = scheduled if marked else point.name in governed_points
        found.append(
            Slot(
                point,
                name,
                hook,
                method,
                getattr(hook, method) if given is None else given[method],
                hook_priority(hook, point.name, method, order),
                when if governed else None,
                decides and governed,
                slowed if governed and not decides else 1,
            )
        )
    return found


def custom_slots(point: str, hooks: Mapping[str, object]) -> list[Slot]:
    """Return the slots of a point that is not one of the known ones: any method name can be a point."""
    methods = ((name, hook, answer(hook, point)) for name, hook in hooks.items())
    return [
        Slot(Point(point), name, hook, point, method, hook_priority(hook, point))
        for name, hook, method in methods
        if method is not None
    ]


def when_of(hook: object) -> When:
    """Return the schedule of a hook: its own ``when``, or the one made from interval, by_epoch, start and every."""
    when = None if has_default(type(hook), "when") else getattr(hook, "when", None)
    return when if isinstance(when, When) else schedule_of(hook)


def _governed(answers: tuple[Answer, ...], when: When) -> frozenset[str]:
    """Return the points a schedule governs in a hook that marks none of its methods."""
    if when.unit == "epoch" or (when.unit == "second" and answers_only_epochs(answers)):
        return EPOCH_POINTS
    return ITERATION_POINTS


def _is_left_out(point: str, when: When, marked: frozenset[str]) -> bool:
    """Return whether a ``@scheduled`` method gets no slot: its schedule counts epochs and its point iterations, or
    the reverse.
    """
    if point in ITERATION_POINTS:
        return when.unit == "epoch"
    if point in EPOCH_POINTS:
        return when.unit == "iter" or (when.unit == "second" and bool(marked & ITERATION_POINTS))
    return False


def in_order(slots: list[Slot]) -> tuple[Slot, ...]:
    """Sort the slots of one point: ``before_*`` ascending, ``after_*`` descending, ties as configured.

    Example:
        >>> at = lambda point, *given: [
        ...     s.hook for s in in_order([Slot(point_named(point), name, None, point, print, n) for name, n in given])
        ... ]
        >>> at("before_run", ("a", 50), ("b", 10), ("c", 50))
        ['b', 'a', 'c']
        >>> at("after_run", ("a", 50), ("b", 10), ("c", 50))
        ['a', 'c', 'b']
    """
    return tuple(sorted(slots, key=lambda slot: slot.priority if slot.point.ascending else -slot.priority))


def problems_of(hook: object) -> list[tuple[str, str]]:
    """Return what is wrong with the points, priorities and schedule of a hook, as (setting or method, message)."""
    found = []
    cls: Any = type(hook)
    names = {name for name in dir(cls) if own_method(cls, name) is not None} | set(given_methods(hook) or ())
    for method, meant in misspelt_points(sorted(names)).items():
        found.append((method, f"not a point, did you mean {meant!r}?"))
    given = getattr(hook, "priority", None)
    priorities = given if isinstance(given, Mapping) else {} if given is None else {"": given}
    for point, value in priorities.items():
        if point and point_named(point).name not in POINTS and answer(hook, point) is None:
            found.append(("priority", f"{default_name(hook)} has no point {point!r}"))
        try:
            Priority.value_of(value)
        except ValueError as error:
            found.append(("priority", str(error)))
    try:
        when_of(hook)
    except SettingError as error:
        found.append((error.setting, error.message))
    except ValueError as error:
        found.append(("", str(error)))
    return found
