"""States of which every process has a part: all write into one folder, any number of processes reads it."""

from __future__ import annotations

import io
import itertools
import math
import os
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_saver import save as save_together
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import zeros as sharded_zeros

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.archive import write_archive
from ignite_hooks.store.files import explain, new_file, open_regular
from ignite_hooks.store.interface import ShardedStore
from ignite_hooks.store.manifest import STATE, CheckpointFile
from ignite_hooks.store.plain import to_plain
from ignite_hooks.store.verify import describe_file

FORMAT: Final = 1
_DATA_NAME = re.compile(r"__[0-9]{1,9}_[0-9]{1,9}\.distcp")

Result = TypeVar("Result")

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


# -- saving -------------------------------------------------------------------------------------------------------


def save_sharded(store: ShardedStore, name: str, state: Mapping[str, Any], **details: Any) -> Path:
    """Write a state of which every process has a part; all processes call it, and it fails on all or on none.

    Each process writes its shards to the disk; rank 0 also writes everything that is not sharded, and commits.
    """
    rest, shards = split_shards(state)
    temporary = _broadcast_from_first(lambda: store.open().begin_folder(name))
    try:
        index = _write_shards(temporary, shards)
        written = _gather_results(
            lambda: [describe_file(path) for path in sorted(temporary.glob(f"__{dist.get_rank()}_*"))]
        )

        def commit() -> Path:
            with new_file(temporary / STATE) as file:
                write_archive(file, to_plain({"format": FORMAT, "state": rest, "shards": index}))
            files = [
                *itertools.chain(*written),
                describe_file(temporary / ".metadata"),
                CheckpointFile(STATE, file.size, file.checksum),
            ]
            return store.commit_folder(temporary, name, files, **details)

        return _broadcast_from_first(commit)
    except BaseException:
        if is_main_process():
            store.drop_folder(temporary)
        raise


def split_shards(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, DTensor]]:
    """Return a state with None for each sharded tensor, and these tensors."""
    shards: dict[KeyPath, DTensor] = {}

    def take_out(value: Any, place: KeyPath) -> Any:
        if not isinstance(value, DTensor):
            return value
        if any(not isinstance(word, (str, int)) for word in place):
            raise CheckpointError(f"{_dotted(place)}: keys that lead to a sharded tensor must be text or whole numbers")
        shards[place] = value
        return None

    return _map_leaves(state, take_out), shards


def _write_shards(temporary: Path, shards: Mapping[KeyPath, DTensor]) -> list[SavedTensor]:
    named = {_dotted(place): (place, tensor) for place, tensor in shards.items()}
    if len(named) < len(shards):
        raise CheckpointError("two sharded tensors of the state have the same name")
    placements = {
        key: tuple(_placement_text(key, each) for each in tensor.placements) for key, (_, tensor) in named.items()
    }
    writer = _ShardWriter(temporary)
    try:
        metadata: Any = save_together({key: tensor for key, (_, tensor) in named.items()}, storage_writer=writer)
    except CheckpointException as failure:
        # Not an Exception, and with a traceback of every rank in its text.
        rank, (error, _) = min(failure.failures.items())
        needed = sum(tensor.numel() * tensor.element_size() for tensor in shards.values())
        reason = explain(error, temporary.parent, needed)
        raise CheckpointError(f"the shards cannot be saved: {reason} (rank {rank})") from None
    sizes = {
        (key, tuple(chunk.offsets)): tuple(chunk.sizes)
        for key, tensor in metadata.state_dict_metadata.items()
        for chunk in tensor.chunks
    }
    chunks: dict[str, list[Chunk]] = {key: [] for key in named}
    for index, info in metadata.storage_data.items():
        offsets = tuple(index.offset)
        chunk = Chunk(offsets, sizes[index.fqn, offsets], info.relative_path, info.offset, info.length)
        chunks[index.fqn].append(chunk)
    return [
        SavedTensor(place, key, tuple(tensor.shape), tensor.dtype, placements[key], tuple(chunks[key]))
        for key, (place, tensor) in named.items()
    ]


class _ShardWriter(FileSystemWriter):
    """Write as torch does, but raise the error of the disk, which torch wraps in its own."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            first: BaseException | None = error
            while first is not None and not isinstance(first, OSError):
                first = first.__cause__ or first.__context__
            if first is None:
                raise
            raise OSError(first.errno, first.strerror, first.filename) from error


# -- loading ------------------------------------------------------------------------------------------------------


def load_tensors(content: Mapping[str, Any], folder: Path, like: FindTensor | None = None) -> dict[str, Any]:
    """Load the tensors of a folder: sharded like the tensor of this run they belong to, otherwise whole.

    Args:
        content: the state file of the folder.
        folder: the folder with the shards.
        like: finds the tensor of this run; without it all tensors are whole.
    """
    try:
        index = _read_index(content)
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

    state: dict[str, Any] = _map_leaves(content["state"], put)
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

    found: dict[str, Any] = _map_leaves(state, shard)
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
        tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
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
    mesh, placements = mine.device_mesh, [_placement(text) for text in shard.placements]
    if len(placements) != mesh.ndim:
        placements = [Replicate()] * mesh.ndim
    return sharded_zeros(shard.shape, dtype=shard.dtype, device_mesh=mesh, placements=placements)


def _read_index(content: Mapping[str, Any]) -> list[SavedTensor]:
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


def _map_leaves(value: Any, change: Callable[[Any, KeyPath], Any], place: KeyPath = ()) -> Any:
    """Return a copy of a state with a function applied to each value that is not a container."""
    if isinstance(value, Mapping):
        return {key: _map_leaves(item, change, (*place, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [_map_leaves(item, change, (*place, i)) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return change(value, place)


def _dotted(place: KeyPath) -> str:
    return ".".join(map(str, place))


def _placement_text(key: str, placement: Placement) -> str:
    if isinstance(placement, Shard):
        return f"shard {placement.dim}"
    if isinstance(placement, Replicate):
        return "replicate"
    raise CheckpointError(f"{key}: a tensor that has yet to be summed over the processes cannot be saved")


def _placement(text: str) -> Placement:
    word, _, dim = text.partition(" ")
    return Shard(int(dim)) if word == "shard" else Replicate()


def run_on_all_ranks(act: Callable[[], Result]) -> Result:
    """Return what an action returns; if it fails on one rank, raise on all of them."""
    return _run_and_gather(act, lambda _: None)[0]


def _gather_results(act: Callable[[], Result]) -> list[Result]:
    """Return what an action returns on each rank; if it fails on one, raise on all."""
    return _run_and_gather(act, lambda found: found)[1]


def _broadcast_from_first(act: Callable[[], Result]) -> Result:
    """Return what an action returns on rank 0; if it fails, raise on all ranks."""
    found: Any = _gather_results(lambda: act() if is_main_process() else None)[0]
    return cast(Result, found)


def _run_and_gather(act: Callable[[], Result], report: Callable[[Result], Any]) -> tuple[Result, list[Any]]:
    """Return what an action returns here, and what each rank reports about its own."""
    found: Any = None
    said: tuple[Any, str | None]
    try:
        found = act()
        said = report(found), None
    except CheckpointError as error:
        said = None, str(error)
    except Exception as error:
        said = None, f"{type(error).__name__}: {error}"
    everyone: list[Any] = [said]
    if dist.is_initialized() and dist.get_world_size() > 1:
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, said)
    failures = {rank: failure for rank, (_, failure) in enumerate(everyone) if failure is not None}
    if failures:
        # Often the same error on all ranks.
        (rank, first), more = next(iter(failures.items())), len(failures) - 1
        among = f" (rank {rank}{f' and {more} more' if more else ''})" if len(everyone) > 1 else ""
        raise CheckpointError(f"{first}{among}")
    return cast(Result, found), [each for each, _ in everyone]
