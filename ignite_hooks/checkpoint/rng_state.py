"""The state of every random generator that a run draws from: read it, put it back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

from ignite_hooks.checkpoint.data.loader_parts import loader_generators, loader_parts
from ignite_hooks.checkpoint.script.own_state import OwnState, restore_own
from ignite_hooks.errors import CheckpointError
from ignite_hooks.system.devices import random_states, set_random_states

RngState = dict[str, Any]
"""Everything that decides which random numbers and which order of the data come next, as plain types and tensors."""


def random_state() -> dict[str, Any]:
    """Return the state of the generators of python, numpy, torch and GPUs, as plain types."""
    import torch

    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {"python": {"version": version, "numbers": list(numbers), "gauss": gauss}}
    numpy = _numpy()
    if numpy is not None:
        name, keys, position, has_gauss, gauss = numpy.random.get_state()
        state["numpy"] = {
            "name": str(name),
            "keys": keys.tolist(),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        }
    state["torch"] = torch.get_rng_state()
    return state | random_states()


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what `random_state` returned; generators that it does not mention stay as they are."""
    import torch

    numpy = _numpy()
    try:
        if "python" in state:
            python = state["python"]
            random.setstate((python["version"], tuple(python["numbers"]), python["gauss"]))
        if "numpy" in state and numpy is not None:
            words = state["numpy"]
            keys = numpy.array(words["keys"], dtype=numpy.uint32)
            position, has_gauss, gauss = words["position"], words["has_gauss"], words["gauss"]
            numpy.random.set_state((words["name"], keys, position, has_gauss, gauss))
        if "torch" in state:
            torch.set_rng_state(state["torch"])
        set_random_states(state)
    except Exception as error:
        raise CheckpointError(f"random state: cannot be restored: {type(error).__name__}: {error}") from error


def rng_state(data: object, own: OwnState | None = None) -> RngState:
    """Return `random_state` together with `loader_state`."""
    return {"random": random_state(), **loader_state(data, own)}


def loader_state(data: object, own: OwnState | None = None) -> dict[str, Any]:
    """Return the state of the generators and counters of a loader, its samplers and its data.

    Args:
        data: The loader.
        own: What has been known of its state since it was first used; without it there are no counters.
    """
    parts = loader_parts(data)
    return {
        "generators": {name: generator.get_state() for name, generator in loader_generators(parts).items()},
        "epochs": {name: part.epoch for name, part in parts.items() if _counts_epochs(part)},
        "used": getattr(data, "_iterator", None) is not None,
        "own": (own or OwnState(data)).state(counters=own is not None),
    }


def restore_rng(data: object, state: RngState, *, read_again: bool = False) -> None:
    """Restore what `rng_state` returned; generators and samplers that no longer exist are skipped.

    Args:
        data: The loader.
        state: Its state.
        read_again: Whether the data has just been read again up to this state.
    """
    set_random_state(state["random"])
    restore_loader(data, state, read_again=read_again)


def restore_loader(data: object, state: Mapping[str, Any], *, read_again: bool = False) -> None:
    """Restore what `loader_state` returned."""
    parts = loader_parts(data)
    for name, generator in loader_generators(parts).items():
        if name in state["generators"]:
            try:
                generator.set_state(state["generators"][name])
            except (TypeError, RuntimeError) as error:
                raise CheckpointError(f"the state of the generator {name} cannot be restored: {error}") from error
    for name, epoch in state["epochs"].items():
        if _counts_epochs(parts.get(name)) and parts[name].epoch != epoch:
            parts[name].set_epoch(epoch)
    if own := state.get("own"):
        restore_own(data, own, read_again=read_again)


@contextlib.contextmanager
def preserve_rng(data: object) -> Iterator[None]:
    """Restore the random state of the process and of a loader when the block ends."""
    state = rng_state(data)
    try:
        yield
    finally:
        restore_rng(data, state)


def _counts_epochs(part: Any) -> bool:
    return callable(getattr(part, "set_epoch", None)) and isinstance(getattr(part, "epoch", None), int)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
