"""The methods with which a hook answers points: those it has itself, not the empty ones of its parent."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ignite_hooks.plan.points import ALIASES, EPOCH_POINTS, ITERATION_POINTS, POINTS, Point, point_named
from ignite_hooks.plan.schedule import is_scheduled

Method = TypeVar("Method", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


class Answer(NamedTuple):
    """One method that answers a known point."""

    method: str
    point: Point
    order: int | None = None
    """Its place at the point, where ``@at`` gives one."""
    scheduled: bool = False
    """Whether it is marked as governed by the schedule of its hook."""


def at(point: str, *, order: int | None = None, scheduled: bool = False) -> Callable[[Method], Method]:
    """Make a method answer a point, at a place that settings do not move; a hook may answer a point several times.

    Args:
        point: The point that the method answers, whatever its own name is.
        order: An ``Order`` or a priority; by default the hook's priority at this point.
        scheduled: Whether the schedule of the hook governs the method.

    Example:
        >>> class Timer:
        ...     @at("after_train_iter", order=0)
        ...     def end_of_iteration(self): ...
        ...
        ...     @at("after_train_iter", scheduled=True)
        ...     def write(self): ...
        >>> [(answer.method, answer.point.name, answer.scheduled) for answer in class_answers(Timer)]
        [('end_of_iteration', 'after_train_iter', False), ('write', 'after_train_iter', True)]
    """

    def mark(method: Method) -> Method:
        method.__at__ = Answer(method.__name__, point_named(point), order, scheduled)  # type: ignore[attr-defined]
        return method

    return mark


def default_name(hook: object) -> str:
    """Return the name of a hook that nobody has named: its ``default_name``, or the name of its class."""
    name = getattr(hook, "default_name", None)
    return name if isinstance(name, str) else type(hook).__name__


def method_of(thing: object, name: str) -> Callable[..., Any] | None:
    """Return the function that the class of a thing has under a name, to be called with the thing first, or None.

    Example:
        >>> method_of("text", "upper")("text"), method_of("text", "attach")
        ('TEXT', None)
    """
    # Not looked up on the thing itself: an Ignite Metric answers hasattr for any name.
    function = getattr(type(thing), name, None)
    return function if callable(function) else None


_DEFAULTS: set[object] = set()


def mark_defaults(cls: Class) -> Class:
    """Mark the methods and properties of a class as defaults: who inherits one of them answers nothing with it."""
    _DEFAULTS.update(value for value in vars(cls).values() if isinstance(value, (types.FunctionType, property)))
    return cls


def own_method(cls: type, name: str) -> Callable[..., Any] | None:
    """Return the method that a class gives this name itself, or None where it has none or a default."""
    method = _found(cls, name)
    return method if callable(method) and not _is_default(method) else None


_NAMES: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def own_methods(cls: type) -> frozenset[str]:
    """Return the names of all methods that a class has itself."""
    if cls not in _NAMES:
        _NAMES[cls] = frozenset(name for name in dir(cls) if own_method(cls, name) is not None)
    return _NAMES[cls]


def overrides(cls: type, name: str) -> bool:
    """Return whether a class has a method in place of a default, and not by chance one of the same name."""
    return own_method(cls, name) is not None and any(_is_default(vars(base).get(name)) for base in cls.__mro__)


def has_default(cls: type, name: str) -> bool:
    """Return whether what a class has under a name is a default."""
    return _is_default(_found(cls, name))


def _found(cls: type, name: str) -> Any:
    # Looked up on the class: an Ignite Metric answers hasattr for any name.
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _is_default(method: object) -> bool:
    return isinstance(method, (types.FunctionType, property)) and method in _DEFAULTS


_ANSWERS: weakref.WeakKeyDictionary[type, tuple[Answer, ...]] = weakref.WeakKeyDictionary()


def class_answers(cls: type) -> tuple[Answer, ...]:
    """Return the answers of a class: methods named like a point or an alias, then those marked ``@at``."""
    # Weak: a class made from functions would keep alive whatever these have seen.
    if cls not in _ANSWERS:
        marks = _marks(cls)
        named = [marks.pop(name, Answer(name, point_named(name))) for name in (*POINTS, *ALIASES)]
        methods = ((one, own_method(cls, one.method)) for one in (*named, *marks.values()))
        found = [one._replace(scheduled=one.scheduled or is_scheduled(it)) for one, it in methods if it is not None]
        _ANSWERS[cls] = tuple(found)
    return _ANSWERS[cls]


def _marks(cls: type) -> dict[str, Answer]:
    """Return the marks of ``@at`` by method; a method that overrides a marked one has its mark."""
    found: dict[str, Answer] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            mark = vars(value).get("__at__") if isinstance(value, types.FunctionType) else None
            if mark is not None:
                found[name] = mark._replace(method=name)
    return found


def answers_of(hook: object) -> tuple[Answer, ...]:
    """Return the answers of a hook: those of its class, unless it gives others in ``answers()``."""
    given = given_methods(hook)
    if given is None:
        return class_answers(type(hook))
    names = (name for name in (*POINTS, *ALIASES) if name in given)
    return tuple(Answer(name, point_named(name), None, is_scheduled(given[name])) for name in names)


def given_methods(hook: object) -> Mapping[str, Callable[..., Any]] | None:
    """Return what the ``answers()`` of a hook gives, or None where its class decides."""
    cls: Any = type(hook)
    return cls.answers(hook) if overrides(cls, "answers") else None


def answer(hook: object, name: str) -> Callable[..., Any] | None:
    """Return the bound method with which a hook answers a point, any name among them, or None."""
    given = given_methods(hook)
    if given is not None:
        return given.get(name)
    return getattr(hook, name) if own_method(type(hook), name) is not None else None


def answers_only_epochs(answers: tuple[Answer, ...]) -> bool:
    """Return whether, of the train iteration and epoch points, only epoch points are answered."""
    points = {answer.point.name for answer in answers}
    return bool(points & EPOCH_POINTS) and not points & ITERATION_POINTS
