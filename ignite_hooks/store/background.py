"""Saves that run in a thread while the training continues."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ignite_hooks.distributed.side_group import SideGroup
from ignite_hooks.store.buffers import Buffers
from ignite_hooks.store.copies import Copies, copy_if_room

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


class BackgroundSaving:
    """A save that has begun; see `Saving`.

    Args:
        path: Where the file will be.
        copies: The copies, if there was memory for them.
        waited: The seconds for which it waited for an earlier save.
    """

    def __init__(self, path: Path, copies: Copies | None, waited: float = 0.0) -> None:
        self.path = path
        self.waited = waited
        self.copies = copies
        """The copies that are written; None where training waits for the state itself to be written."""
        self._error: BaseException | None = None
        self._finished = threading.Event()

    def wait_copied(self) -> None:
        if self.copies is not None:
            self.copies.wait()

    def done(self) -> bool:
        return self._finished.is_set()

    def wait(self) -> Path:
        self._finished.wait()
        if self._error is not None:
            raise self._error
        return self.path

    def settle(self) -> None:
        """Wait until the save has succeeded or failed."""
        self._finished.wait()

    def run(self, write: Callable[[], Path], done: Callable[[], None] | None) -> None:
        """Write the file; called once, in the saving thread or, without copies, in that of the training."""
        try:
            self.path = write()
        except BaseException as error:
            self._error = error
        finally:
            self._finished.set()
            run_callback(done)


class SavingThread:
    """One thread that writes checkpoints one after the other, its buffers, and its way to the other ranks."""

    def __init__(self) -> None:
        self.buffers = Buffers()
        self.group = SideGroup()
        """For what this thread says to those of other ranks."""
        self._number: list[int] = []
        # The thread keeps what it begins with: if that were this object, a store that is forgotten would keep both.
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="checkpoints", initializer=_note_number, initargs=(self._number,)
        )
        self._under_way: list[BackgroundSaving] = []

    def stage(self, path: Path, shared: Sequence[Tensor], steady: Collection[Tensor]) -> BackgroundSaving:
        """Return a save of tensors, which are copied now, or from now on if steady; see `Copies`."""
        before = self.buffers.waited
        copies = copy_if_room(shared, steady, self.buffers)
        return BackgroundSaving(path, copies, self.buffers.waited - before)

    def start(self, saving: BackgroundSaving, write: Callable[[], Path], done: Callable[[], None] | None) -> None:
        """Write after all saves that are under way."""
        self._thread.submit(saving.run, write, done)
        self._under_way = [*(earlier for earlier in self._under_way if not earlier.done()), saving]

    def prepare(self, size: int) -> None:
        """Make the memory for copies of a state of this size."""
        self._thread.submit(self.buffers.prepare, size)

    def settle(self) -> None:
        """Wait for the saves that are under way, whether they succeed or not; in this thread all earlier ones are."""
        if threading.get_ident() in self._number:
            return
        for saving in self._under_way:
            saving.settle()

    def close(self) -> None:
        """Wait for the saves that are under way and end the thread."""
        self._thread.shutdown(wait=True)
        self.group.give_back()


def _note_number(into: list[int]) -> None:
    into.append(threading.get_ident())


def run_callback(done: Callable[[], None] | None) -> None:
    """Call the function that was passed as ``done``, if any; log its failure."""
    try:
        if done is not None:
            done()
    except Exception:
        logger.exception("the callback at the end of a save failed")
