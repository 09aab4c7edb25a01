"""Copies of a model's buffers for an evaluation with averaged weights, which may change them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ignite_hooks.model.wrapping import is_dtensor


class Kept(NamedTuple):
    """A buffer of the model and what belongs in it."""

    table: dict[str, Any]
    key: str
    tensor: Tensor
    raw: Tensor


class BufferCopies:
    """Copies in the place of a model's buffers, for as long as its averages are in it.

    Batch norms in training mode write to their buffers, and some modules replace them: both happen to the copies.

    Args:
        model: The model.
    """

    def __init__(self, model: Module) -> None:
        self._model = model
        self._kept: list[Kept] = []

    def swap_in(self, besides: Collection[int] = ()) -> None:
        """Give the model copies of its buffers.

        Args:
            besides: The ids of buffers that have averages.
        """
        seen: dict[int, Tensor] = {}
        for table, key, tensor in _buffers(self._model):
            if id(tensor) in besides:
                continue
            if id(tensor) not in seen:
                seen[id(tensor)] = tensor.data
                tensor.data = tensor.data.clone()
            self._kept.append(Kept(table, key, tensor, seen[id(tensor)]))

    def swap_out(self) -> None:
        """Give the model its own buffers back, and throw the copies away."""
        while self._kept:
            table, key, tensor, raw = self._kept.pop()
            tensor.data = raw
            if key in table:
                table[key] = tensor

    def tensors(self) -> list[Tensor]:
        """Return the copies."""
        return list({id(kept.tensor): kept.tensor for kept in self._kept}.values())

    def raw(self) -> dict[int, Tensor]:
        """Return the model's own values, by the id of what stands in their place now."""
        return {id(kept.table.get(kept.key)): kept.raw for kept in self._kept}

    def keep_as_raw(self) -> None:
        """Set the model's own buffers to what it holds now."""
        with torch.no_grad():
            for kept in self._kept:
                now = kept.table.get(kept.key)
                if isinstance(now, Tensor) and now.shape == kept.raw.shape:
                    kept.raw.copy_(now)

    def take(self) -> list[tuple[Any, Tensor]]:
        """Return what stands in the place of the buffers, for `put`."""
        return [(kept.table.get(kept.key), kept.tensor.data) for kept in self._kept]

    def put(self, taken: list[tuple[Any, Tensor]]) -> None:
        """Put back what `take` has returned before the copies were swapped out and in again."""
        for kept, (thing, data) in zip(self._kept, taken, strict=True):
            kept.tensor.data = data
            kept.table[kept.key] = thing


def _buffers(model: Module) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    for module in model.modules():
        for key, tensor in module._buffers.items():
            # Sharded ones are swapped by value, and no layer keeps its statistics so.
            if tensor is not None and not is_dtensor(tensor):
                yield module._buffers, key, tensor
