"""The methods with which a hook answers points: those it has itself, not the empty ones of its parent."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ignite_hooks.plan.points import ALIASES, EPOCH_POINTS, ITERATION_POINTS, POINTS, Point, point_named
from ignite_hooks.plan.schedule import is_scheduled

Method = TypeVar("Method", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
Found = TypeVar("Found")


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


def own_methods(cls: type) -> frozenset[str]:
    """Return the names of all methods that a class has itself."""
    return _NAMES.of(cls)


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


def class_answers(cls: type) -> tuple[Answer, ...]:
    """Return the answers of a class: methods named like a point or an alias, then those marked ``@at``."""
    return _ANSWERS.of(cls)


def _find_names(cls: type) -> frozenset[str]:
    return frozenset(name for name in dir(cls) if own_method(cls, name) is not None)


def _find_answers(cls: type) -> tuple[Answer, ...]:
    marks = _marks(cls)
    named = [marks.pop(name, Answer(name, point_named(name))) for name in (*POINTS, *ALIASES)]
    methods = ((one, own_method(cls, one.method)) for one in (*named, *marks.values()))
    return tuple(one._replace(scheduled=one.scheduled or is_scheduled(it)) for one, it in methods if it is not None)


class _ByClass(Generic[Found]):
    """What was found of each class, until one of its methods is another: a cell of a notebook may add some later.

    Args:
        find: Finds it.
    """

    def __init__(self, find: Callable[[type], Found]) -> None:
        self._find = find
        # Weak: a class made from functions would keep alive whatever these have seen.
        self._found: weakref.WeakKeyDictionary[type, tuple[list[Any], Found]] = weakref.WeakKeyDictionary()

    def of(self, cls: type) -> Found:
        """Return what is found of a class."""
        functions = _functions(cls)
        known = self._found.get(cls)
        if known is None or known[0] != functions:
            known = self._found[cls] = functions, self._find(cls)
        return known[1]


def _functions(cls: type) -> list[Any]:
    """Return by what the methods of a class are recognised: references to its functions, and the other names."""
    return [
        weakref.ref(value) if type(value) is types.FunctionType else name
        for base in cls.__mro__
        for name, value in vars(base).items()
    ]


_NAMES = _ByClass(_find_names)
_ANSWERS = _ByClass(_find_answers)


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
