"""Who comes first: named priorities, places beyond them, and the priority of a hook at a point."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ignite_hooks.plan.points import point_named
from ignite_hooks.text import nearest, shown


class Priority(IntEnum):
    """Named priorities; any whole number from 0 to 100 is a priority too."""

    HIGHEST = 0
    VERY_HIGH = 10
    HIGH = 30
    ABOVE_NORMAL = 40
    NORMAL = 50
    BELOW_NORMAL = 60
    LOW = 70
    VERY_LOW = 90
    LOWEST = 100

    @classmethod
    def value_of(cls, priority: object) -> int:
        """Return the number of a priority given as a name in any case or as a number.

        Example:
            >>> Priority.value_of("below_normal"), Priority.value_of(35)
            (60, 35)
        """
        if isinstance(priority, str):
            name = priority.strip().upper().replace("-", "_").replace(" ", "_")
            if name in cls.__members__:
                return int(cls[name])
            near = nearest(name, cls.__members__)
            hint = f"did you mean {near}?" if near else f"choose one of {', '.join(cls.__members__)}"
            raise ValueError(f"{shown(priority)} is not a priority, {hint}")
        if isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 100:
            return int(priority)
        raise ValueError(
            f"{shown(priority)} is not a priority: give a name such as HIGH, or a whole number from 0 to 100"
        )


class Order(IntEnum):
    """Places for ``@at``: ``before_*`` runs from the outermost to the innermost, ``after_*`` the other way round.

    The outer places lie beyond what settings can reach, for hooks that measure what all other hooks do.
    """

    OUTERMOST = -2
    OUTER = -1
    INNERMOST = 100


class AtEnd(IntEnum):
    """The order at the end of a run, at ``after_train``: what is delivered is tested, and saved after its test.

    ``last.pth`` comes before: it holds the state of the last iteration, from which a resumed run continues.
    """

    EVALUATE = 70
    SAVE_LAST = 68
    RESTORE = 66
    TEST = 64
    SAVE_DELIVERED = 62


class Priorities(NamedTuple):
    """The priorities of a hook: from its settings, from its class for single points, and from its class."""

    given: object
    at_points: Mapping[str, object]
    """By the names that were given, and by those of the points that these mean."""
    of_class: object

    @classmethod
    def of(cls, hook: object) -> Priorities:
        """Read the priorities of a hook."""
        given = getattr(hook, "priority", Priority.NORMAL)
        of_class = getattr(type(hook), "priority", Priority.NORMAL)
        given = of_class if given is None else given
        at_points = priorities_at_points(hook)
        at_points = {**_by_point(at_points), **at_points}
        return cls(dict(given) if isinstance(given, Mapping) else given, at_points, of_class)

    def at(self, point: str, method: str = "", order: int | None = None) -> int:
        """Return the priority of a method at a point."""
        given = self.given
        chosen: dict[str, object] = {}
        if isinstance(given, Mapping):
            chosen, given = _by_point(given), self.of_class
        if order is not None and (method or point) not in chosen:
            return order
        at_points = {**self.at_points, **chosen} if chosen else self.at_points
        return Priority.value_of(at_points.get(method, at_points.get(point, given)))


def priorities_at_points(hook: object) -> dict[str, object]:
    """Return the priorities that a hook, or a class of hooks, states for single points."""
    found = getattr(hook, "point_priority", None)
    # On a class it may be a property: the priority follows from the settings.
    return dict(found) if isinstance(found, Mapping) else {}


def _by_point(priorities: Mapping[str, object]) -> dict[str, object]:
    return {point_named(name).name: value for name, value in priorities.items()}


def hook_priority(hook: object, point: str, method: str = "", order: int | None = None) -> int:
    """Return the priority of a hook at a point: from the settings, the class for this point, or the class.

    A method placed by ``@at(order=...)`` stays there, unless it has the name of the point and the settings name it.

    Example:
        >>> class Average:
        ...     priority = Priority.ABOVE_NORMAL
        ...     point_priority = {"after_train_iter": 95}
        >>> hook_priority(Average(), "after_train_iter"), hook_priority(Average(), "after_val")
        (95, 40)
    """
    return Priorities.of(hook).at(point, method, order)
