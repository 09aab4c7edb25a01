"""Makes a hook of functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS, BaseHook
from ignite_hooks.plan.hook_problems import misnamed_point, never_runs
from ignite_hooks.plan.points import ALIASES, POINTS
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

    def __init__(self, **given: Any) -> None:
        super().__init__({word: value for word, value in given.items() if word in COMMON_SETTINGS})
        self._functions = tuple(name for name in given if name not in COMMON_SETTINGS)
        for name in self._functions:
            _check(name, given[name])
            setattr(self, name, _awaited if _is_service(given[name]) else given[name])

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return {**super().answers(), **{name: getattr(self, name) for name in self._functions}}


def _awaited() -> None:
    """Do nothing: stands for a service while only the file is known."""


def _is_service(function: object) -> bool:
    return isinstance(function, str) and function.startswith("@") and function[1:].isidentifier()


def _check(name: str, function: object) -> None:
    """Refuse what cannot be a function at a point: any name can be one, but not that of a point misspelt."""
    points = (*POINTS, *ALIASES, "should_trigger")
    if name not in points and hasattr(BaseHook, name):
        raise SettingError(name, "a word of every hook cannot be a point")
    if not callable(function) and not _is_service(function):
        near = did_you_mean(name, (*points, *COMMON_SETTINGS))
        raise SettingError(name, f"a function is needed, not {function!r}{near}")
    if wrong := misnamed_point(name) or never_runs(function):
        raise SettingError(name, wrong)
