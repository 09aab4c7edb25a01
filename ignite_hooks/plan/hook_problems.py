"""Finds what is wrong with a hook as it is, before it runs: its points, priorities and schedule."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.plan.foreign_points import FOREIGN_POINTS, is_foreign
from ignite_hooks.plan.hook_settings import when_of, without_effect
from ignite_hooks.plan.methods import answer, answers_of, default_name, given_methods, own_methods
from ignite_hooks.plan.points import ALIASES, POINTS, misspelt_points, point_named
from ignite_hooks.plan.priority import Priority
from ignite_hooks.text import did_you_mean, nearest, shown

Problems = Iterator[tuple[str, str]]
_IN_PARTS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR


def problems_of(hook: object) -> list[tuple[str, str]]:
    """Return what is wrong with the points, priorities and schedule of a hook, as (setting or method, message)."""
    found = [*_points(hook), *_uncalled(hook), *_priorities(hook), *_point_priorities(hook)]
    try:
        found += without_effect(hook, when_of(hook))
    except SettingError as error:
        found.append((error.setting, error.message))
    except ValueError as error:
        found.append(("", str(error)))
    return found


def misnamed_point(name: str) -> str | None:
    """Return what is wrong with the name of a method that would be called nowhere: misspelt, or another framework's.

    Example:
        >>> misnamed_point("after_train_itr"), misnamed_point("after_lunch")
        ("not a point, did you mean 'after_train_iter'?", None)
    """
    if name in POINTS or name in ALIASES:
        return None
    if is_foreign(name):
        meant = name if name in FOREIGN_POINTS else nearest(name, FOREIGN_POINTS, cutoff=0.8)
        hint = f"did you mean {FOREIGN_POINTS[meant]!r}?" if meant else "which nothing calls here."
        return f'a point of other frameworks, {hint} Write custom_points = ("{name}",) if runner.call_hook() calls it'
    meant = misspelt_points([name]).get(name)
    return f"not a point, did you mean {meant!r}?" if meant else None


def _points(hook: object) -> Problems:
    """Yield the methods that look like points and are none, and the custom points that are not there."""
    cls: Any = type(hook)
    names = own_methods(cls) | set(given_methods(hook) or ())
    custom = _custom_points(hook)
    for point in custom:
        if point not in names:
            yield "custom_points", f"{default_name(hook)} has no method {point!r}{did_you_mean(point, sorted(names))}"
    for name in sorted(names):
        if name not in custom and not name.startswith("_") and (message := misnamed_point(name)):
            yield name, message


def _custom_points(hook: object) -> tuple[str, ...]:
    given = getattr(type(hook), "custom_points", ())
    return (
        (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else ()
    )


def _uncalled(hook: object) -> Problems:
    """Yield the methods that a call would only prepare to run."""
    names = {one.method for one in answers_of(hook)} | set(_custom_points(hook))
    given = given_methods(hook) or {}
    for name in sorted(names):
        if message := never_runs(given.get(name) or getattr(hook, name, None)):
            yield name, message


def never_runs(function: object) -> str | None:
    """Return what is wrong with a function that does nothing when it is called, or None."""
    inner = getattr(function, "__func__", function)
    if type(inner) is types.FunctionType and not inner.__code__.co_flags & _IN_PARTS and not vars(inner):
        return None
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "'async def' never runs, as nothing awaits it: write 'def'"
    if inspect.isgeneratorfunction(function):
        return "a 'def' with 'yield' never runs, as nothing asks for its values: leave out 'yield'"
    return None


def _priorities(hook: object) -> Problems:
    given = getattr(hook, "priority", None)
    priorities = given if isinstance(given, Mapping) else {} if given is None else {"": given}
    for point, value in priorities.items():
        if point and not _has_point(hook, point):
            yield "priority", _no_point(hook, point)
        try:
            Priority.value_of(value)
        except ValueError as error:
            yield "priority", str(error)


def _point_priorities(hook: object) -> Problems:
    given = getattr(hook, "point_priority", None)
    if given is None:
        return
    if not isinstance(given, Mapping):
        yield "point_priority", f"a mapping of points to priorities is needed, not {shown(given)}"
        return
    for point, value in given.items():
        if not _has_point(hook, point):
            yield "point_priority", _no_point(hook, point)
            continue
        try:
            Priority.value_of(value)
        except ValueError as error:
            yield "point_priority", f"{point}: {error}"


def _has_point(hook: object, point: object) -> bool:
    if not isinstance(point, str):
        return False
    return point_named(point).name in POINTS or answer(hook, point) is not None


def _no_point(hook: object, point: object) -> str:
    hint = did_you_mean(point, [*POINTS, *ALIASES, *(one.method for one in answers_of(hook))])
    return f"{default_name(hook)} has no point {point!r}{hint}"
