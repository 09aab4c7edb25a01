"""Model, optimizer and loss of a script that did not name them, found where Ignite's own factories keep them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

from ignite.engine import Engine

from ignite_hooks.run.runner import LOGGER_NAME

_NAMES = {"model": "model", "optimizer": "optimizer", "loss_fn": "criterion", "device": "device"}


def discover(trainer: Engine, given: Mapping[str, Any]) -> dict[str, Any]:
    """The services that were given, and those that are found in the closure of the trainer's step.

    Only steps made by ``create_supervised_trainer`` are looked into: in any other function a variable called
    ``model`` could be anything.
    """
    services = dict(given)
    step = trainer._process_function
    if not getattr(step, "__module__", "").startswith("ignite."):
        return services
    inside = inspect.getclosurevars(step).nonlocals
    found = {service: inside[name] for name, service in _NAMES.items() if inside.get(name) is not None}
    new = {service: thing for service, thing in found.items() if service not in services}
    if new:
        names = ", ".join(f"{name} ({type(thing).__name__})" for name, thing in new.items())
        logging.getLogger(LOGGER_NAME).info("found in the trainer's step: %s", names)
    return services | new
