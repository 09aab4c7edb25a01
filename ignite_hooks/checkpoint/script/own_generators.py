"""Random generators that are objects of the script: their state as plain types, and back."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Mapping
from typing import Any

from ignite_hooks.errors import CheckpointError

ARRAY_TYPES = ("uint32", "uint64")
"""The element types of the arrays in the states of numpy's generators."""

_NO_GENERATORS = frozenset((type(None), bool, int, float, str, list, tuple, dict, set, types.FunctionType))
"""The most frequent types of what is looked at."""


def is_generator(thing: object) -> bool:
    """Return whether a thing is a random generator whose state can be read and set.

    Example:
        >>> is_generator(random.Random(0)), is_generator(random.SystemRandom()), is_generator(random)
        (True, False, False)
    """
    return _kind(thing) is not None


def generator_state(generator: Any) -> dict[str, Any]:
    """Return the state of a generator of python, numpy or torch, as plain types and tensors."""
    kind = _kind(generator)
    if kind == "python":
        version, numbers, gauss = generator.getstate()
        return {"kind": kind, "version": version, "numbers": list(numbers), "gauss": gauss}
    if kind == "numpy":
        return {"kind": kind, "state": _without_arrays(generator.bit_generator.state)}
    if kind == "numpy.legacy":
        return {"kind": kind, "state": _without_arrays(generator.get_state(legacy=False))}
    return {"kind": "torch", "state": generator.get_state()}


def set_generator_state(generator: Any, state: Mapping[str, Any]) -> None:
    """Restore what `generator_state` returned; raise a `CheckpointError` if it is of another kind of generator."""
    kind = _kind(generator)
    try:
        if state["kind"] != kind:
            raise CheckpointError(f"a generator of {state['kind']} was saved, and today's is of {kind}")
        if kind == "python":
            generator.setstate((state["version"], tuple(state["numbers"]), state["gauss"]))
        elif kind == "numpy":
            generator.bit_generator.state = _with_arrays(state["state"])
        elif kind == "numpy.legacy":
            generator.set_state(_with_arrays(state["state"]))
        else:
            generator.set_state(state["state"])
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"cannot be restored: {type(error).__name__}: {error}") from error


def _kind(thing: object) -> str | None:
    if type(thing) in _NO_GENERATORS:
        return None
    if isinstance(thing, random.Random):
        # A SystemRandom has no state.
        return None if isinstance(thing, random.SystemRandom) else "python"
    # Only a program that has imported them can hold their types.
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(thing, numpy.random.Generator):
        return "numpy"
    if numpy is not None and isinstance(thing, numpy.random.RandomState):
        return "numpy.legacy"
    return "torch" if torch is not None and isinstance(thing, torch.Generator) else None


def _without_arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_arrays(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return {"array": value.tolist(), "type": str(value.dtype)} if getattr(value, "shape", ()) else value.item()
    return value


def _with_arrays(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"array", "type"}:
        import numpy

        if value["type"] not in ARRAY_TYPES:
            raise CheckpointError(f"an array of {value['type']} belongs to no generator")
        return numpy.array(value["array"], dtype=value["type"])
    return {key: _with_arrays(item) for key, item in value.items()}
