"""Services: named objects that hooks may ask for, and those found in the trainer's step."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.run.logger import LOGGER_NAME

if TYPE_CHECKING:
    from ignite.engine import Engine

KNOWN_SERVICES = (
    "model",
    "optimizer",
    "scheduler",
    "train_loader",
    "val_loader",
    "test_loader",
    "criterion",
    "device",
    "logger",
    "visualizer",
    "config",
)
"""The services with known names that a script may pass."""

ALWAYS_THERE = ("trainer", "runner", "experiment_dir", "checkpoints_dir", "logs_dir", "visualization_dir")
"""The services that every run has."""

LIVE = ("epoch", "iter", "step", "global_step", "metrics", "outputs", "data_batch", "batch_idx", "loss_dict")
"""The values that change during a run and can be parameters of any method, besides the services."""

_IN_STEPS_OF_IGNITE = {"model": "model", "optimizer": "optimizer", "loss_fn": "criterion", "device": "device"}


DIRECTORIES = ("experiment_dir", "checkpoints_dir", "logs_dir", "visualization_dir")
"""Services of every run that are folders."""


class NamedObjects(dict[str, Any]):
    """The services by name. A folder that is looked up exists: whoever asks for it writes there."""

    def __getitem__(self, name: str) -> Any:
        thing = super().__getitem__(name)
        if name in DIRECTORIES:
            # In a folder that cannot be made, the failure is that of whoever writes.
            with contextlib.suppress(OSError):
                thing.mkdir(parents=True, exist_ok=True)
        return thing

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def path_of(self, name: str) -> Path:
        """Return the path of a folder, and do not make it: it is only looked at, or written to later."""
        path: Path = super().__getitem__(name)
        return path


class Services:
    """The objects that a script has passed, and the directories of the run.

    Args:
        given: The objects by name; None counts as missing.
        work_dir: The work directory.
    """

    def __init__(self, given: Mapping[str, Any], work_dir: Path) -> None:
        self.given = dict(given)
        self._directories = {
            "experiment_dir": work_dir,
            "checkpoints_dir": work_dir,
            "logs_dir": work_dir / "logs",
            "visualization_dir": work_dir / "visualization",
        }

    def register(self, name: str, thing: Any) -> None:
        """Add or replace a named object."""
        if name in ALWAYS_THERE:
            raise ValueError(f"{name!r} is a service of every run and cannot be replaced: choose another name")
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a service: choose a valid Python identifier")
        self.given[name] = thing

    def all(self, **always: Any) -> NamedObjects:
        """Return every named object, including those of the run itself, without None."""
        found = {**self._directories, **self.given, **always}
        return NamedObjects((name, thing) for name, thing in found.items() if thing is not None)


def discover(trainer: Engine, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given services, and those found in the closure of the trainer's step.

    Only steps made by ``create_supervised_trainer`` are searched: in other functions a variable called ``model`` could
    be anything.
    """
    services = dict(given)
    step = trainer._process_function
    if not getattr(step, "__module__", "").startswith("ignite."):
        return services
    inside = inspect.getclosurevars(step).nonlocals
    found = {service: inside[name] for name, service in _IN_STEPS_OF_IGNITE.items() if inside.get(name) is not None}
    new = {service: thing for service, thing in found.items() if service not in services}
    if new:
        names = ", ".join(f"{name} ({type(thing).__name__})" for name, thing in new.items())
        logging.getLogger(LOGGER_NAME).info("found in the trainer's step: %s", names)
    return services | new
