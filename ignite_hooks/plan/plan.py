"""Hooks -> ordered slots: the plan is data that can be read before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, answered_methods, answers_only_epochs, own_method, schedule_of
from ignite_hooks.plan.points import (
    ALIASES,
    EPOCH_POINTS,
    ITERATION_POINTS,
    POINTS,
    Point,
    Priority,
    method_of,
    misspelt_points,
    point_named,
)
from ignite_hooks.plan.schedule import When, is_scheduled
from ignite_hooks.text import html_table, table


@dataclass(frozen=True, eq=False)
class Slot:
    """One method of one hook at one point: where it stands and when it fires."""

    point: Point
    hook: str
    owner: object
    method: str
    priority: int
    when: When | None = None
    """None where no schedule governs the method."""
    decides: bool = False
    """Whether the hook's own ``should_trigger`` decides instead of the schedule."""
    slowed: int = 1
    """How many times longer the interval is than the settings say."""

    @property
    def call(self) -> Callable[..., Any]:
        """The bound method."""
        return getattr(self.owner, self.method)  # type: ignore[no-any-return]

    @property
    def acts_always(self) -> bool:
        """Whether it fires every time its point is met."""
        return not self.decides and (self.when is None or self.when.always)

    @property
    def how_often(self) -> str:
        """In words."""
        if self.decides:
            return "as it decides"
        in_words = method_of(self.owner, "how_often")
        said = in_words(self.owner, self.method) if in_words else None
        if self.slowed > 1 and self.when is not None:
            return f"{self.when}, slowed from {self.when.interval / self.slowed:g}"
        return said or ("always" if self.acts_always else str(self.when))


def hook_priority(hook: object, point: str, method: str = "") -> int:
    """The priority of a hook at a point: the configuration's word, the class's for this point, the class's.

    A class that answers a point by several names may give one of these names a place of its own.

    Example:
        >>> class Average(BaseHook):
        ...     priority = Priority.ABOVE_NORMAL
        ...     point_priority = {"after_train_iter": 95}
        >>> average = Average(priority="HIGH")
        >>> hook_priority(average, "after_train_iter"), hook_priority(average, "after_val")
        (95, 30)
    """
    given = getattr(hook, "priority", Priority.NORMAL)
    at_points = {**(getattr(hook, "point_priority", None) or {})}
    if isinstance(given, Mapping):
        at_points |= {point_named(name).name: value for name, value in given.items()}
        given = getattr(type(hook), "priority", Priority.NORMAL)
    return Priority.value_of(at_points.get(method, at_points.get(point, given)))


def slots_of(name: str, hook: object, slowed: int = 1) -> list[Slot]:
    """Every slot a hook takes at the known points; ``slowed`` makes its interval so many times longer."""
    cls: Any = type(hook)
    methods = answered_methods(cls)
    marked = {method for method in methods if is_scheduled(own_method(cls, method))}
    decides = own_method(cls, "should_trigger") is not None
    when = getattr(hook, "when", None)
    when = when if isinstance(when, When) else schedule_of(hook)
    when = replace(when, interval=when.interval * slowed)
    found = []
    for method in methods:
        point = point_named(method)
        if method in marked and _other_unit(point.name, when, {point_named(m).name for m in marked}):
            continue
        governed = method in marked if marked else point.name in _governed(cls, when)
        found.append(
            Slot(
                point,
                name,
                hook,
                method,
                hook_priority(hook, point.name, method),
                when if governed else None,
                decides and governed,
                slowed if governed and not decides else 1,
            )
        )
    return found


def _governed(cls: type, when: When) -> frozenset[str]:
    if when.unit == "epoch" or (when.unit == "second" and answers_only_epochs(cls)):
        return EPOCH_POINTS
    return ITERATION_POINTS


def _other_unit(point: str, when: When, marked: set[str]) -> bool:
    if point in ITERATION_POINTS:
        return when.unit == "epoch"
    if point in EPOCH_POINTS:
        return when.unit == "iter" or (when.unit == "second" and bool(marked & ITERATION_POINTS))
    return False


def in_order(slots: list[Slot]) -> tuple[Slot, ...]:
    """Sort the slots of one point: ``before_*`` ascending, ``after_*`` descending, ties as configured.

    Example:
        >>> at = lambda point, *given: [
        ...     s.hook
        ...     for s in in_order([Slot(point_named(point), name, None, point, priority) for name, priority in given])
        ... ]
        >>> at("before_run", ("a", 50), ("b", 10), ("c", 50))
        ['b', 'a', 'c']
        >>> at("after_run", ("a", 50), ("b", 10), ("c", 50))
        ['a', 'c', 'b']
    """
    return tuple(sorted(slots, key=lambda slot: slot.priority if slot.point.ascending else -slot.priority))


class Step(NamedTuple):
    """One call of a run as the plan foresees it; epoch and iteration count from 1, 0 is before the first."""

    point: str
    hook: str
    epoch: int
    iteration: int


class Plan:
    """Which hook runs at which point, in which order and how often.

    Args:
        hooks: The hooks by name, in the order of the configuration.
        now: Gives the iterations and epochs that have finished, for the column ``next``.
        slowed: How many times longer the intervals of some hooks are than their settings say.
    """

    def __init__(
        self,
        hooks: Mapping[str, object],
        now: Callable[[], tuple[int, int]] = lambda: (0, 0),
        slowed: Mapping[str, int] | None = None,
    ) -> None:
        self.hooks = dict(hooks)
        self._now = now
        found: dict[str, list[Slot]] = {point: [] for point in POINTS}
        for name, hook in self.hooks.items():
            for slot in slots_of(name, hook, (slowed or {}).get(name, 1)):
                found[slot.point.name].append(slot)
        self._slots = {point: in_order(slots) for point, slots in found.items()}

    def at(self, point: str) -> tuple[Slot, ...]:
        """The slots of a point in the order in which they run; any method name can be a point."""
        name = ALIASES.get(point, point)
        if name in self._slots:
            return self._slots[name]
        custom = Point(name)
        return in_order(
            [
                Slot(custom, hook_name, hook, name, hook_priority(hook, name))
                for hook_name, hook in self.hooks.items()
                if own_method(type(hook), name) is not None
            ]
        )

    def __iter__(self) -> Iterator[Slot]:
        for slots in self._slots.values():
            yield from slots

    def __len__(self) -> int:
        return sum(len(slots) for slots in self._slots.values())

    @property
    def digest(self) -> str:
        """A fingerprint of what runs where, in which order and how often: equal plans, equal digests."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    def lines(self) -> list[str]:
        """The slots as text, all that decides what happens when."""
        return [f"{s.point.name} {s.hook} {type(s.owner).__name__} {s.method} {s.priority} {s.how_often}" for s in self]

    def rows(self) -> list[dict[str, str]]:
        """The plan as a table: a row for each slot."""
        iterations, epochs = self._now()
        rows = []
        told: set[str] = set()
        for point, slots in self._slots.items():
            for order, slot in enumerate(slots, 1):
                notes = notes_of(type(slot.owner)) if slot.hook not in told else dict.fromkeys(NOTES, "")
                told.add(slot.hook)
                rows.append(
                    {
                        "point": point if order == 1 else "",
                        "order": str(order),
                        "hook": slot.hook,
                        "priority": str(slot.priority),
                        "how often": slot.how_often,
                        "next": _next(slot, iterations, epochs),
                        "reads": notes["reads"],
                        "writes": notes["writes"],
                        "saves": notes["saves"],
                    }
                )
        return rows

    def timeline(self, epochs: int, iterations: int, evaluation_iterations: int = 1) -> Iterator[Step]:
        """Every call of a short run, foreseen: ``iterations`` to an epoch, evaluations where a hook makes them.

        What depends on the numbers of a run (a new best, an early stop) or on the clock is not foreseen.
        """
        yield from Foreseen(self, epochs, iterations, evaluation_iterations).run()

    def __str__(self) -> str:
        return table(self.rows()) or "no hooks"

    def _repr_html_(self) -> str:
        rows = self.rows()
        return html_table(rows, wide=NOTES) if rows else "<p>no hooks</p>"


class Foreseen:
    """Walks through a run that does not happen."""

    def __init__(self, plan: Plan, epochs: int, iterations: int, evaluation_iterations: int) -> None:
        self.plan = plan
        self.epochs, self.iterations, self.evaluation_iterations = epochs, iterations, evaluation_iterations
        self.epoch = self.iteration = 0
        self._evaluated_at: dict[int, int] = {}

    def run(self) -> Iterator[Step]:
        """Every call in order."""
        yield from self.meet("before_run")
        yield from self.meet("before_train")
        for epoch in range(1, self.epochs + 1):
            self.epoch = epoch
            yield from self.meet("before_epoch")
            yield from self.meet("before_train_epoch")
            for _ in range(self.iterations):
                self.iteration += 1
                yield from self.meet("before_train_iter")
                yield from self.meet("after_train_iter")
            yield from self.meet("after_train_epoch")
            yield from self.meet("after_epoch")
        for point in ("after_train", "after_run", "cleanup"):
            yield from self.meet(point)

    def meet(self, point: str) -> Iterator[Step]:
        """The calls at one point, with those they lead to."""
        for slot in self.plan.at(point):
            if not self.due(slot):
                continue
            yield Step(point, slot.hook, self.epoch, self.iteration)
            for nested in getattr(slot.owner, "foreseen", lambda _, __: ())(slot.method, self):
                if nested in ("val", "test"):
                    self._evaluated_at[id(slot.owner)] = self.iteration
                    yield from self.evaluate(nested)
                else:
                    yield from self.meet(nested)

    def due(self, slot: Slot) -> bool:
        """Whether a slot fires where the walk is now."""
        n = self.epoch if slot.when is not None and slot.when.unit == "epoch" else self.iteration
        if slot.decides:
            return bool(slot.owner.should_trigger(n - 1))  # type: ignore[attr-defined]
        if slot.when is None or slot.when.always:
            return True
        return slot.when.unit != "second" and slot.when.due(n)

    def has_just_evaluated(self, hook: object) -> bool:
        """Whether this hook has evaluated at the iteration where the walk is now."""
        return self._evaluated_at.get(id(hook)) == self.iteration

    def evaluate(self, kind: str) -> Iterator[Step]:
        """The calls of an evaluation."""
        yield from self.meet(f"before_{kind}")
        yield from self.meet(f"before_{kind}_epoch")
        for _ in range(self.evaluation_iterations):
            yield from self.meet(f"before_{kind}_iter")
            yield from self.meet(f"after_{kind}_iter")
        yield from self.meet(f"after_{kind}_epoch")
        yield from self.meet(f"after_{kind}")


NOTES = ("reads", "writes", "saves")
"""What a docstring says of a hook besides its settings; a plan says it once for each hook."""


def _next(slot: Slot, iterations: int, epochs: int) -> str:
    if slot.when is None or slot.acts_always or slot.decides or slot.when.unit == "second":
        return ""
    n = slot.when.following(epochs if slot.when.unit == "epoch" else iterations)
    return f"{slot.when.unit} {n}"


def notes_of(cls: Any) -> dict[str, str]:
    """What a hook says in its docstring that it reads, writes and saves."""
    notes = dict.fromkeys(NOTES, "")
    for line in (cls.__doc__ or "").splitlines():
        word, colon, text = line.strip().partition(":")
        if colon and word.lower() in notes:
            notes[word.lower()] = text.strip().rstrip(".")
    return notes


def problems_of(hook: object) -> list[tuple[str, str]]:
    """What is wrong with the points, priorities and schedule of a hook, as (setting or method, message)."""
    found = []
    names = [name for name in set(dir(type(hook))) - set(dir(BaseHook)) if callable(getattr(type(hook), name, None))]
    for method, meant in misspelt_points(sorted(names)).items():
        found.append((method, f"not a point, did you mean {meant!r}?"))
    given = getattr(hook, "priority", None)
    priorities = given if isinstance(given, Mapping) else {} if given is None else {"": given}
    for point, value in priorities.items():
        if point and point_named(point).name not in POINTS and own_method(type(hook), point) is None:
            found.append(("priority", f"{type(hook).__name__} has no point {point!r}"))
        try:
            Priority.value_of(value)
        except ValueError as error:
            found.append(("priority", str(error)))
    try:
        when = getattr(hook, "when", None)
        when if isinstance(when, When) else schedule_of(hook)
    except SettingError as error:
        found.append((error.setting, error.message))
    except ValueError as error:
        found.append(("", str(error)))
    return found
