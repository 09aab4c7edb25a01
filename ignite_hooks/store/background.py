"""Saves that go on in a thread while the training continues."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ignite_hooks.store.copies import Buffers, Copies

logger = logging.getLogger(__name__)


class BackgroundSaving:
    """A save that has begun; see `Saving`."""

    def __init__(self, path: Path, copies: Copies) -> None:
        self.path = path
        self.wait_copied = copies.wait
        self._error: BaseException | None = None
        self._finished = threading.Event()

    def done(self) -> bool:
        return self._finished.is_set()

    def wait(self) -> Path:
        self._finished.wait()
        if self._error is not None:
            raise self._error
        return self.path

    def settle(self) -> None:
        """Wait until it is there or has failed."""
        self._finished.wait()

    def run(self, write: Callable[[], Path], done: Callable[[], None] | None) -> None:
        """Write the file; called once, in the thread of the writer."""
        try:
            self.path = write()
        except BaseException as error:
            self._error = error
        finally:
            self._finished.set()
            call_done(done)


class BackgroundWriter:
    """One thread and its buffers, from the first save on."""

    def __init__(self) -> None:
        self.buffers = Buffers()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._under_way: list[BackgroundSaving] = []

    def start(self, saving: BackgroundSaving, write: Callable[[], Path], done: Callable[[], None] | None) -> None:
        """Write after all that is under way."""
        self._thread.submit(saving.run, write, done)
        self._under_way = [*(earlier for earlier in self._under_way if not earlier.done()), saving]

    def settle(self) -> None:
        """Wait for what is under way, whether it succeeds or not."""
        for saving in self._under_way:
            saving.settle()

    def close(self) -> None:
        """Wait for what is under way and end the thread."""
        self._thread.shutdown(wait=True)


def call_done(done: Callable[[], None] | None) -> None:
    """Call what wants to know that a save has ended."""
    try:
        if done is not None:
            done()
    except Exception:
        logger.exception("what was to be called after a save has failed")
