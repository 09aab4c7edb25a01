"""Load states into objects, one or several, all or none: a checkpoint that does not fit leaves a run as it was."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ignite_hooks.checkpoint.left_out import copied_state
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.parts import is_several, names_of, parts_of, why_no_fit
from ignite_hooks.model.wrapping import load_plain, plain_state

OWNERS = {"state_dict": "model", "optimizer": "optimizer", "scheduler": "scheduler"}
"""The service whose state an entry of a checkpoint holds."""


class Part(NamedTuple):
    """One object of a run, or one of several."""

    service: str
    """The service that it is, or is a part of."""
    name: str = ""
    """Its name among several."""

    @property
    def is_model(self) -> bool:
        """Whether it is a model."""
        return self.service == "model"

    def __str__(self) -> str:
        return f"{self.service} {self.name!r}" if self.name else self.service


def load_all(
    owners: Mapping[Part, Any], states: Mapping[Part, Any], explain: Callable[[Part, Exception], Exception]
) -> None:
    """Load a state into each object, and put all of them back as they were if one does not take its state.

    Models come last, and are copied only if the state of one does not look as if it fits: then it will hardly load.

    Args:
        owners: The objects.
        states: Their states.
        explain: Returns the error to raise for an object and what it has raised.
    """
    undo: list[Callable[[], object]] = []
    all_fit = all(fits(owners[part], state) for part, state in states.items() if part.is_model)
    for part in sorted(states, key=lambda each: each.is_model):
        owner, state = owners[part], states[part]
        load = functools.partial(load_plain, owner) if part.is_model else owner.load_state_dict
        if not part.is_model:
            undo.append(functools.partial(load, copied_state(owner)))
        elif not all_fit:
            undo.append(functools.partial(load, copy.deepcopy(plain_state(owner))))
        try:
            load(state)
        except Exception as error:
            for put_back in undo:
                put_back()
            raise explain(part, error) from error


def fits(model: Any, state: Any) -> bool:
    """Return whether a state has the names and shapes of a model."""
    if not isinstance(state, Mapping):
        return False
    names = plain_state(model)
    return names.keys() == state.keys() and all(
        getattr(value, "shape", None) == getattr(state[name], "shape", None) for name, value in names.items()
    )


def owner_of(objects: Mapping[str, Any], name: str) -> Any:
    """Return a service without what has no state of several schedulers, which need not have one."""
    thing = objects.get(name)
    if name != "scheduler" or not is_several(thing):
        return thing
    return {part: one for part, one in parts_of(thing).items() if hasattr(one, "state_dict")} or None


def several_in(objects: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the parts of the entries of a checkpoint that hold several: states alone need not show it."""
    given = {key: (objects.get(name), state[key]) for key, name in OWNERS.items() if key in state}
    given |= {f"services.{name}": (objects.get(name), saved) for name, saved in state["services"].items()}
    return {key: list(saved) for key, (thing, saved) in given.items() if is_several(thing) and isinstance(saved, dict)}


def parts_saved(state: Mapping[str, Any], key: str) -> list[str] | None:
    """Return the names of the objects whose states an entry of a checkpoint holds; None for one object.

    Example:
        >>> parts_saved({"state_dict": {"g": {}, "d": {}}}, "state_dict"), parts_saved({"state_dict": {}}, "state_dict")
        (['g', 'd'], None)
    """
    if "meta" in state:
        known = state["meta"].get("parts") if isinstance(state["meta"], Mapping) else None
        names = known.get(key) if isinstance(known, Mapping) else None
        return [str(name) for name in names] if isinstance(names, list) else None
    # A file with chosen entries only, or weights in memory: the state of a model holds tensors.
    found = state.get(key)
    if not isinstance(found, Mapping) or not found or not all(isinstance(part, Mapping) for part in found.values()):
        return None
    return [str(name) for name in found]


def check_parts(objects: Mapping[str, Any], services: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    """Raise `CheckpointError` if one was saved of what this run has several of, or the reverse, or other names.

    Args:
        objects: The services of this run.
        services: Those of them whose states checkpoints hold besides model, optimizer and scheduler.
        state: The checkpoint, of which nothing has been loaded yet.
        path: Its file.
    """
    found = [(key, name, owner_of(objects, name)) for key, name in OWNERS.items() if key in state]
    found += [(f"services.{name}", name, services.get(name)) for name in state.get("services", {})]
    for key, name, thing in found:
        if thing is not None and (reason := why_no_fit(name, parts_saved(state, key), names_of(thing))):
            raise CheckpointError(f"{path} does not fit this run: {reason}")
