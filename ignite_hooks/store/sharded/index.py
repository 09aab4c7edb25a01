"""Where the pieces of sharded tensors are: what a sharded checkpoint says of its tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import Placement, Replicate, Shard

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.manifest import STATE

FORMAT: Final = 1
_DATA_NAME = re.compile(r"__[0-9]{1,9}_[0-9]{1,9}\.distcp")

KeyPath = tuple[Any, ...]
"""Where a value is in a state: the keys and indices that lead to it."""

FindTensor = Callable[[KeyPath], Tensor | None]
"""Return the tensor of this run to which the value at a place of a state belongs."""


class Chunk(NamedTuple):
    """A rectangular piece of a tensor, and the bytes that hold it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int


class SavedTensor(NamedTuple):
    """A tensor that was saved in pieces."""

    place: KeyPath
    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    placements: tuple[str, ...]
    chunks: tuple[Chunk, ...]


def read_index(content: Mapping[str, Any]) -> list[SavedTensor]:
    """Return the checked index of shards; it comes from a file, so nothing in it is trusted."""
    try:
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, expected {FORMAT}")
        if not isinstance(content["state"], dict) or not isinstance(content["shards"], list):
            raise ValueError("no dict of a state and no list of shards")
        index = [_read_shard(*shard) for shard in content["shards"]]
        if len({shard.key for shard in index}) < len(index):
            raise ValueError("two tensors have the same name")
        return index
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{STATE} is not that of a sharded checkpoint: {error}") from error


def _read_shard(place: Any, key: Any, shape: Any, dtype: Any, placements: Any, chunks: Any) -> SavedTensor:
    if any(not isinstance(word, (str, int)) for word in place):
        raise ValueError(f"{place!r} is no place in a state")
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{key} is of type {dtype!r}")
    found = tuple(_read_chunk(*chunk) for chunk in chunks)
    shard = SavedTensor(tuple(place), str(key), _numbers(shape), dtype, tuple(map(str, placements)), found)
    for chunk in found:
        ends = [start + size for start, size in zip(chunk.offsets, chunk.sizes, strict=True)]
        if any(end > most for end, most in zip(ends, shard.shape, strict=True)):
            raise ValueError(f"a piece of {key} leaves it")
    if sum(math.prod(chunk.sizes) for chunk in found) != math.prod(shard.shape):
        raise ValueError(f"pieces of {key} are missing")
    return shard


def _read_chunk(offsets: Any, sizes: Any, file: Any, start: Any, length: Any) -> Chunk:
    if not isinstance(file, str) or not _DATA_NAME.fullmatch(file):
        raise ValueError(f"{file!r} is not a file of a sharded checkpoint")
    return Chunk(_numbers(offsets), _numbers(sizes), file, *_numbers((start, length)))


def _numbers(values: Any) -> tuple[int, ...]:
    numbers = tuple(values)
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(f"{values!r} are not sizes")
    return numbers


# -- helpers ------------------------------------------------------------------------------------------------------


def map_leaves(value: Any, change: Callable[[Any, KeyPath], Any], place: KeyPath = ()) -> Any:
    """Return a copy of a state with a function applied to each value that is not a container."""
    if isinstance(value, Mapping):
        return {key: map_leaves(item, change, (*place, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [map_leaves(item, change, (*place, i)) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return change(value, place)


def dotted(place: KeyPath) -> str:
    """Return the name of a place in a state."""
    return ".".join(map(str, place))


def placement_text(key: str, placement: Placement) -> str:
    """Return how a tensor is laid out over the processes, in words."""
    if isinstance(placement, Shard):
        return f"shard {placement.dim}"
    if isinstance(placement, Replicate):
        return "replicate"
    raise CheckpointError(f"{key}: a tensor that has yet to be summed over the processes cannot be saved")


def placement_of(text: str) -> Placement:
    """Return the layout that `placement_text` describes."""
    word, _, dim = text.partition(" ")
    return Shard(int(dim)) if word == "shard" else Replicate()
