"""Takes an object that a script made as a hook, or makes a hook of it: one way in for every kind of object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_hooks.config.ignite_handlers import as_hook
from ignite_hooks.config.mmengine import other_name
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.plan.class_code import attributes_assigned_in, attributes_read_in
from ignite_hooks.plan.methods import class_answers
from ignite_hooks.registry import HOOKS, SCOPES
from ignite_hooks.run.runner import Runner
from ignite_hooks.system.python import signature_of
from ignite_hooks.text import shown

NEEDED = (
    "a hook has a method that is a point, such as after_epoch; "
    "an Ignite handler or a function of the engine will do too"
)


def ready(thing: Any) -> Any:
    """Return a hook as it is, and a hook made of an Ignite handler or a function; raise a TypeError for anything else.

    Example:
        >>> ready(print).get_triggered_stages()
        ['after_train_iter']
    """
    if isinstance(thing, type):
        raise TypeError(f"a class: write {{'type': '{thing.__name__}'}} or {thing.__name__}() for a hook")
    if isinstance(thing, (str, Mapping)):
        raise TypeError(f"a hook is needed, not {shown(thing)}: pass it to build_hook() first")
    if (theirs := needs_mmengine(thing)) is not None:
        raise TypeError(theirs)
    if is_hook(thing):
        return thing
    try:
        return as_hook(thing)
    except SettingError as error:
        raise TypeError(f"not a hook: {error}") from None
    except ValueError as error:
        raise TypeError(f"not a hook: {error}; {NEEDED}") from None


def is_hook(thing: object) -> bool:
    """Return whether an object answers points by itself."""
    cls: Any = type(thing)
    return isinstance(thing, BaseHook) or bool(class_answers(cls)) or bool(getattr(cls, "custom_points", ()))


def needs_mmengine(thing: object) -> str | None:
    """Return why a hook of MMEngine's family cannot run here, or None.

    Many of their hooks do: those that ask the runner only for what ours has too.
    """
    theirs = [base for base in type(thing).__mro__ if base.__module__.split(".")[0] in SCOPES]
    if not theirs:
        return None
    unknown = attributes_read_in(theirs, of="runner") - {*dir(Runner), *attributes_assigned_in([Runner])}
    fixed = {name for name in dir(Runner) if isinstance(getattr(Runner, name), property)}
    missing = sorted(unknown) + sorted(fixed & attributes_assigned_in(theirs, of="runner"))
    if not missing:
        return None
    name = theirs[0].__name__
    message = f"{theirs[0].__module__.split('.')[0]}.{name} needs MMEngine's Runner (runner.{missing[0]})"
    if name in HOOKS:
        return f"{message}: write {{'type': '{name}'}}, its counterpart here"
    return message + (other_name(name) or ": write it anew as a subclass of BaseHook, for the runner that is here")


def takes_engine(function: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether a function is a handler of an engine, and not one that makes a hook of these settings."""
    if isinstance(function, type) or not callable(function):
        return False
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    parameters = list(signature.parameters.values())
    if not parameters:
        # Without an event it makes a hook.
        return "event" in arguments
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 1 and required[0].name not in ("config", "cfg", *arguments)


def is_handler_class(cls: object) -> bool:
    """Return whether the objects of a class are Ignite handlers: attached to an engine or called with it."""
    if not isinstance(cls, type) or issubclass(cls, BaseHook) or class_answers(cls):
        return False
    return callable(getattr(cls, "attach", None)) or callable(inherited(cls, "__call__"))


def inherited(cls: type, method: str) -> Any:
    """Return a method of a class or of its parents, and not of the class of the class."""
    return next((vars(base)[method] for base in cls.__mro__ if method in vars(base)), None)
