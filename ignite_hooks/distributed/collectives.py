"""Collectives between the processes of a run: plain values, votes and tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ignite_hooks.errors import CheckpointError, RankError

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")

ROOM = 8192
"""The bytes that each process sends in one collective; longer messages take a second one."""

_cpu_groups: dict[int, Any] = {}
"""The group for messages on the CPU, by the default process group; None if that is the default group itself."""


def world_size() -> int:
    """Return the number of processes that train together."""
    import ignite.distributed as idist

    return int(idist.get_world_size())


def rank() -> int:
    """Return the number of this process, from 0."""
    import ignite.distributed as idist

    return int(idist.get_rank())


def is_main_process() -> bool:
    """Return whether this process is rank 0, which logs, draws and writes for all."""
    import ignite.distributed as idist

    return bool(idist.get_rank() == 0)


def all_gather(value: Any) -> list[Any]:
    """Return the value of each process, in the order of ranks: plain data, which may contain tensors."""
    if world_size() == 1:
        return [value]
    message = pack(value)
    frames = _gather_frames(_frame(message, ROOM))
    lengths = [int.from_bytes(frame[:8].numpy().tobytes(), "little") for frame in frames]
    if max(lengths) > ROOM:
        frames = _gather_frames(_frame(message, max(lengths)))
    return [unpack(frame[8 : 8 + length].numpy().tobytes()) for frame, length in zip(frames, lengths, strict=True)]


def broadcast_object(value: Any) -> Any:
    """Return the value of rank 0; the values of the other ranks are ignored."""
    return all_gather(value if is_main_process() else None)[0]


def fail_on_all_ranks(action: Callable[[], Result]) -> Result:
    """Return the result of an action without collectives; if it fails on one rank, raise on all.

    Raises:
        RankError: On the ranks on which it worked, with the message of the first rank on which it failed; a
            CheckpointError if it was one.
    """
    problem: Exception | None = None
    try:
        result = action()
    except Exception as error:
        problem = error
    if world_size() > 1:
        messages = all_gather(None if problem is None else f"{type(problem).__name__}: {problem}")
        failed = [number for number, message in enumerate(messages) if message is not None]
        if failed and problem is None:
            first = messages[failed[0]]
            # A caller that tries another checkpoint after a bad one has to do so on all ranks.
            kind = CheckpointError if first.startswith(CheckpointError.__name__) else RankError
            raise kind(f"rank {failed[0]} has failed: {first}")
    if problem is not None:
        raise problem
    return result


def all_reduce_max(numbers: Sequence[int]) -> list[int]:
    """Return the maximum over all processes, number by number, in one small collective."""
    if world_size() == 1:
        return list(numbers)
    import torch

    largest = torch.tensor(numbers, dtype=torch.int64)
    if _is_native():
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX, group=cpu_group())
    else:
        import ignite.distributed as idist

        reduced: Any = idist.all_reduce(largest.to(idist.device()), op="MAX")
        largest = reduced.cpu()
    return [int(number) for number in largest.tolist()]


def average(tensors: Sequence[Tensor]) -> None:
    """Set the tensors of every process to their mean; tensors of integers become those of rank 0."""
    import ignite.distributed as idist
    import torch

    parts = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]
    floating = [part for part in parts if part.is_floating_point()]
    if floating:
        # In double precision equal values keep every bit, for any number of ranks.
        total: Any = idist.all_reduce(_flat(floating, torch.float64))
        _spread(total / world_size(), floating)
    broadcast_tensors([part for part in parts if not part.is_floating_point()])


def broadcast_tensors(tensors: Sequence[Tensor]) -> None:
    """Set the tensors of every process to those of rank 0, bit for bit, in one collective."""
    import ignite.distributed as idist
    import torch

    tensors = [tensor for tensor in tensors if tensor.numel()]
    if not tensors:
        return
    as_bytes = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    flat: Any = idist.broadcast(torch.cat([part.to(idist.device()) for part in as_bytes]), src=0)
    if is_main_process():
        return
    with torch.no_grad():
        at = 0
        for tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            # Copied, as a part may begin at an address that is not aligned for its type.
            part = flat[at : at + size].to(tensor.device, copy=True)
            tensor.copy_(part.view(tensor.dtype).view(tensor.shape))
            at += size


def broadcast_bytes(part: bytearray, source: int) -> None:
    """Set the bytes of every process to those of one rank; all have the same length."""
    import torch

    if world_size() == 1 or not part:
        return
    shared = torch.frombuffer(part, dtype=torch.uint8)
    if _is_native():
        torch.distributed.broadcast(shared, src=source, group=cpu_group())
        return
    import ignite.distributed as idist

    received: Any = idist.broadcast(shared.to(idist.device()), src=source)
    shared.copy_(received.cpu())


def _flat(tensors: Sequence[Tensor], dtype: Any) -> Tensor:
    import ignite.distributed as idist
    import torch

    return torch.cat([tensor.detach().reshape(-1).to(idist.device(), dtype) for tensor in tensors])


def _spread(flat: Any, tensors: Sequence[Tensor]) -> None:
    import torch

    with torch.no_grad():
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


def cpu_group() -> Any:
    """Return the process group for messages: on the CPU, so that nobody waits for a device; None is the default one."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    default = dist.group.WORLD
    if id(default) not in _cpu_groups:
        _cpu_groups.clear()
        # All ranks make it together, at the first message of a run.
        _cpu_groups[id(default)] = None if "gloo" in dist.get_backend() else dist.new_group(backend="gloo")
    return _cpu_groups[id(default)]


# -- messages -----------------------------------------------------------------------------------------------------


def _frame(message: bytes, room: int) -> Tensor:
    import torch

    frame = torch.zeros(8 + room, dtype=torch.uint8)
    whole = len(message).to_bytes(8, "little") + message[:room]
    frame[: len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)
    return frame


def _gather_frames(frame: Tensor) -> list[Tensor]:
    import torch

    if _is_native():
        frames = [torch.empty_like(frame) for _ in range(world_size())]
        torch.distributed.all_gather(frames, frame, group=cpu_group())
        return frames
    import ignite.distributed as idist

    together: Any = idist.all_gather(frame.to(idist.device()))
    return list(together.cpu().split(len(frame)))


def _is_native() -> bool:
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def pack(value: Any) -> bytes:
    """Return plain data as bytes; tensors keep their type and every bit.

    Example:
        >>> unpack(pack({"loss": 0.1, "seen": [1, None]}))
        {'loss': 0.1, 'seen': [1, None]}
    """
    import torch

    tensors: list[Tensor] = []

    def to_plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value.detach().cpu().contiguous())
            return {_TENSOR: [str(value.dtype).removeprefix("torch."), list(value.shape)]}
        if isinstance(value, Mapping):
            return {str(key): to_plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [to_plain(item) for item in value]
        return value

    head = json.dumps(to_plain(value)).encode()
    parts = [tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def unpack(message: bytes) -> Any:
    """Return what `pack` was given: only plain data and tensors, whatever the bytes are."""
    import torch

    size = int.from_bytes(message[:8], "little")
    at = 8 + size

    def tensor(kind: str, shape: list[int]) -> Tensor:
        nonlocal at
        dtype = getattr(torch, kind)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{kind!r} is not a tensor type")
        found = torch.empty(shape, dtype=dtype)
        length = found.numel() * found.element_size()
        if length:
            part = torch.frombuffer(bytearray(message[at : at + length]), dtype=torch.uint8)
            found = part.view(dtype).view(shape)
        at += length
        return found

    def from_plain(value: Any) -> Any:
        if isinstance(value, dict):
            return (
                tensor(*value[_TENSOR]) if _TENSOR in value else {key: from_plain(item) for key, item in value.items()}
            )
        return [from_plain(item) for item in value] if isinstance(value, list) else value

    return from_plain(json.loads(message[8 : 8 + size]))


_TENSOR = "//tensor"
