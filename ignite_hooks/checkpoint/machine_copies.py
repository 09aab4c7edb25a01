"""Checkpoints on every machine: which ranks write, and the state that all of them write."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.machines import CHUNK, Machines
from ignite_hooks.distributed.collectives import (
    all_gather,
    broadcast_bytes,
    broadcast_object,
    fail_on_all_ranks,
    is_main_process,
    rank,
)
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.parts import each
from ignite_hooks.store.files import TEMPORARY, make_folder
from ignite_hooks.store.plain import UnsavableError, to_plain
from ignite_hooks.store.verify import loaded

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

OWN = "//own"
Place = tuple[Any, ...]


def writing_ranks(folder: Path, machines: Machines) -> list[int]:
    """Return the first rank of each machine, and of machines that see one folder only the lowest.

    All ranks have to call it. Whether two folders are one shows a file that each of them puts there: its name is known
    to this run alone, and a folder that is only kept in step with another has other inodes.

    Args:
        folder: The folder on this machine.
        machines: Where the ranks run.
    """
    token = str(broadcast_object(secrets.token_hex(8) if is_main_process() else ""))
    firsts = sorted(set(machines.firsts))

    def probe(number: int) -> Path:
        return folder / f"{TEMPORARY}probe-{token}-{number}"

    def put() -> int:
        if not machines.is_first:
            return 0
        try:
            make_folder(folder)
            probe(rank()).touch(exist_ok=False)
            return probe(rank()).stat().st_ino
        except OSError as error:
            raise CheckpointError(
                f"cannot write checkpoints in {folder}{machines.on(rank())}: {error.strerror}"
            ) from error

    try:
        inodes = all_gather(fail_on_all_ranks(put))
        seen = [number for number in firsts if machines.is_first and _inode(probe(number)) == inodes[number]]
        lowest = all_gather(min(seen, default=rank()))
    finally:
        if machines.is_first:
            probe(rank()).unlink(missing_ok=True)
    return sorted({lowest[number] for number in firsts})


def of_first_rank(runner: Runner, state: dict[str, Any]) -> dict[str, Any]:
    """Return rank 0's state on every rank; all ranks have to call it.

    What all ranks have alike is not sent: the weights that DistributedDataParallel keeps equal, and what the optimizer
    knows of them.

    Args:
        runner: The run.
        state: The state as this rank has it.
    """
    import torch

    paths: list[list[Any]] = []

    def write() -> bytes:
        if not is_main_process():
            return b""
        places = set(_alike(runner, state))
        paths.extend(list(place) for place in places)
        rest, file = _cut(state, places), io.BytesIO()
        try:
            plain = to_plain(rest)
        except UnsavableError:
            # As where only one machine saves: named once, and left out.
            plain = to_plain(runner.checkpoints.left_out.plain(rest))
        torch.save(plain, file)
        return file.getvalue()

    message = fail_on_all_ranks(write)
    paths, size = broadcast_object([paths, len(message)])
    received = bytearray(message) or bytearray(size)
    for begin in range(0, size, CHUNK):
        part = received[begin : begin + CHUNK]
        broadcast_bytes(part, 0)
        received[begin : begin + CHUNK] = part
    if is_main_process():
        return state
    found: dict[str, Any] = loaded(io.BytesIO(received))
    for path in paths:
        _put(found, path, _at(state, path))
    return found


def _alike(runner: Runner, state: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the places of the tensors of a state that all ranks have alike."""
    import torch

    models = list(each(runner.model))
    if not models or not all(isinstance(one, torch.nn.parallel.DistributedDataParallel) for one in models):
        return
    weights = {weight.data_ptr() for model in models for weight in model.parameters()}
    names = set()
    for path, tensor in _tensors(state.get("state_dict"), ("state_dict",)):
        if tensor.data_ptr() in weights:
            names.add(path[1:])
            yield path
    for path, _ in _tensors(state.get("ema_state_dict"), ("ema_state_dict",)):
        if path[1:] in names:
            yield path
    for path, tensor in _tensors(state.get("optimizer"), ("optimizer",)):
        if tensor.numel() > 1:
            yield path


def _tensors(value: Any, path: Place) -> Iterator[tuple[Place, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, (*path, key))


def _cut(value: Any, places: set[Place], path: Place = ()) -> Any:
    """Return nested mappings with None at some places."""
    if path in places:
        return None
    if isinstance(value, Mapping):
        return {key: _cut(item, places, (*path, key)) for key, item in value.items()}
    return value


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _put(value: Any, path: list[Any], item: Any) -> None:
    _at(value, path[:-1])[path[-1]] = item


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
