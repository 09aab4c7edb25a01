"""Sharded checkpoints into a folder: each process writes its own pieces, beside the training or while it waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save as save_together
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from ignite_hooks.distributed.collectives import cpu_group, is_main_process
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.archive import Image, host_memory, write_archive
from ignite_hooks.store.background import BackgroundSaving
from ignite_hooks.store.files import explain, new_file
from ignite_hooks.store.interface import Saving, ShardedStore
from ignite_hooks.store.manifest import STATE, CheckpointFile
from ignite_hooks.store.plain import to_plain, to_plain_and_shared
from ignite_hooks.store.sharded.agreement import gather_results, run_on_all_ranks
from ignite_hooks.store.sharded.index import (
    FORMAT,
    Chunk,
    KeyPath,
    SavedTensor,
    dotted,
    map_leaves,
    placement_text,
)
from ignite_hooks.store.verify import describe_file
from ignite_hooks.system.devices import is_read_in_place

MOST_PADDING = 2
"""How many times as large as a piece the memory behind it may be for that to be copied as it is."""


class Shard(NamedTuple):
    """A sharded tensor of a state, and the piece of it that this process has."""

    place: KeyPath
    tensor: DTensor
    placements: tuple[str, ...]
    piece: Tensor


class Parts(NamedTuple):
    """A state in two parts."""

    rest: Any
    """All that is not sharded, in plain types; on rank 0, which writes it."""
    shards: dict[str, Shard]
    shared: list[Tensor]
    """The tensors that share memory with the state, those of the rest first."""
    alone: int
    """How many storages those of the rest have."""


def save_sharded(store: ShardedStore, name: str, state: Mapping[str, Any], **details: Any) -> Path:
    """Write a state of which every process has a part; all processes call it, and it fails on all or on none.

    Each process writes its shards to the disk; rank 0 also writes everything that is not sharded, and commits.
    """
    group = cpu_group()
    parts = run_on_all_ranks(lambda: _open_and_split(store, state), group)
    data = {key: shard.piece for key, shard in parts.shards.items()}
    return _write(store, name, parts, data, None, group, details)


def begin_sharded(
    store: ShardedStore,
    name: str,
    path: Path,
    state: Mapping[str, Any],
    *,
    steady: Collection[Tensor] = (),
    done: Callable[[], None] | None = None,
    **details: Any,
) -> Saving:
    """Begin a save that the saving threads of all processes finish together; all processes call it.

    Where one of them has no memory for a copy, all write before it returns.

    Args:
        store: Where it goes; open on rank 0.
        name: Its name.
        path: Where it will be.
        state: The state.
        steady: As in `Store.begin`.
        done: As in `Store.begin`.
        details: What the store is told about it.
    """
    thread, talk = store.saving_thread(), cpu_group()
    group = thread.group.get()
    parts = run_on_all_ranks(lambda: _open_and_split(store, state), talk)
    staged: list[BackgroundSaving] = []

    def stage() -> bool:
        staged.append(thread.stage(path, parts.shared, steady))
        return staged[0].copies is not None

    try:
        have_copies = all(gather_results(stage, talk))
    except BaseException:
        _release(staged)
        raise
    (saving,) = staged
    copies = saving.copies
    if not have_copies or copies is None:
        _release(staged)
        pieces = {key: shard.piece for key, shard in parts.shards.items()}
        saving.run(lambda: _write(store, name, parts, pieces, None, group, details), done)
        return saving

    def write() -> Path:
        def check() -> None:
            copies.synchronize({key: shard.piece for key, shard in parts.shards.items()} | {"": parts.rest})

        try:
            run_on_all_ranks(check, group)
            data = {
                key: copies.copy_of(shard.piece) if copies.has(shard.piece) else shard.piece
                for key, shard in parts.shards.items()
            }
            image = copies.image.first(parts.alone)
            return _write(store, name, parts, data, image if parts.alone else None, group, details)
        except CheckpointError:
            raise
        except BaseException:
            # A rank is gone: what it has not received would reach whoever uses the group next.
            thread.group.drop()
            raise
        finally:
            copies.release()

    try:
        thread.start(saving, write, done)
    except BaseException:
        copies.release()
        raise
    return saving


def _open_and_split(store: ShardedStore, state: Mapping[str, Any]) -> Parts:
    if is_main_process():
        store.open()
    return parts_of_state(state)


def _release(staged: Collection[BackgroundSaving]) -> None:
    """Give the memory of copies back that are not written."""
    for saving in staged:
        if saving.copies is not None:
            saving.copies.release()
            saving.copies = None


def _write(
    store: ShardedStore,
    name: str,
    parts: Parts,
    data: Mapping[str, Tensor],
    image: Image | None,
    group: Any,
    details: Mapping[str, Any],
) -> Path:
    """Write everything and commit it; all processes do it together.

    Args:
        store: Where it goes.
        name: Its name.
        parts: The state.
        data: The piece of each sharded tensor, as it is saved.
        image: Copies of what else is in the state.
        group: How the processes talk.
        details: What the store is told about it.
    """

    def on_first(act: Callable[[], Path]) -> Path:
        found = gather_results(lambda: act() if is_main_process() else None, group)[0]
        assert found is not None
        return found

    temporary = on_first(lambda: store.begin_folder(name))
    try:
        writer = ShardWriter(temporary)
        index = _write_shards(temporary, parts.shards, data, writer, group)
        written = gather_results(lambda: writer.files, group)

        def commit() -> Path:
            with new_file(temporary / STATE) as file:
                content = {"format": FORMAT, "state": parts.rest, "shards": to_plain(index)}
                write_archive(file, content, image)
            files = [
                *itertools.chain(*written),
                describe_file(temporary / ".metadata"),
                CheckpointFile(STATE, file.size, file.checksum),
            ]
            return store.commit_folder(temporary, name, files, **details)

        return on_first(commit)
    except BaseException:
        # On every rank: where disks are not shared, each has one of its own.
        store.drop_folder(temporary)
        raise


# -- the parts of a state -----------------------------------------------------------------------------------------


def parts_of_state(state: Mapping[str, Any]) -> Parts:
    """Return what is sharded in a state and, on rank 0, all the rest."""
    found: dict[KeyPath, DTensor] = {}

    def take_out(value: Any, place: KeyPath) -> Any:
        if not isinstance(value, DTensor):
            return value
        if any(not isinstance(word, (str, int)) for word in place):
            raise CheckpointError(f"{dotted(place)}: keys that lead to a sharded tensor must be text or whole numbers")
        found[place] = value
        return None

    rest, shared = map_leaves(state, take_out), list[Tensor]()
    rest, shared = to_plain_and_shared(rest) if is_main_process() else (None, shared)
    alone = len({tensor.untyped_storage()._cdata for tensor in shared})
    shards: dict[str, Shard] = {}
    for place, tensor in found.items():
        key = dotted(place)
        if key in shards:
            raise CheckpointError("two sharded tensors of the state have the same name")
        placements = tuple(placement_text(key, each) for each in tensor.placements)
        piece = tensor.to_local().detach()
        shards[key] = Shard(place, tensor, placements, piece if _can_be_copied(piece) else piece.cpu().clone())
        if shards[key].piece is piece:
            shared.append(piece)
    return Parts(rest, shards, shared, alone)


def _can_be_copied(piece: Tensor) -> bool:
    """Return whether the memory behind a piece can be copied as a whole; it may be padded."""
    plain = piece.layout is torch.strided and not piece.is_conj() and not piece.is_neg()
    if type(piece) is not Tensor or not plain or not is_read_in_place(piece):
        return False
    return piece.untyped_storage().nbytes() <= MOST_PADDING * piece.nbytes


# -- the pieces ---------------------------------------------------------------------------------------------------


def _write_shards(
    temporary: Path, shards: Mapping[str, Shard], data: Mapping[str, Tensor], writer: ShardWriter, group: Any
) -> list[SavedTensor]:
    """Write the pieces of this process; return where those of all processes are."""
    try:
        metadata: Any = save_together(
            {key: shard.tensor for key, shard in shards.items()},
            storage_writer=writer,
            planner=_Planner(data),
            process_group=group,
        )
    except CheckpointException as failure:
        # Not an Exception, and with a traceback of every rank in its text.
        rank, (error, _) = min(failure.failures.items())
        needed = sum(shard.tensor.numel() * shard.tensor.element_size() for shard in shards.values())
        reason = explain(error, temporary.parent, needed)
        raise CheckpointError(f"the shards cannot be saved: {reason} (rank {rank})") from None
    sizes = {
        (key, tuple(chunk.offsets)): tuple(chunk.sizes)
        for key, tensor in metadata.state_dict_metadata.items()
        for chunk in tensor.chunks
    }
    chunks: dict[str, list[Chunk]] = {key: [] for key in shards}
    for index, info in metadata.storage_data.items():
        offsets = tuple(index.offset)
        chunk = Chunk(offsets, sizes[index.fqn, offsets], info.relative_path, info.offset, info.length)
        chunks[index.fqn].append(chunk)
    return [
        SavedTensor(
            shard.place, key, tuple(shard.tensor.shape), shard.tensor.dtype, shard.placements, tuple(chunks[key])
        )
        for key, shard in shards.items()
    ]


class _Planner(DefaultSavePlanner):
    """Plan by the tensors of the run, and save the given pieces of them."""

    def __init__(self, data: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._data = data

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._data[index.fqn]


class ShardWriter(FileSystemWriter):
    """Write the pieces of a process into one file, in the format of torch, hashed on their way to the disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.files: list[CheckpointFile] = []
        """What this process has written."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what the plan says, on the disk when it returns."""
        name = f"{plan.storage_data.prefix}0.distcp"
        results = []
        if plan.items:
            with new_file(self.folder / name) as file:
                for item in plan.items:
                    start = file.size
                    piece = planner.resolve_data(item)
                    assert isinstance(piece, Tensor)
                    write_archive(file, _compact(piece))
                    length = file.size - start
                    results.append(WriteResult(item.index, length, _StorageInfo(name, start, length)))
            self.files.append(CheckpointFile(name, file.size, file.checksum))
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done


def _compact(piece: Tensor) -> Tensor:
    """Return a tensor of the same numbers whose memory holds nothing else, and is that of the host."""
    piece = piece.detach().cpu()
    if piece.untyped_storage().nbytes() == piece.nbytes or not piece.nbytes:
        return piece
    if not piece.is_contiguous():
        return piece.clone(memory_format=torch.contiguous_format)
    view = host_memory(piece.data_ptr(), piece.nbytes, writable=True)
    # Its owner is alive for as long as the file is written.
    return torch.frombuffer(view, dtype=torch.uint8).view(piece.dtype).view(piece.shape)
