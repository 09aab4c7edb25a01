"""A mirror of a folder of checkpoints: a thread copies them beside the training, in the order of their commits."""

from __future__ import annotations

import fnmatch
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ignite_hooks.store.files import MEGABYTE, temporary_path
from ignite_hooks.store.interface import Retire
from ignite_hooks.store.manifest import Entry
from ignite_hooks.store.mirror.remote import MirrorError, Remote
from ignite_hooks.store.mirror.replica import Replica
from ignite_hooks.system.host import path_of_open, replace

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
BEHIND: Final = 3
"""Checkpoints that wait to be copied, from which on a mirror is said to be slow."""
LARGEST_FILE: Final = 1024 * MEGABYTE
"""Files of the run beside its checkpoints are copied as a whole at each checkpoint: not beyond this size."""

RUN_FILES: Final = ("config.yaml", "metrics.jsonl", "*.spool", ".*.run")
"""Beside the checkpoints: what was trained, what was measured, and which runs trackers know."""


@dataclass(frozen=True)
class _Job:
    """Something to be done there, tried again until it works."""

    name: str
    act: Callable[[], None]


class Mirror:
    """Copies checkpoints of a folder, and a few files beside them, to a place behind a URL.

    The training never waits for it: what fails is told once and tried again, until `finish`.

    Args:
        url: The place, as fsspec writes it.
        folder: The folder of the checkpoints.
        work_dir: The folder of the other files of the run that belong there.
        log: Receives the messages.
        timeout: The seconds for which the end of a run waits for it.
    """

    def __init__(self, url: str, folder: Path, work_dir: Path, log: logging.Logger, timeout: float) -> None:
        self.folder, self.timeout = folder, timeout
        self.remote = Remote(url)
        self.replica = Replica(self.remote)
        self._work_dir, self._log = work_dir, log
        self._copied: dict[str, tuple[int, int]] = {}
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = self._abandoned = self._told_behind = False
        self._failing: MirrorError | None = None

    @property
    def begun(self) -> bool:
        """Whether it copies."""
        return self._thread is not None

    @property
    def shown(self) -> str:
        """The URL, for messages."""
        return self.remote.shown

    # -- in the thread of the training ------------------------------------------------------------------------

    def begin(self, run: str, entries: Sequence[Entry]) -> None:
        """Start copying: first what the folder holds already and the mirror does not.

        Args:
            run: The id of the run; what another run has left there moves aside.
            entries: What the folder holds, in the order of its commits.
        """
        self._closing = self._abandoned = False

        def prepare() -> None:
            if (moved := self.replica.begin(run)) is not None:
                self._log.warning("what another run has left in %s is now in %s/%s", self.shown, self.shown, moved)
            for entry in entries:
                self.replica.copy(entry, self.folder)

        self._put("what the folder holds", prepare)
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def committed(self, entry: Entry, rule: Retire | None) -> None:
        """Copy a checkpoint that was just committed, and delete there what a rule retires."""

        def copy() -> None:
            # First: a run that continues from this checkpoint needs what was written before it.
            self._copy_files()
            copied = self.replica.copy(entry, self.folder)
            if rule is not None:
                self.replica.retire(rule, entry.name if copied else None)

        self._put(entry.name, copy)
        waiting = len(self._jobs)
        if waiting > BEHIND and self._failing is None and not self._told_behind:
            self._told_behind = True
            self._log.warning("%s is slow: %d checkpoints are still to be copied there", self.shown, waiting)

    def restore_files(self) -> None:
        """Fetch the other files of the run that this machine lacks."""
        for name in self.remote.names():
            path = self._work_dir / name
            wanted = any(fnmatch.fnmatchcase(name, pattern) for pattern in RUN_FILES)
            if not wanted or name != Path(name).name or (path.exists() and path.stat().st_size):
                continue
            temporary = temporary_path(self._work_dir, name)
            try:
                if self.remote.fetch(name, str(temporary), 0):
                    replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def retire(self, rule: Retire) -> None:
        """Delete there what a rule retires."""
        self._put("what is to be deleted", lambda: self.replica.retire(rule, None))

    def finish(self, seconds: float) -> None:
        """Wait until everything is there, but not longer than this; say what is missing, and stop copying."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._put("the files of the run", self._copy_files)
        with self._changed:
            self._closing = True
            self._changed.notify()
        thread.join(seconds)
        if not thread.is_alive() and not self._jobs:
            return
        with self._changed:
            self._abandoned = True
            missing = list(dict.fromkeys(job.name for job in self._jobs))
            self._changed.notify()
        why = "" if self._failing is None else f" ({self._failing})"
        self._log.error(
            "%s lacks %s after %.0f s of waiting%s: a run that is resumed in %s copies it",
            self.shown,
            ", ".join(missing),
            seconds,
            why,
            self.folder,
        )

    # -- in a thread of its own -------------------------------------------------------------------------------

    def _put(self, name: str, act: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(_Job(name, act))
            self._changed.notify()

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while (job := self._next()) is not None:
            try:
                job.act()
            except MirrorError as error:
                self._tell(error)
                self._pause(FIRST_PAUSE if self._closing else pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            except Exception:
                # Not the fault of the place: it would fail again.
                self._log.exception("%s: %s cannot be copied there", self.shown, job.name)
            pause = FIRST_PAUSE
            if self._failing is not None:
                self._log.warning("%s is back: %s is there", self.shown, job.name)
                self._failing = None
            with self._changed:
                if not self._abandoned:
                    self._jobs.popleft()

    def _next(self) -> _Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing or self._abandoned)
            return self._jobs[0] if self._jobs and not self._abandoned else None

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._changed:
            was_closing = self._closing
            while not self._abandoned and self._closing == was_closing and time.monotonic() < until:
                self._changed.wait(until - time.monotonic())

    def _tell(self, error: MirrorError) -> None:
        if self._failing is None:
            self._log.warning("%s; the training goes on, and the copy to the mirror is tried again", error)
        self._failing = error

    def _copy_files(self) -> None:
        for path in sorted(path for pattern in RUN_FILES for path in self._work_dir.glob(pattern)):
            try:
                with path.open("rb") as file:
                    status = path.stat()
                    identity = (status.st_mtime_ns, status.st_size)
                    if status.st_size > LARGEST_FILE or self._copied.get(path.name) == identity:
                        continue
                    self.remote.put(path.name, path_of_open(file.fileno(), path), status.st_size)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise MirrorError(f"{path}: {error.strerror}") from error
            self._copied[path.name] = identity
