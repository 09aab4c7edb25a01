"""Memory of the host for copies of states: at most two buffers, fewer or none where memory is tight."""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ignite_hooks.store.archive import host_memory
from ignite_hooks.store.room import memory_left, room_for_copies, swing_of_process
from ignite_hooks.store.zip_records import Records
from ignite_hooks.system import host
from ignite_hooks.text import size as in_words

if TYPE_CHECKING:
    from torch import Tensor

MOST_BUFFERS: Final = 2
# Below this, nobody is killed for a copy, and asking for the memory that is left would take longer than the copy.
SMALL_BUFFER: Final = 16 * 2**20
TOUCHED_AT_ONCE: Final = 16 * 2**20

logger = logging.getLogger(__name__)


class NoRoomError(Exception):
    """There is no memory for a copy of the state."""


class Buffer:
    """Memory of the host that grows and stays: touching new memory costs up to forty times as much as a copy.

    It begins at a page, and is in huge pages where the system gives them. It is empty in forked processes, such as the
    workers of loaders: otherwise each page would have to be made once more after a fork.
    """

    def __init__(self) -> None:
        self.memory: mmap.mmap | Tensor | None = None
        self.pinned: Tensor | None = None
        self.address = 0
        self.view = memoryview(b"")

    def fits(self, size: int, pinned: bool) -> bool:
        """Return whether it has room for this many bytes."""
        return size <= len(self.view) and not (pinned and self.pinned is None)

    def reserve(self, size: int, pinned: bool) -> None:
        """Make room for this many bytes."""
        if self.fits(size, pinned):
            return
        self.give_back()
        if pinned:
            import torch

            self.memory = self.pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            self.address = self.pinned.data_ptr()
            self.view = host_memory(self.address, size, writable=True)
        elif size:
            self.memory = memory = host.new_memory(size)
            host.in_huge_pages(memory)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self.view = memoryview(memory)

    def touch(self) -> None:
        """Make its pages, in pieces between which other threads can make theirs."""
        for start in range(0, len(self.view), TOUCHED_AT_ONCE):
            ctypes.memset(self.address + start, 0, min(TOUCHED_AT_ONCE, len(self.view) - start))

    def give_back(self) -> int:
        """Return the memory to the system; return how many bytes that was."""
        size = len(self.view)
        self.memory, self.pinned, self.address, self.view = None, None, 0, memoryview(b"")
        return size


class Buffers:
    """At most two buffers: one to fill while the other is being written.

    Memory that is not free is not taken: then there is one buffer, or none. When memory gets tight, buffers that are
    not in use are given back.

    Args:
        room: Returns how many bytes may be taken, given how many were given back before; `room_now` by default.
    """

    def __init__(self, room: Callable[[int], int] | None = None) -> None:
        self.count = 0
        self.waited = 0.0
        """Seconds spent in waiting for a buffer, over all saves."""
        self._room = room or room_now
        self._free: list[Buffer] = []
        self._changed = threading.Condition()
        self._given_back = 0
        self._largest = 0
        self._told: set[int] = set()
        self._records = Records([])

    def records_of(self, sizes: list[int]) -> Records:
        """Return where storages of these sizes are in a file; those of the save before, if they are the same."""
        if self._records.sizes != sizes:
            self._records = Records(sizes)
        return self._records

    def prepare(self, size: int) -> None:
        """Make the pages of a buffer of this size, unless there is one already or memory is tight."""
        with self._changed:
            if self.count or not self._may_take(size):
                return
        try:
            buffer = self.acquire(size)
        except NoRoomError:
            return
        try:
            buffer.touch()
        finally:
            self.release(buffer)

    def acquire(self, size: int = 0, *, pinned: bool = False) -> Buffer:
        """Return a free buffer of this size; wait while all that there is room for are in use.

        Raise `NoRoomError` if there is no room for a single one.
        """
        with self._changed:
            self._largest = max(self._largest, size)
            while (buffer := self._take(size, pinned)) is None:
                if self.count < MOST_BUFFERS:
                    self._tell(size)
                if not self.count:
                    raise NoRoomError
                began = time.monotonic()
                self._changed.wait()
                self.waited += time.monotonic() - began
        try:
            buffer.reserve(size, pinned)
        except BaseException as error:
            with self._changed:
                self.count -= 1
                self._changed.notify()
            # torch raises a RuntimeError when the system refuses memory, mmap an OSError.
            if not isinstance(error, MemoryError | RuntimeError | OSError):
                raise
            logger.warning("no memory for a copy of %s: training waits while this save is written", in_words(size))
            raise NoRoomError from error
        return buffer

    def release(self, buffer: Buffer) -> None:
        """Make the buffer available to another save."""
        with self._changed:
            self._free.append(buffer)
            self._give_back_if_tight()
            self._changed.notify()

    def busy(self) -> bool:
        """Return whether a save as large as the largest so far would wait for an earlier one."""
        with self._changed:
            return bool(self.count) and not self._free and not self._may_take(self._largest)

    def _take(self, size: int, pinned: bool) -> Buffer | None:
        self._give_back_if_tight()
        while self._free:
            buffer = self._free.pop()
            if buffer.fits(size, pinned) or self._has_room(size - len(buffer.view)):
                return buffer
            self._drop(buffer)
        if not self._may_take(size):
            return None
        self.count += 1
        self._given_back = max(0, self._given_back - size)
        return Buffer()

    def _may_take(self, size: int) -> bool:
        return self.count < MOST_BUFFERS and self._has_room(size)

    def _has_room(self, size: int) -> bool:
        return size < SMALL_BUFFER or self._room(self._given_back) >= size

    def _give_back_if_tight(self) -> None:
        if any(len(buffer.view) >= SMALL_BUFFER for buffer in self._free) and self._room(self._given_back) < 0:
            for buffer in self._free:
                self._drop(buffer)
            self._free.clear()

    def _drop(self, buffer: Buffer) -> None:
        self._given_back += buffer.give_back()
        self.count -= 1

    def _tell(self, size: int) -> None:
        """Say once that there is room for one copy, and once that there is room for none."""
        if self.count in self._told:
            return
        self._told.add(self.count)
        if self.count:
            logger.info("memory for one copy of %s only: a save waits until the one before is written", in_words(size))
        else:
            logger.warning(
                "no memory for a copy of %s, %s are left: training waits while a save is written; "
                "give the job more memory, or save less often",
                in_words(size),
                memory_left(),
            )


def room_now(given_back: int) -> int:
    """Return how many bytes copies may take now.

    Args:
        given_back: How many bytes of copies were given back: training does not grow by them again.
    """
    return room_for_copies(memory_left(), max(0, swing_of_process() - given_back))
