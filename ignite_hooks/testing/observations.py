"""Observe hooks, engines and the process, and put the differences into words."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events

from ignite_hooks.config.describe import Description, describe
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.testing.tiny import TinyRun

FONTS = (".ttf", ".otf", ".ttc")
"""Files that are nobody's: matplotlib keeps a font open for all pictures of the process once one was drawn with it."""


def settings_of(hook: Any) -> dict[str, Any]:
    """Return the settings of a hook by name; containers are copied, other objects stay the same."""
    config = vars(hook).get("config")
    names = [setting.name for setting in describe_hook(hook).settings]
    names += [name for name in ("name", "priority", "on_error") if name not in names]
    values = {name: getattr(hook, name) for name in names if hasattr(hook, name)}
    found: dict[str, Any] = copy_tree({**(config if isinstance(config, Mapping) else {}), **values})
    return found


def describe_hook(hook: object) -> Description:
    cls: Any = type(hook)
    return describe(cls)


def compare(one: Any, other: Any, place: str = "") -> str:
    """Say where two values differ first; return an empty text if they are equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return "" if _same_tensor(one, other) else f"{place or 'a tensor'} has other values"
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        below = ((one[key], other[key], f"{place}.{key}" if place else str(key)) for key in one)
        return next((found for parts in below if (found := compare(*parts))), "")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        parts = ((a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True)))
        return next((found for part in parts if (found := compare(*part))), "")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = enumerate(zip(one, other, strict=False))
        at = next((i for i, (a, b) in pairs if compare(a, b)), min(len(one), len(other)))
        was, is_ = (repr(values[at]) if at < len(values) else "nothing" for values in (one, other))
        return f"{place}[{at}] was {was} and is {is_}"
    # A NaN equals itself here.
    same = one is other or (one != one and other != other) or bool(one == other)
    return "" if same else f"{place or 'it'} was {one!r} and is {other!r}"


def _same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and bool(torch.equal(one.nan_to_num(), other.nan_to_num()))


def traces(run: TinyRun) -> dict[str, int]:
    """Count everything a hook could leave on engines, model and optimizer, by its description."""
    found: list[str] = []
    for name, engine in (("trainer", run.trainer), ("evaluator", run.evaluator)):
        found += [f"the attribute {attribute!r} of the {name}" for attribute in vars(engine)]
        found += [f"the event {_event_name(event)} of the {name}" for event in engine._allowed_events]
        for event, handlers in engine._event_handlers.items():
            found += [f"a handler of {_event_name(event)} on the {name}" for _ in handlers]
        if Events.EXCEPTION_RAISED in engine._event_handlers:
            # Even an empty list makes Ignite swallow exceptions.
            found.append(f"a list of handlers of EXCEPTION_RAISED on the {name}")
        found += [f"the step {engine._process_function!r} of the {name}"]
    for name, module in run.model.named_modules():
        where = f"the model's {name}" if name else "the model"
        found += [f"the attribute {attribute!r} of {where}" for attribute in vars(module)]
        found += [f"the mode training={module.training} of {where}"]
        found += [
            f"an entry of {key} of {where}" for key, v in vars(module).items() if key.endswith("_hooks") for _ in v
        ]
    found += [f"the attribute {attribute!r} of the optimizer" for attribute in vars(run.optimizer)]
    return {what: found.count(what) for what in found}


def _event_name(event: Any) -> str:
    return str(getattr(event, "name", event))


def record_events(trainer: Engine) -> list[str]:
    """Return a list to which the run adds every event a script can see, with its place and the loss."""
    seen: list[str] = []

    def note(engine: Engine, event: str) -> None:
        state, last = engine.state, _event_name(engine.last_event_name)
        place = f"epoch {state.epoch}, iteration {state.iteration}"
        seen.append(f"{event} at {place}, output {state.output!r}, last event {last}")

    for event in Events:
        # Ignite swallows exceptions as soon as anything listens to them.
        if event is not Events.EXCEPTION_RAISED:
            trainer.add_event_handler(event, note, event.name)
    return seen


def process_resources() -> set[str]:
    """Describe the threads, open files, logging handlers and signal handlers of this process."""
    found = {f"the thread {thread.name!r} ({thread.ident})" for thread in threading.enumerate()}
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            found |= {
                f"the handler {handler!r} ({id(handler)}) of logger {logger.name!r}" for handler in logger.handlers
            }
    for number in (signal.SIGINT, signal.SIGTERM):
        found.add(f"the handler {signal.getsignal(number)!r} of {number.name}")
    folder = Path("/proc/self/fd")
    if folder.exists():
        for descriptor in os.listdir(folder):
            # The descriptor of the listing itself is closed by now.
            with contextlib.suppress(OSError):
                path = os.readlink(folder / descriptor)
                if not path.endswith(FONTS):
                    found.add(f"the open file {path} ({descriptor})")
    return found
