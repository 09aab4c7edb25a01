"""Whose turn it is to deliver to a tracker: that of the run which goes on, or that of ``ignite-hooks send``."""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ignite_hooks.system import host
from ignite_hooks.system.file_lock import FileLock, HeldError
from ignite_hooks.writers.trackers.spool import SUFFIX

LOCK = ".lock"
"""What the name of the file ends with that is locked."""
ATTEMPTS = 100
"""To lock a file that others remove when their turn is over."""
Who = Literal["run", "send"]
SENDS = {"run": "a run", "send": "another 'ignite-hooks send'"}
"""Who delivers, in words."""
logger = logging.getLogger("ignite_hooks")


class NotOurTurnError(ConnectionError):
    """Another process delivers this."""


class Turn:
    """A lock on a spool, and on what the tracker itself keeps beside it, for whoever delivers them.

    It ends with `release`, or with the process. On a disk that has no locks, or is full, nobody is kept out: training
    goes on.

    Args:
        spool: The path of the spool, which need not exist.
        who: Who takes the turn.
    """

    def __init__(self, spool: Path, who: Who) -> None:
        self.path = spool.with_name(f".{spool.name}{LOCK}")
        self._who = who
        self._lock: FileLock | None = None
        _of_this_process().add(self)

    def take(self) -> None:
        """Take the turn, if it is not ours already; raise `NotOurTurnError` if another has it."""
        for _ in range(ATTEMPTS):
            if self._lock is not None:
                return
            lock = FileLock(self.path, {"who": self._who})
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock.acquire()
            except HeldError as error:
                who = SENDS.get(str(error.owner.get("who")), "another")
                raise NotOurTurnError(f"{who} ({error.process}) still delivers it") from None
            except OSError as error:
                logger.debug("%s: %s", self.path, error)
                return
            if lock.is_in_place():
                self._lock = lock
            else:
                lock.release()

    def release(self) -> None:
        """Let others have it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.remove()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have the turn for as long as the context lasts."""
        self.take()
        try:
            yield
        finally:
            self.release()

    def forget(self) -> None:
        """Forget it in a forked child, which would keep it after its parent was killed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def every_turn(folder: Path, kind: str, who: Who) -> contextlib.ExitStack:
    """Take all turns of a kind of tracker in a folder, which has files that no spool names; return what ends them."""
    with contextlib.ExitStack() as stack:
        begun = sorted(folder.glob(f".{kind}*{SUFFIX}{LOCK}"))
        spools = {folder / f"{kind}{SUFFIX}", *(folder / path.name[1 : -len(LOCK)] for path in begun)}
        for spool in sorted(spools):
            stack.enter_context(Turn(spool, who).taken())
        return stack.pop_all()


@functools.cache
def _of_this_process() -> weakref.WeakSet[Turn]:
    turns: weakref.WeakSet[Turn] = weakref.WeakSet()

    def forget_all() -> None:
        for turn in list(turns):
            turn.forget()
        turns.clear()

    host.after_fork_in_child(forget_all)
    return turns
