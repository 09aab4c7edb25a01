"""The lock of a folder: one run at a time writes in it."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import weakref
from pathlib import Path
from typing import Final

from ignite_hooks.errors import CheckpointError

LOCK: Final = ".lock"
NO_LOCKS_HERE: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK})

logger = logging.getLogger(__name__)


class FolderLock:
    """A lock that ends with `release`, with this object or with the process, whichever comes first.

    Args:
        folder: the folder to lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._release: weakref.finalize[[int], FolderLock] | None = None

    @property
    def held(self) -> bool:
        return self._release is not None

    def acquire(self) -> None:
        """Take the lock and record our process in its file; raise an error if another process has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.folder / LOCK, flags, 0o666)
        try:
            self._lock(descriptor)
            owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        # Also closes the file if a notebook drops the store without closing it.
        self._release = weakref.finalize(self, os.close, descriptor)

    def release(self) -> None:
        """Release the lock, if we have it."""
        if self._release is not None:
            self._release()
            self._release = None

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(f"{self.folder} is in use by {_owner(descriptor)}") from error
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            logger.warning("%s cannot be locked (%s): let one run write there", self.folder, error.strerror)


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (ValueError, TypeError, KeyError, OSError):
        return "another process"
