"""Copies of the tensors of a state at one moment, in buffers that are reused for the next state."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.wrapping import local_part
from ignite_hooks.store.archive import Image, host_memory
from ignite_hooks.store.buffers import Buffers, NoRoomError
from ignite_hooks.store.plain import find_place
from ignite_hooks.store.zip_records import Records

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

# Smaller copies keep the GIL: getting it back may take 5 ms.
SMALL: Final = 32 * 1024


def copy_if_room(shared: Sequence[Tensor], steady: Collection[Tensor], buffers: Buffers) -> Copies | None:
    """Return copies, see `Copies`; None where there is no memory for them."""
    try:
        return Copies(shared, steady, buffers)
    except NoRoomError:
        return None


class Copies:
    """Copies of the tensors of a state; those of steady tensors are complete once `finish` has returned.

    A steady tensor that changes too early is detected by ``tensor._version``, which fused optimizers and writes
    through ``tensor.data`` do not increase.

    Args:
        shared: tensors that share memory with the state.
        steady: tensors that do not change before `wait` has returned; all others are copied at once.
        buffers: where the memory comes from; `NoRoomError` if there is none.
    """

    def __init__(self, shared: Sequence[Tensor], steady: Collection[Tensor], buffers: Buffers) -> None:
        import torch

        self._over = False
        self._rest: list[UntypedStorage] = []
        self._failure: BaseException | None = None
        self._changed: UntypedStorage | None = None
        self._claim, self._comparing = threading.Lock(), threading.Lock()
        self._host_done = threading.Event()
        storages = {}
        for tensor in shared:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage
        places = {key: number for number, key in enumerate(storages)}
        self._versions = _versions(steady, storages)
        cuda = torch.cuda.is_available() and any(tensor.is_cuda for tensor in shared)
        self._buffers = buffers
        records = buffers.records_of([storage.nbytes() for storage in storages.values()])
        self._buffer = buffers.acquire(records.end, pinned=cuda)
        try:
            self.image = Image(records, self._buffer.view[: records.end], places)
            later = {key: storages.pop(key) for key in dict.fromkeys(key for key, _, _ in self._versions)}
            self._cuda = CudaCopies(self, (storages, later)) if cuda else None
            self._rest = [storage for storage in later.values() if not (cuda and storage.is_cuda)]
            self._copy(storage for storage in storages.values() if not (cuda and storage.is_cuda))
        except BaseException:
            self.release()
            raise

    def finish(self) -> None:
        """Copy what has not been copied yet; of several callers the first does it, the others wait."""
        if not self._claim.acquire(blocking=False):
            self._host_done.wait()
            return
        try:
            self._copy(self._rest)
            if self._cuda is None:
                self._compare()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._over = self._cuda is None
            self._host_done.set()

    def wait(self) -> None:
        """Return once the state may change."""
        if self._over:
            return
        self.finish()
        if self._cuda is not None:
            self._cuda.delay_stream()
            self._compare()
            self._over = True

    def synchronize(self, plain: object) -> None:
        """Return once every byte is here; raise an error if a tensor changed meanwhile."""
        self.finish()
        if self._cuda is not None:
            self._cuda.synchronize()
            self._compare()
            self._over = True
        if self._failure is not None:
            raise self._failure
        if self._changed is not None:
            place = find_place(plain, self._changed)
            raise CheckpointError(
                f"{place} was changed before it had been copied: save at once (async_save: false) "
                "what is changed between two steps of the optimizer"
            )

    def has(self, tensor: Tensor) -> bool:
        """Return whether a tensor is among those that are copied."""
        return tensor.untyped_storage()._cdata in self.image.places

    def copy_of(self, tensor: Tensor) -> Tensor:
        """Return the copy of a tensor of the state, after `synchronize`; it is gone with `release`."""
        import torch

        content = self.image.bytes_of(tensor.untyped_storage()._cdata)
        if not content:
            return tensor.detach().clone()
        flat = torch.frombuffer(content, dtype=torch.uint8).view(tensor.dtype)
        return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def release(self) -> None:
        """Make the memory available to another save."""
        self.image = Image(Records([]), memoryview(b""), {})
        self._rest, self._versions = [], []
        self._buffers.release(self._buffer)

    def tensor(self, storage: UntypedStorage) -> Tensor:
        """Return the part of the buffer that is for a storage, as a tensor."""
        start, size = self._part_for(storage)
        pinned = self._buffer.pinned
        assert pinned is not None
        return pinned[start : start + size]

    def _part_for(self, storage: UntypedStorage) -> tuple[int, int]:
        """Return where the bytes of a storage go, and how many there were at first."""
        place, records = self.image.places[storage._cdata], self.image.records
        return records.starts[place], records.sizes[place]

    def _copy(self, storages: Iterable[UntypedStorage]) -> None:
        view, address = self._buffer.view, self._buffer.address
        for storage in storages:
            start, size = self._part_for(storage)
            if storage.nbytes() != size:
                self._changed = storage
            elif size > SMALL:
                ctypes.memmove(address + start, storage.data_ptr(), size)
            else:
                view[start : start + size] = host_memory(storage.data_ptr(), size)

    def _compare(self) -> None:
        with self._comparing:
            # Only once: after the first comparison the state may change.
            versions, self._versions = self._versions, []
            changed = next((tensor for _, tensor, version in versions if tensor._version != version), None)
            if changed is not None and self._changed is None:
                self._changed = local_part(changed).untyped_storage()


def _versions(steady: Collection[Tensor], storages: dict[int, UntypedStorage]) -> list[tuple[int, Tensor, int]]:
    """Return the storage of each steady tensor in the state, the tensor, and its version."""
    found = []
    for tensor in steady:
        # Inference tensors have no version; sparse ones have no single storage and are copied at once.
        try:
            # Of a sharded tensor the part of this rank is copied; steps count on the whole.
            key, version = local_part(tensor).untyped_storage()._cdata, tensor._version
        except (RuntimeError, NotImplementedError):
            continue
        if key in storages:
            found.append((key, tensor, version))
    return found


class CudaCopies:
    """Copies from CUDA devices, in a stream beside the training. Not yet tried on hardware."""

    def __init__(self, copies: Copies, groups: Sequence[dict[int, UntypedStorage]]) -> None:
        import torch

        self._torch = torch
        self._events = []
        there = [storage for group in groups for storage in group.values() if storage.device.type == "cuda"]
        for device in {storage.device for storage in there}:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            for number, group in enumerate(groups):
                for storage in group.values():
                    if storage.device == device:
                        source = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
                        with torch.cuda.stream(stream):
                            copies.tensor(storage).copy_(source, non_blocking=True)
                        source.record_stream(stream)
                event = stream.record_event()
                if number == 0:  # not steady: what comes next in the training may change them
                    torch.cuda.current_stream(device).wait_event(event)
            self._events.append((device, event))

    def delay_stream(self) -> None:
        """Make later work on the device wait for the copies; the host does not wait."""
        for device, event in self._events:
            self._torch.cuda.current_stream(device).wait_event(event)

    def synchronize(self) -> None:
        """Wait until the bytes are here."""
        for _, event in self._events:
            event.synchronize()
