"""The parts of a data loader: its samplers and their generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_hooks.model.loader_workers import is_loader


def loader_parts(data: object) -> dict[str, Any]:
    """Return a loader and its samplers, samplers of samplers included, by their place."""
    found: dict[str, Any] = {}
    rest = [("", data)]
    while rest:
        place, part = rest.pop(0)
        if part is None or place.count(".") > 4 or any(part is other for other in found.values()):
            continue
        found[place] = part
        rest += [(f"{place}{name}.", getattr(part, name, None)) for name in ("sampler", "batch_sampler")]
    return found


def loader_generators(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the torch generators that `loader_parts` hold, by their place."""
    import torch

    found: dict[str, Any] = {}
    for place, part in parts.items():
        for name, value in getattr(part, "__dict__", {}).items():
            if isinstance(value, torch.Generator) and not any(value is other for other in found.values()):
                found[f"{place}{name}"] = value
    return found


def keeps_its_position(data: object) -> bool:
    """Return whether data has a state of its own that says where it is, as torchdata's StatefulDataLoader."""
    # Looked up on the class: some objects answer for any name.
    return all(callable(getattr(type(data), name, None)) for name in ("state_dict", "load_state_dict"))


def is_stream(data: Any) -> bool:
    """Return whether data is a loader whose data set has no indices."""
    from torch.utils.data import IterableDataset

    return is_loader(data) and isinstance(data.dataset, IterableDataset)


def order_of(data: Any) -> str:
    """Return by what a loader orders its data, in words; nothing for other data.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> order_of(DataLoader([1, 2], shuffle=True)), order_of(DataLoader([1, 2])), order_of([1, 2])
        ('RandomSampler', 'SequentialSampler', '')
    """
    from torch.utils.data import BatchSampler

    if not is_loader(data) or is_stream(data):
        return ""
    batches = getattr(data, "batch_sampler", None)
    # One that is made anew each epoch has the one that was given.
    batches = getattr(batches, "batch_sampler", batches)
    plain = batches is None or type(batches) is BatchSampler
    sampler = getattr(data if batches is None else batches, "sampler", None) if plain else batches
    if sampler is None:
        return ""
    name = type(sampler).__name__
    if getattr(sampler, "replacement", False) is True:
        name += " with replacement"
    return name + (" without shuffling" if getattr(sampler, "shuffle", None) is False else "")
