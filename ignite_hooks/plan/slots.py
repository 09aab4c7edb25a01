"""Hooks -> slots: one method of one hook at one point, with its place and its schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ignite_hooks.plan.hook_settings import HookSettings, governed_points, is_left_out, read_settings
from ignite_hooks.plan.methods import answer, answers_of, given_methods, own_method
from ignite_hooks.plan.points import EPOCH_POINTS, Point
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
    """Whether a function decides instead of numbers: the hook's own ``should_trigger``, or the filter of an event."""
    slowed: int = 1
    """The factor by which the interval is longer than the settings say."""
    on_error: str = "raise"
    """What a failure does: raise, warn or disable."""

    # Plain attributes: they are read in every iteration.
    acts_always: bool = field(init=False, repr=False)
    """Whether it fires every time its point is reached."""
    by_clock: bool = field(init=False, repr=False)
    """Whether its schedule is in seconds."""
    by_count: bool = field(init=False, repr=False)
    """Whether numbers of iterations or epochs say when it fires, and when next."""
    key: tuple[str, str, str] = field(init=False, repr=False)
    """Hook, point and method, by which a later plan has the same slot."""
    counts_epochs: bool = field(init=False, repr=False)
    """Whether it is due by the number of the epoch, and not of the iteration."""

    def __post_init__(self) -> None:
        when, put = self.when, object.__setattr__
        unit = "iter" if when is None else when.unit
        put(self, "key", (self.hook, self.point.name, self.method))
        put(self, "acts_always", not self.decides and (when is None or when.always))
        put(self, "by_clock", not self.decides and unit == "second")
        put(self, "by_count", not (self.decides or self.acts_always or self.by_clock))
        put(self, "counts_epochs", unit == "epoch" or self.point.name in EPOCH_POINTS)

    def is_due(self, n: int, fired: Collection[object] = ()) -> bool:
        """Return whether it fires at iteration ``n`` (epoch ``n`` if ``counts_epochs``), counted from 1.

        Args:
            n: The number of the iteration or epoch.
            fired: The keys of the slots whose interval in seconds has elapsed.

        Example:
            >>> from ignite_hooks.plan.points import point_named
            >>> slot = Slot(point_named("after_train_iter"), "log", None, "after_train_iter", print, 50, when=When(2))
            >>> [n for n in range(1, 7) if slot.is_due(n)]
            [2, 4, 6]
        """
        if self.decides:
            if self.when is not None and self.when.asks:
                return self.when.due(n)
            return bool(self.owner.should_trigger(n - 1))  # type: ignore[attr-defined]
        if self.when is None or self.acts_always:
            return True
        return self.key in fired if self.by_clock else self.when.due(n)

    @property
    def how_often(self) -> str:
        """Its schedule in words."""
        if self.decides:
            return str(self.when) if self.when is not None and self.when.asks else "as should_trigger decides"
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


def slots_of(name: str, hook: object, slowed: int = 1, settings: HookSettings | None = None) -> list[Slot]:
    """Return every slot a hook takes at the known points.

    Args:
        name: The name of the hook.
        hook: The hook.
        slowed: The factor by which its interval is longer than its settings say.
        settings: Its settings; by default they are read now.
    """
    answers = answers_of(hook)
    if not answers:
        return []
    given = given_methods(hook)
    marked = frozenset(answer.point.name for answer in answers if answer.scheduled)
    decides = own_method(type(hook), "should_trigger") is not None or "should_trigger" in (given or {})
    settings = read_settings(hook) if settings is None else settings
    when = settings.when
    if decides and when.asks:
        when = When(unit=when.unit)  # what the hook decides goes first
    decides = decides or when.asks
    when = when if slowed == 1 else replace(when, interval=when.interval * slowed)
    by_schedule = governed_points(answers, when)
    found = []
    for method, point, order, scheduled in answers:
        if scheduled and is_left_out(point.name, when, marked):
            continue
        governed = scheduled if marked else point.name in by_schedule
        found.append(
            Slot(
                point,
                name,
                hook,
                method,
                getattr(hook, method) if given is None else given[method],
                settings.priorities.at(point.name, method, order),
                when if governed else None,
                decides and governed,
                slowed if governed and not decides else 1,
                settings.on_error,
            )
        )
    return found


def custom_slots(point: str, hooks: Mapping[str, object], settings: Mapping[str, HookSettings]) -> list[Slot]:
    """Return the slots of a point that is not one of the known ones: any method name can be a point."""
    methods = ((name, hook, answer(hook, point), settings[name]) for name, hook in hooks.items())
    return [
        Slot(Point(point), name, hook, point, method, own.priorities.at(point), on_error=own.on_error)
        for name, hook, method, own in methods
        if method is not None
    ]


def in_order(slots: list[Slot]) -> tuple[Slot, ...]:
    """Sort the slots of one point: ``before_*`` ascending, ``after_*`` descending, ties as configured.

    Example:
        >>> from ignite_hooks.plan.points import point_named
        >>> at = lambda point, *given: [
        ...     s.hook for s in in_order([Slot(point_named(point), name, None, point, print, n) for name, n in given])
        ... ]
        >>> at("before_run", ("a", 50), ("b", 10), ("c", 50))
        ['b', 'a', 'c']
        >>> at("after_run", ("a", 50), ("b", 10), ("c", 50))
        ['a', 'c', 'b']
    """
    return tuple(sorted(slots, key=lambda slot: slot.priority if slot.point.ascending else -slot.priority))
