"""Make hooks of Ignite's handlers: ``{type: ignite.handlers.TimeLimit, limit_sec: 3600}``."""

from __future__ import annotations

import builtins
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ignite_hooks.checkpoint.capture import has_method
from ignite_hooks.checkpoint.script.state import forget_deleted_files
from ignite_hooks.errors import ConfigError, Problem, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, Situation
from ignite_hooks.plan.hook_problems import never_runs
from ignite_hooks.plan.hook_settings import give, words_of
from ignite_hooks.plan.ignite_events import EventFilter, read_event
from ignite_hooks.plan.methods import method_of
from ignite_hooks.plan.points import POINTS
from ignite_hooks.run.ranking import main_evaluator
from ignite_hooks.system.python import signature_of
from ignite_hooks.text import did_you_mean, shown

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

UNITS = {
    **dict.fromkeys(("before_train_iter", "after_train_iter"), "iter"),
    **dict.fromkeys(("before_epoch", "after_epoch"), "epoch"),
}
"""What a schedule counts at a point."""

OUR_WORDS: dict[str, Any] = {"engine": str, "event": Any, "arguments": Mapping[str, Any]}
"""The settings of an entry that are for the hook and not for the handler, with their types."""


def handler_class(name: str) -> type:
    """Return the class of this name under ``ignite.handlers``, and nowhere else."""
    import ignite.handlers

    short = name.removeprefix(PREFIX)
    public = {
        n: thing
        for n, thing in vars(ignite.handlers).items()
        if isinstance(thing, type) and n[0] != "_" and thing.__module__.startswith(PREFIX)
    }
    if short not in public:
        raise LookupError(f"ignite.handlers has no handler {shown(short)}{did_you_mean(short, public)}")
    return public[short]


def point_of_event(event: object, engine: str | None) -> str:
    """Return the point at which a handler of an engine's event is called.

    Example:
        >>> point_of_event("EPOCH_COMPLETED", None), point_of_event("COMPLETED", "val")
        ('after_epoch', 'after_val')
    """
    if engine in (None, "trainer"):
        points = EVENTS
    else:
        kind = "test" if engine == "test" else "val"
        points = {point.event: point.name for point in POINTS.values() if point.kind == kind and point.event}
    if not isinstance(event, str) or event not in points:
        hint = did_you_mean(event, points) or f": one of {', '.join(points)} is needed"
        raise SettingError("event", f"{shown(event)} is not an event of this engine{hint}")
    return points[event]


def as_hook(
    handler: Any,
    *,
    engine: str | None = None,
    event: Any = None,
    arguments: Mapping[str, Any] | None = None,
) -> IgniteHandlerHook:
    """Return a hook that does what an Ignite handler does.

    An object with ``attach`` is attached to its engine when the hook joins a runner; a plain callable is called
    with the engine at its event, in the order and as often as its entry says.

    Args:
        handler: The handler.
        engine: The name of an evaluator; the trainer otherwise.
        event: The event of a plain callable, ITERATION_COMPLETED by default, or of an ``attach`` that takes one.
        arguments: What ``attach`` or the call gets by name besides the engine; events by their names.
    """
    extra = dict(arguments or {})
    name = name_of_handler(handler)
    if method_of(handler, "attach"):
        takes = [word for word in ("event", "event_name") if word in signature_of(handler.attach).parameters]
        if event is not None and not takes:
            raise SettingError("event", f"{name} chooses its events itself and takes none")
        if event is not None:
            extra[takes[0]] = event
        extra = _with_events(handler.attach, extra)
        _must_fit(handler.attach, extra, f"{name}.attach")
        return IgniteHandlerHook(handler, engine, extra)
    if not callable(handler):
        raise ValueError(f"{name} can neither be attached to an engine nor called with one")
    read = read_event("ITERATION_COMPLETED" if event is None else event)
    point = point_of_event(read.name, engine)
    if (wrong := never_runs(handler)) is not None:
        raise ValueError(f"{name}: {wrong}")
    alone = is_called_alone(handler, extra)
    if not alone:
        _must_fit(handler, extra, name)
    # What a schedule can say is left to the plan, which does not call what is not due.
    unit = UNITS.get(point) if read.every else None
    made = IgniteHandlerHook(handler, engine, extra, point, alone=alone, only=None if unit else read.only)
    if unit:
        give(made, "every", f"{read.every} {unit}")
    return made


def is_called_alone(function: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether a function cannot take the engine and needs nothing else, as Ignite allows for its handlers.

    >>> is_called_alone(lambda: None, {}), is_called_alone(lambda engine: None, {}), is_called_alone(max, {})
    (True, False, False)
    """
    if getattr(function, "__self__", None) is builtins or "engine" in arguments:
        return False
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    return not _binds(signature, "the engine", **arguments) and _binds(signature, **arguments)


def _binds(signature: inspect.Signature, *values: Any, **arguments: Any) -> bool:
    try:
        signature.bind(*values, **arguments)
    except TypeError:
        return False
    return True


def name_of_handler(handler: object) -> str:
    """Return the name of a handler that nobody has named: that of a function, else that of its class.

    Example:
        >>> name_of_handler(print), name_of_handler(lambda engine: None)
        ('print', 'function')
    """
    function = handler.func if isinstance(handler, functools.partial) else handler
    name = getattr(function, "__name__", "") if inspect.isroutine(function) else ""
    return name if name.isidentifier() else type(handler).__name__


class IgniteHandlerHook(BaseHook):
    """Does what an Ignite handler does.

    Args:
        handler: The handler.
        engine: The name of its evaluator; the trainer by default.
        arguments: What ``attach`` or the call gets by name besides the engine.
        point: The point at which the handler is called; by default it is attached to the engine.
        alone: Whether the call gets no engine.
        only: Which of its events the handler is called at; all by default.
    """

    def __init__(
        self,
        handler: Any,
        engine: str | None,
        arguments: Mapping[str, Any],
        point: str | None = None,
        *,
        alone: bool = False,
        only: EventFilter | None = None,
    ) -> None:
        super().__init__()
        self.config = {"handler": handler}
        self.default_name = name_of_handler(handler)
        self._handler, self._engine, self._arguments, self._point = handler, engine, arguments, point
        self._alone, self._only = alone, only

    @property
    def attaches(self) -> bool:
        """Whether the handler is attached and chooses its events itself."""
        return self._point is None

    def acts_by_itself(self) -> str:
        return f"at events of its own of {_owner(self._engine)}" if self.attaches else ""

    @property
    def is_filtered(self) -> bool:
        """Whether the event itself says how often the handler is called."""
        return self._only is not None or "every" in words_of(self)

    def how_often(self, method: str) -> str | None:
        return None if self._only is None else self._only.words

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return {} if self._point is None else {self._point: self._call}

    def attached(self) -> None:
        if self._point is None:
            arguments = dict(self._arguments)
            if "reset_engine" in signature_of(self._handler.attach).parameters:
                # One that counts over a run, as EarlyStopping: an evaluation does not begin it anew.
                arguments.setdefault("reset_engine", self.runner.trainer)
                if self._engine is None and "event" not in arguments:
                    self._engine = main_evaluator(self.runner.evaluators)
            self._handler.attach(self._find_engine(), **arguments)

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        made = [name for hook in situation.hooks.values() if (name := getattr(hook, "evaluates", None))]
        known = list(dict.fromkeys(["trainer", *situation.evaluators, *made]))
        if situation.complete and self._engine is not None and self._engine not in known:
            hint = did_you_mean(self._engine, known) or _known(known)
            yield "engine", f"there is no engine {self._engine!r}{hint}"

    def _call(self, runner: Any) -> None:
        # Every evaluator reaches the points of an evaluation.
        if runner.state.evaluating in (None, self._engine) and self._is_wanted():
            engines = () if self._alone else (self._find_engine(),)
            self._handler(*engines, **self._arguments)

    def _is_wanted(self) -> bool:
        return self._only is None or self._only.passes(self._find_engine())

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of a handler that is called; one that is attached is found on its engine."""
        saves = not self.attaches and has_method(self._handler, "state_dict", "load_state_dict")
        return {"handler": self._handler.state_dict()} if saves else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the progress of a handler that is called."""
        if "handler" in state and not self.attaches:
            self._handler.load_state_dict(state["handler"])
            forget_deleted_files(self._handler)

    def _find_engine(self) -> Any:
        if self._engine in (None, "trainer"):
            return self.runner.trainer
        evaluators = self.runner.evaluators
        if self._engine not in evaluators:
            message = f"the evaluator {self._engine!r} is made by a hook further down: move this entry below it"
            raise ConfigError([Problem(f"{self.default_name}.engine", message)])
        return evaluators[self._engine]


def _owner(engine: str | None) -> str:
    return "the trainer" if engine in (None, "trainer") else f"the evaluator {engine!r}"


def _known(engines: Sequence[str]) -> str:
    return f"; there are {', '.join(engines)}" if len(engines) > 1 else ": pass evaluators=... to attach_hooks()"


def _with_events(attach: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with Ignite's events in place of their names."""
    from ignite.engine import Events

    made = dict(arguments)
    for name, parameter in signature_of(attach).parameters.items():
        wants_event = "event" in name or "Events" in str(parameter.annotation)
        if wants_event and isinstance(made.get(name), str):
            word = "event" if name in ("event", "event_name") else "arguments"
            try:
                read = read_event(made[name])
            except SettingError as error:
                raise SettingError(word, f"{name} is {error.message}") from None
            if read.event is None:
                hint = did_you_mean(made[name], Events.__members__) or ", an event of Ignite is needed"
                raise SettingError(word, f"{name} is {shown(made[name])}{hint}")
            made[name] = read.event
    return made


def _must_fit(function: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> None:
    """Refuse arguments that a function does not take besides the engine, before it is called with them."""
    if getattr(function, "__self__", None) is builtins and function is not print:
        raise ValueError(f"{getattr(function, '__name__', name)}() of Python can do nothing with an engine")
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # written in C, without a signature
        return
    try:
        signature.bind("the engine", **arguments)
    except TypeError as error:
        missing = re.fullmatch(r"missing a required argument: '(\w+)'", str(error))
        example = '{"model": "@model"}' if missing and missing[1] == "to_save" else "..."
        remedy = f"; write {{'type': ..., 'arguments': {{'{missing[1]}': {example}}}}}" if missing else ""
        raise SettingError("arguments", f"{name} cannot be called with these: {error}{remedy}") from None
