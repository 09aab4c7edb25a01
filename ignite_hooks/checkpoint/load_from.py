"""Start from weights of a file that fit a model at least in part, and say what fits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.checkpoint.all_or_nothing import Part, load_all
from ignite_hooks.checkpoint.foreign import read_foreign
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.fitting import Fit, fit, weights_in
from ignite_hooks.model.wrapping import plain_state
from ignite_hooks.text import table

MOST_LISTED = 20


def load_from(
    model: Any,
    path: Path,
    *,
    strict: bool = False,
    weights: Literal["raw", "ema"] = "raw",
    rename: Mapping[str, str] | None = None,
) -> str:
    """Load what fits into a model, all of it or nothing, and return in words what it is.

    Args:
        model: The model, which is not wrapped yet.
        path: The file of the weights.
        strict: Whether every weight must fit.
        weights: The raw weights of the file, or the averages in it.
        rename: Beginnings of names in the file, and what they are in the model.

    Raises:
        CheckpointError: If the file cannot be read, nothing of it fits, or not everything though it must.
    """
    found, origin = weights_in(read_foreign(path), weights)
    if found is None:
        raise CheckpointError(f"{path} holds no {'averages' if weights == 'ema' else 'weights'}")
    here = {name: value for name, value in plain_state(model).items() if hasattr(value, "shape")}
    usable = {name: value for name, value in found.items() if _is_usable(value)}
    fitting = fit(_shapes(usable), _shapes(here), rename)
    words = _words(fitting, path, origin, len(here), weights)
    if not fitting.loaded:
        raise CheckpointError(f"nothing of {path} fits the model: it has {_some(usable)}; the model has {_some(here)}")
    if strict and not fitting.is_whole:
        raise CheckpointError(f"{words}\nand strict: true asks for all of them")
    chosen = {**plain_state(model), **{name: usable[old] for name, old in fitting.loaded.items()}}
    if complex_ := [name for name in fitting.loaded if chosen[name].is_complex() and not here[name].is_complex()]:
        raise CheckpointError(f"{path}: {complex_[0]} is complex there and real here")
    part = Part("model")
    load_all({part: model}, {part: chosen}, lambda _, error: CheckpointError(f"{path} does not fit the model: {error}"))
    return words


def _is_usable(value: Any) -> bool:
    """Return whether a tensor is an ordinary one with content."""
    import torch

    ordinary = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized
    return ordinary and value.device.type != "meta"


def _shapes(weights: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in weights.items()}


def _some(names: Mapping[str, Any]) -> str:
    return ", ".join(list(names)[:5]) + (" ..." if len(names) > 5 else "") if names else "none"


def _words(fitting: Fit, path: Path, origin: str, count: int, weights: str) -> str:
    facts = ", ".join(fact for fact in (origin, "averages" if weights == "ema" else "") if fact)
    line = f"{path}{f' ({facts})' if facts else ''}: {len(fitting.loaded)} of {count} weights of the model are loaded"
    rows = fitting.rows()
    left = f"\nand {len(rows) - MOST_LISTED} more" if len(rows) > MOST_LISTED else ""
    return f"{line}\n{table(rows[:MOST_LISTED])}{left}" if rows else line
