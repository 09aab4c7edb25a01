"""Helpers for the fault tests: their duration, their seeds, and processes that can be killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ignite_hooks.store import FolderStore

LONG = os.environ.get("IGNITE_HOOKS_LONG") == "1"
"""Whether the long forms run: ``make faults``."""

Tell = Callable[..., None]


def times(short: int, long: int) -> int:
    """Return the number of trials."""
    return long if LONG else short


def drawn() -> random.Random:
    """Return random numbers whose seed is printed; ``IGNITE_HOOKS_SEED`` repeats them."""
    # Not `random` itself, which a script that ran before has seeded.
    seed = int(os.environ.get("IGNITE_HOOKS_SEED") or random.SystemRandom().randrange(2**32))
    print(f"IGNITE_HOOKS_SEED={seed}")
    return random.Random(seed)


def wait(seconds: float) -> None:
    """Wait for a random moment, by which nothing in particular must have happened."""
    signal.sigtimedwait([], seconds)


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait for another thread or process; the deadline only ends a test that hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it never came in {seconds} s"
        time.sleep(0.01)


def saved_in(folder: Path) -> int:
    """Return the iteration of the newest checkpoint that the manifest lists and that verifies; 0 if there is none."""
    store = FolderStore(folder)
    return max((entry.iteration for entry in store.entries() if store.verify(entry) is None), default=0)


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory if possible: some tests write thousands of files that need not survive a crash."""
    shared = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)


class Life:
    """A forked process that reports line by line."""

    def __init__(self, live: Callable[[Tell], object]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(reader)
                # A short write to a pipe arrives whole or not at all, even from a process that is killed.
                live(lambda *words: os.write(writer, json.dumps(words).encode() + b"\n") and None)
                code = 0
            except BaseException:
                os.write(writer, json.dumps(["failed", traceback.format_exc()[-3000:]]).encode() + b"\n")
            finally:
                os._exit(code)
        os.close(writer)
        self._lines = os.fdopen(reader, "rb")
        self._code: int | None = None

    def tells(self) -> Iterator[list[Any]]:
        """Yield its reports as they arrive, until it ends."""
        for line in self._lines:
            words = json.loads(line)
            assert words[0] != "failed", words[1]
            yield words
        code = self.wait()
        assert code >= 0 or code == -signal.SIGKILL, f"the process was ended by {signal.Signals(-code).name}"

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it has ended."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL, "it had ended before"

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self._lines.close()
