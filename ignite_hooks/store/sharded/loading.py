"""Sharded checkpoints from a folder: any number of processes reads what any number has written."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import zeros as sharded_zeros

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.files import explain, open_regular
from ignite_hooks.store.manifest import STATE
from ignite_hooks.store.sharded.index import (
    Chunk,
    FindTensor,
    KeyPath,
    SavedTensor,
    map_leaves,
    placement_of,
    read_index,
)
from ignite_hooks.store.verify import loaded


def load_tensors(content: Mapping[str, Any], folder: Path, like: FindTensor | None = None) -> dict[str, Any]:
    """Load the tensors of a folder: sharded like the tensor of this run they belong to, otherwise whole.

    Args:
        content: the state file of the folder.
        folder: the folder with the shards.
        like: finds the tensor of this run; without it all tensors are whole.
    """
    try:
        index = read_index(content)
        targets = {shard.key: _target(shard, like(shard.place) if like else None) for shard in index}
        # Every process knows the index and reads its own part: nothing has to be agreed.
        planner, reader = _Planner(), _ShardReader(folder, index)
        planner.set_up_planner(targets, reader.read_metadata(), is_coordinator=True)
        reader.read_data(planner.finish_plan(planner.create_local_plan()), planner)
        found = {shard.place: targets[shard.key] for shard in index}
    except Exception as error:
        reason = str(error) if isinstance(error, CheckpointError) else explain(error, folder)
        raise CheckpointError(f"cannot load {folder}: {reason}") from error

    def put(value: Any, place: KeyPath) -> Any:
        return found.get(place, value) if value is None else value

    state: dict[str, Any] = map_leaves(content["state"], put)
    return state


def shard_like(state: Mapping[str, Any], like: FindTensor) -> dict[str, Any]:
    """Return a state of whole tensors, with those sharded that belong to a sharded tensor of this run."""

    def shard(value: Any, place: KeyPath) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, DTensor):
            return value
        mine = like(place)
        if not isinstance(mine, DTensor) or mine.shape != value.shape:
            return value
        # Every process has read the whole tensor: none has to send anything.
        whole = value.to(mine.device)
        return distribute_tensor(whole, mine.device_mesh, mine.placements, src_data_rank=None)

    found: dict[str, Any] = map_leaves(state, shard)
    return found


class _Planner(DefaultLoadPlanner):
    """Read tensors only; torch would unpickle anything else."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        raise CheckpointError(f"{read_item.dest_index.fqn} is not a tensor")


class _ShardReader:
    """Read shards at the places in our own index; the pickle that torch writes beside them is never opened."""

    def __init__(self, folder: Path, index: Sequence[SavedTensor]) -> None:
        self.folder = folder
        self.index = index
        self.chunks = {(shard.key, chunk.offsets): chunk for shard in index for chunk in shard.chunks}

    def read_metadata(self) -> Metadata:
        """Return the metadata of the tensors in torch's form."""
        return Metadata(
            {
                shard.key: TensorStorageMetadata(
                    TensorProperties(dtype=shard.dtype),
                    torch.Size(shard.shape),
                    [ChunkStorageMetadata(torch.Size(c.offsets), torch.Size(c.sizes)) for c in shard.chunks],
                )
                for shard in self.index
            }
        )

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        """Read the pieces that a plan asks for."""
        by_file: dict[str, list[tuple[Chunk, ReadItem]]] = {}
        for item in plan.items:
            where: MetadataIndex = item.storage_index
            chunk = self.chunks[where.fqn, tuple(where.offset or ())]
            by_file.setdefault(chunk.file, []).append((chunk, item))
        for name, wanted in by_file.items():
            with open_regular(self.folder / name) as file:
                for chunk, item in sorted(wanted, key=lambda pair: pair[0].start):
                    if chunk.start + chunk.length > os.fstat(file.fileno()).st_size:
                        raise CheckpointError(f"{name} ends before the tensor at {chunk.start} does")
                    file.seek(chunk.start)
                    piece = _tensor_in(file.read(chunk.length), chunk)
                    for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                        piece = piece.narrow(dim, start, length)
                    planner.resolve_tensor(item).detach().copy_(piece)


def _tensor_in(data: bytes, chunk: Chunk) -> Tensor:
    try:
        tensor = loaded(io.BytesIO(data))
    except pickle.UnpicklingError as error:
        # The message of torch recommends switching the protection off.
        raise CheckpointError(f"{chunk.file} is damaged, or holds more than tensors") from error
    if type(tensor) is not Tensor or tuple(tensor.shape) != chunk.sizes:
        raise CheckpointError(f"{chunk.file} does not hold the tensor at {chunk.start} that {STATE} lists")
    return tensor


def _target(shard: SavedTensor, mine: Tensor | None) -> Tensor:
    """Return a tensor of zeros to read into; zeros, so that an index with gaps does not expose other memory."""
    if not isinstance(mine, DTensor):
        return torch.zeros(shard.shape, dtype=shard.dtype)
    if mine.shape == shard.shape:
        return torch.zeros_like(mine, dtype=shard.dtype)
    mesh, placements = mine.device_mesh, [placement_of(text) for text in shard.placements]
    if len(placements) != mesh.ndim:
        placements = [Replicate()] * mesh.ndim
    return sharded_zeros(shard.shape, dtype=shard.dtype, device_mesh=mesh, placements=placements)
