"""What the processes of a run say to each other: plain values, votes, and tensors made the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ignite_hooks.errors import CheckpointError, RankError

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")

ROOM = 8192
"""The bytes that each process can say in one collective; what is longer takes a second one."""

_quiet: dict[int, Any] = {}
"""By the default process group, the group for messages of the CPU; None where that is the default group itself."""


def world_size() -> int:
    """How many processes train together."""
    import ignite.distributed as idist

    return int(idist.get_world_size())


def rank() -> int:
    """The number of this process, from 0."""
    import ignite.distributed as idist

    return int(idist.get_rank())


def is_main_process() -> bool:
    """Return whether this process is rank 0, which logs, draws and writes for all."""
    import ignite.distributed as idist

    return bool(idist.get_rank() == 0)


def all_gather(value: Any) -> list[Any]:
    """What each process says, in the order of their ranks: plain data, in which there may be tensors."""
    if world_size() == 1:
        return [value]
    said = pack(value)
    heard = _gathered(_framed(said, ROOM))
    lengths = [int.from_bytes(frame[:8].numpy().tobytes(), "little") for frame in heard]
    if max(lengths) > ROOM:
        heard = _gathered(_framed(said, max(lengths)))
    return [unpack(frame[8 : 8 + length].numpy().tobytes()) for frame, length in zip(heard, lengths, strict=True)]


def broadcast_object(value: Any) -> Any:
    """What rank 0 says; the values of the others do not count."""
    return all_gather(value if is_main_process() else None)[0]


def fail_on_all_ranks(action: Callable[[], Result]) -> Result:
    """What an action returns that does not talk to other ranks; where it fails on one, it fails on all.

    Raises:
        RankError: On the ranks on which it worked, with the message of the first on which it did not; a CheckpointError
            where it was one.
    """
    problem: Exception | None = None
    try:
        result = action()
    except Exception as error:
        problem = error
    if world_size() > 1:
        said = all_gather(None if problem is None else f"{type(problem).__name__}: {problem}")
        failed = [number for number, message in enumerate(said) if message is not None]
        if failed and problem is None:
            first = said[failed[0]]
            # A caller that goes on after a bad checkpoint does so on all ranks.
            kind = CheckpointError if first.startswith(CheckpointError.__name__) else RankError
            raise kind(f"rank {failed[0]} has failed: {first}")
    if problem is not None:
        raise problem
    return result


def all_reduce_max(numbers: Sequence[int]) -> list[int]:
    """The largest that any process says, number by number: one small collective."""
    if world_size() == 1:
        return list(numbers)
    import torch

    said = torch.tensor(numbers, dtype=torch.int64)
    if _is_native():
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MAX, group=_group())
    else:
        import ignite.distributed as idist

        largest: Any = idist.all_reduce(said.to(idist.device()), op="MAX")
        said = largest.cpu()
    return [int(number) for number in said.tolist()]


def average(tensors: Sequence[Tensor]) -> None:
    """Give every process the mean of these tensors; whole numbers become those of rank 0."""
    import ignite.distributed as idist
    import torch

    parts = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]
    floating = [part for part in parts if part.is_floating_point()]
    if floating:
        # In double precision equal values stay as they are to the bit, whatever the number of ranks.
        total: Any = idist.all_reduce(_flat(floating, torch.float64))
        _spread(total / world_size(), floating)
    broadcast_tensors([part for part in parts if not part.is_floating_point()])


def broadcast_tensors(tensors: Sequence[Tensor]) -> None:
    """Give every process the tensors of rank 0, to the bit, in one collective."""
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
            # A copy, as a part need not begin where numbers of this type may.
            part = flat[at : at + size].to(tensor.device, copy=True)
            tensor.copy_(part.view(tensor.dtype).view(tensor.shape))
            at += size


def _flat(tensors: Sequence[Tensor], dtype: Any) -> Tensor:
    import ignite.distributed as idist
    import torch

    return torch.cat([tensor.detach().reshape(-1).to(idist.device(), dtype) for tensor in tensors])


def _spread(flat: Any, tensors: Sequence[Tensor]) -> None:
    import torch

    with torch.no_grad():
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


# -- messages -----------------------------------------------------------------------------------------------------


def _framed(said: bytes, room: int) -> Tensor:
    import torch

    frame = torch.zeros(8 + room, dtype=torch.uint8)
    whole = len(said).to_bytes(8, "little") + said[:room]
    frame[: len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)
    return frame


def _gathered(frame: Tensor) -> list[Tensor]:
    import torch

    if _is_native():
        heard = [torch.empty_like(frame) for _ in range(world_size())]
        torch.distributed.all_gather(heard, frame, group=_group())
        return heard
    import ignite.distributed as idist

    together: Any = idist.all_gather(frame.to(idist.device()))
    return list(together.cpu().split(len(frame)))


def _is_native() -> bool:
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _group() -> Any:
    """The process group for messages: on the CPU, so that no device has to be waited for."""
    import torch.distributed as dist

    default = dist.group.WORLD
    if id(default) not in _quiet:
        _quiet.clear()
        # Made by all ranks together, at the first message of a run.
        _quiet[id(default)] = None if "gloo" in dist.get_backend() else dist.new_group(backend="gloo")
    return _quiet[id(default)]


def pack(value: Any) -> bytes:
    """Plain data as bytes; tensors keep their type and every bit.

    Example:
        >>> unpack(pack({"loss": 0.1, "seen": [1, None]}))
        {'loss': 0.1, 'seen': [1, None]}
    """
    import torch

    tensors: list[Tensor] = []

    def plainly(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value.detach().cpu().contiguous())
            return {_TENSOR: [str(value.dtype).removeprefix("torch."), list(value.shape)]}
        if isinstance(value, Mapping):
            return {str(key): plainly(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plainly(item) for item in value]
        return value

    head = json.dumps(plainly(value)).encode()
    parts = [tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def unpack(said: bytes) -> Any:
    """What `pack` was given: nothing but plain data and tensors, whatever the bytes are."""
    import torch

    size = int.from_bytes(said[:8], "little")
    at = 8 + size

    def tensor(kind: str, shape: list[int]) -> Tensor:
        nonlocal at
        dtype = getattr(torch, kind)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{kind!r} is no type of tensors")
        found = torch.empty(shape, dtype=dtype)
        length = found.numel() * found.element_size()
        if length:
            part = torch.frombuffer(bytearray(said[at : at + length]), dtype=torch.uint8)
            found = part.view(dtype).view(shape)
        at += length
        return found

    def wholly(value: Any) -> Any:
        if isinstance(value, dict):
            return tensor(*value[_TENSOR]) if _TENSOR in value else {key: wholly(item) for key, item in value.items()}
        return [wholly(item) for item in value] if isinstance(value, list) else value

    return wholly(json.loads(said[8 : 8 + size]))


_TENSOR = "//tensor"
