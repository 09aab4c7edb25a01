"""The time in which the threads of the training could have run, but had no processor, as Linux counts it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

TASKS = Path("/proc/self/task")


class ProcessorWaits:
    """How much of the time since its making the calling thread, or one of torch, has waited for a processor.

    Other threads of Python do not count: they work beside the training. Threads of torch work together with the
    calling one, which waits for the last of them.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._thread = threading.get_native_id()
        self._before = self._counted()
        self._share: float | None = None

    def share(self) -> float:
        """Return the share of the time, 0 to 1, of the thread that has waited longest."""
        if self._share is not None:
            return self._share
        passed = time.perf_counter() - self._began
        waited = [seconds - self._before.get(thread, 0.0) for thread, seconds in self._counted().items()]
        return min(1.0, max(waited, default=0.0) / passed) if passed > 0 else 0.0

    def stop(self) -> None:
        """Count no longer: `share` stays what it is now."""
        self._share = self.share()

    def _counted(self) -> dict[int, float]:
        """Return the seconds by thread; none where the system does not count them."""
        found = {}
        beside = {one.native_id for one in threading.enumerate()} - {self._thread}
        with contextlib.suppress(OSError):
            for name in os.listdir(TASKS):
                if int(name) not in beside and (seconds := waited_by(TASKS / name)) is not None:
                    found[int(name)] = seconds
        return found


def waited_by(thread: Path) -> float | None:
    """Return the seconds in which a thread could have run, but did not; None if it has ended or nobody counts."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return None
