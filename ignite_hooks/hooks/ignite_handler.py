"""Handlers of Ignite as hooks: ``{type: ignite.handlers.TimeLimit, limit_sec: 3600}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ignite_hooks.errors import did_you_mean
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.points import POINTS

PREFIX = "ignite.handlers."

EVENTS = {
    "STARTED": "before_run",
    "EPOCH_STARTED": "before_epoch",
    "ITERATION_STARTED": "before_train_iter",
    "ITERATION_COMPLETED": "after_train_iter",
    "EPOCH_COMPLETED": "after_epoch",
    "COMPLETED": "after_run",
}
"""The point at which a plain handler of a trainer's event is called."""

OUR_WORDS = ("engine", "event", "arguments")
"""What an entry says to us and not to the handler."""


def handler_class(name: str) -> type:
    """The class of this name under ``ignite.handlers``, and nowhere else."""
    import ignite.handlers

    short = name.removeprefix(PREFIX)
    public = {n: thing for n, thing in vars(ignite.handlers).items() if isinstance(thing, type) and n[0] != "_"}
    if short not in public:
        raise LookupError(f"ignite.handlers has no class {short!r}{did_you_mean(short, public)}")
    return public[short]


def point_of_event(event: str, engine: str | None) -> str:
    """The point at which a handler of an engine's event is called.

    Example:
        >>> point_of_event("EPOCH_COMPLETED", None), point_of_event("COMPLETED", "val")
        ('after_epoch', 'after_val')
    """
    if engine in (None, "trainer"):
        points = EVENTS
    else:
        kind = "test" if engine == "test" else "val"
        points = {point.event: point.name for point in POINTS.values() if point.kind == kind and point.event}
    if event not in points:
        raise ValueError(f"event is one of {', '.join(points)}, not {event!r}")
    return points[event]


def as_hook(
    handler: Any,
    *,
    engine: str | None = None,
    event: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> BaseHook:
    """A hook that does what an Ignite handler does.

    An object with ``attach`` is attached to its engine when the hook joins a runner; a plain callable is called
    with the engine at its event, in the order and as often as its entry says.

    Args:
        handler: The handler.
        engine: The name of an evaluator; the trainer otherwise.
        event: The event of a plain callable, ITERATION_COMPLETED by default.
        arguments: What ``attach`` or the call gets by name besides the engine.
    """
    extra = dict(arguments or {})
    name = type(handler).__name__
    if callable(getattr(type(handler), "attach", None)):
        if event is not None:
            raise ValueError(f"event: {name} attaches itself to its events and takes none")
        methods: dict[str, Callable[..., Any]] = {"attached": _attach(handler, engine, extra)}
    elif callable(handler):
        point = point_of_event(event or "ITERATION_COMPLETED", engine)
        methods = {point: _call(handler, engine, extra)}
    else:
        raise ValueError(f"{name} can neither be attached nor called")
    made: BaseHook = type(name, (BaseHook,), {"__doc__": f"Ignite's {name}.", **methods})()
    made.config = {"handler": handler}
    return made


def _engine(hook: BaseHook, name: str | None) -> Any:
    if name in (None, "trainer"):
        return hook.runner.trainer
    evaluators = hook.runner.evaluators
    if name not in evaluators:
        raise LookupError(f"there is no evaluator {name!r}{did_you_mean(str(name), evaluators)}")
    return evaluators[name]


def _attach(handler: Any, engine: str | None, extra: Mapping[str, Any]) -> Callable[[BaseHook], None]:
    def attached(self: BaseHook) -> None:
        handler.attach(_engine(self, engine), **extra)

    return attached


def _call(handler: Any, engine: str | None, extra: Mapping[str, Any]) -> Callable[..., None]:
    def answer(self: BaseHook, runner: Any) -> None:
        handler(_engine(self, engine), **extra)

    return answer
