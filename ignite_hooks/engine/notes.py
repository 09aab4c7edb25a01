"""What is said in a line at the start of a run, because the script may not have meant it."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, Events

from ignite_hooks.text import labelled

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

DEPTH = 3
"""How many functions deep a handler is searched for evaluators."""


def log_notes(runner: Runner) -> None:
    """Log the lines that the start of a run needs."""
    for line in without_model(runner):
        # Their checkpoints would hold no weights.
        runner.note_once(line, logging.WARNING)
    for line in double_evaluations(runner):
        runner.note_once(line)


def pass_on_config(runner: Runner) -> None:
    """Pass the configuration to the writers that there are before a run; a tracker that joins takes it itself."""
    config = runner.get_service("config")
    if isinstance(config, Mapping) and config:
        runner.writer.write_config(config)


def without_model(runner: Runner) -> Iterator[str]:
    """Yield a line if there is no model, with the hooks that do without it."""
    hooks = runner.hooks.registered
    without = [name for name, hook in hooks.items() if reads(hook, "model")] if runner.model is None else []
    if without:
        names, do = ", ".join(without), "does" if len(without) == 1 else "do"
        yield f"no model was found in the trainer: {names} {do} without it; pass model=... to attach_hooks()"


def reads(hook: object, service: str) -> bool:
    """Return whether the docstring of a hook says that it reads a service."""
    noted = labelled(type(hook).__doc__ or "", ("reads",))["reads"]
    return service in (word.strip() for word in noted.split(","))


def double_evaluations(runner: Runner) -> Iterator[str]:
    """Yield a line if the script validates after an epoch, and a hook does so too."""
    trainer, evaluators = runner.trainer, runner.evaluators
    running = {
        id(engine): (engine, handler)
        for handler, arguments in handlers_of(trainer, Events.EPOCH_COMPLETED)
        for engine in engines_run_by(handler, arguments)
        if engine is not trainer
    }
    for name, hook in runner.hooks.registered.items():
        evaluates = getattr(hook, "evaluates", None)
        if evaluates is None:
            continue
        by_default = getattr(hook, "given", frozenset()) <= {"name"}
        for engine, handler in running.values():
            is_known = any(engine is other for other in evaluators.values())
            if engine is evaluators.get(evaluates) or (by_default and not is_known):
                yield (
                    f"{_name_of(handler)}() of the script evaluates after an epoch, and so does the hook {name!r}: "
                    "to evaluate once, pass evaluators=... instead of val_loader=... to attach_hooks(), or leave the "
                    "evaluation to the hook"
                )
                return


def note_idle_evaluators(runner: Runner) -> None:
    """Say at the end of an epoch which evaluators have their data and have not run, and that nothing is seen to run."""
    services, hooks = runner.services, runner.hooks.registered.values()
    if not runner.state.epoch_complete:
        return
    evaluating = {getattr(hook, "evaluates", None) for hook in hooks}
    idle = {
        name: engine
        for name, engine in runner.evaluators.items()
        if name != "test"
        and name not in evaluating
        and engine.state.epoch == 0
        and services.get(f"{name}_loader") is not None
    }
    if not idle:
        return
    trainer = runner.trainer
    run = [
        id(engine)
        for one in (trainer, *runner.evaluators.values())
        for event in one._event_handlers
        for handler, arguments in handlers_of(one, event)
        for engine in engines_run_by(handler, arguments)
    ]
    for name, engine in idle.items():
        if id(engine) not in run:
            entry = f"{{type: EvalHook, name: {name}, save_best: false}}"
            runner.note_once(
                f"nothing runs the evaluator {name!r} on {name}_loader: add {entry} to the hooks, as one of "
                "custom_hooks beside the default ones, or run it in a handler"
            )


def handlers_of(engine: Engine, event: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the handlers of an event with their arguments, without the filters around them."""
    for handler, args, kwargs in list(engine._event_handlers.get(event, ())):
        parent = getattr(handler, "_parent", None)
        original = parent() if callable(parent) else None
        yield (handler if original is None else original), (*args, *kwargs.values())


def engines_run_by(function: Any, arguments: Iterable[Any] = (), depth: int = DEPTH) -> list[Engine]:
    """Return the engines that a function is seen to run: those it refers to, if it names ``run``."""
    while isinstance(function, functools.partial):
        arguments = (*arguments, *function.args, *function.keywords.values())
        function = function.func
    owner = getattr(function, "__self__", None)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None or depth == 0:
        return []
    if str(getattr(function, "__module__", "")).startswith(("ignite.", "ignite_hooks.")):
        return []
    things = [*arguments, *_referred_to(inspect.unwrap(function))]
    things += list(getattr(owner, "__dict__", {}).values())
    found = [thing for thing in things if isinstance(thing, Engine)] if "run" in code.co_names else []
    methods = [getattr(type(owner), name, None) for name in code.co_names] if owner is not None else []
    for inner in [*things, *methods]:
        if inspect.isfunction(inner) and inner is not function:
            bound = inner.__get__(owner) if inner in methods else inner
            found += engines_run_by(bound, arguments, depth - 1)
    return found


def _referred_to(function: Any) -> list[Any]:
    """Return the objects that a function refers to by the names of its closure and of its module."""
    function = getattr(function, "__func__", function)
    code, names = function.__code__, function.__globals__
    found = [names[name] for name in code.co_names if name in names]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a variable that is assigned later
            continue
    return found


def _name_of(handler: Any) -> str:
    return str(getattr(handler, "__name__", type(handler).__name__))
