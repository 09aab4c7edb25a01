"""Makes a hook of functions."""

from __future__ import annotations

from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS, BaseHook
from ignite_hooks.plan.points import ALIASES, POINTS, misspelt_points
from ignite_hooks.text import did_you_mean


class LambdaHook(BaseHook):
    """Call functions at the points they are given for; each receives what its parameters name.

    Args:
        **given: Functions by the name of their point, in a file the names of services, as in
            ``after_epoch: "@my_function"``; and the settings that every hook has.

    Reads: what the functions name.

    Example:
        >>> hook = LambdaHook(after_epoch=lambda epoch, metrics: print(epoch, metrics), interval=5)
        >>> hook.get_triggered_stages(), str(hook.when)
        (['after_epoch'], 'every 5 epochs')
    """

    def __new__(cls, **given: Any) -> LambdaHook:
        functions = {name: value for name, value in given.items() if name not in COMMON_SETTINGS}
        for name, function in functions.items():
            _check(name, function)
        # A hook's points are the methods of its class, so each has a class of its own.
        answers = {name: staticmethod(_awaited if _is_service(one) else one) for name, one in functions.items()}
        return super().__new__(type(cls.__name__, (cls,), {"__doc__": cls.__doc__, **answers}))

    def __init__(self, **given: Any) -> None:
        super().__init__({word: value for word, value in given.items() if word in COMMON_SETTINGS})


def _awaited() -> None:
    """Stands for a service where only the file is seen."""


def _is_service(function: object) -> bool:
    return isinstance(function, str) and function.startswith("@") and function[1:].isidentifier()


def _check(name: str, function: object) -> None:
    """Any name can be a point of the script's own; one that is nearly a known point is a slip."""
    points = (*POINTS, *ALIASES, "should_trigger")
    if name not in points and hasattr(BaseHook, name):
        raise SettingError(name, "a word of every hook cannot be a point")
    if not callable(function) and not _is_service(function):
        near = did_you_mean(name, (*points, *COMMON_SETTINGS))
        raise SettingError(name, f"a function is needed, not {function!r}{near}")
    if meant := misspelt_points([name]):
        raise SettingError(name, f"not a point, did you mean {meant[name]!r}?")
