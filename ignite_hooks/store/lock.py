"""The lock of a folder: one run at a time writes in it."""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import socket
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.files import open_regular
from ignite_hooks.system import host

LOCK: Final = ".lock"
NO_LOCKS_HERE: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK})

logger = logging.getLogger(__name__)


class FolderLock:
    """A lock that ends with `release`, with this object or with the process, whichever comes first.

    Args:
        folder: the folder to lock.
        name: the name of its lock file.
        details: what the file says besides our process.
    """

    def __init__(self, folder: Path, name: str = LOCK, details: Mapping[str, Any] | None = None) -> None:
        self.folder, self.name = folder, name
        self._details = dict(details or {})
        self._token = secrets.token_hex(8)
        self._descriptor = -1
        self._release: weakref.finalize[[int], FolderLock] | None = None

    @property
    def held(self) -> bool:
        return self._release is not None

    def acquire(self) -> None:
        """Take the lock and record our process in its file; raise an error if another process has it."""
        flags = os.O_RDWR | os.O_CREAT | host.NO_LINKS | host.OPEN
        descriptor = os.open(self.folder / self.name, flags, 0o666)
        try:
            self._lock(descriptor)
            self._descriptor = descriptor
            self.describe(self._details)
        except BaseException:
            os.close(descriptor)
            raise
        # Also closes the file if a notebook drops the store without closing it.
        self._release = weakref.finalize(self, os.close, descriptor)

    def describe(self, details: Mapping[str, Any]) -> None:
        """Write our process and these details into the file of the lock, which we hold."""
        owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "token": self._token, **details}).encode()
        os.ftruncate(self._descriptor, 0)
        host.write_at(self._descriptor, owner, 0)

    def names_us(self) -> bool:
        """Return whether the file in the folder says that we hold it, also on a disk that was mounted again."""
        try:
            with open_regular(self.folder / self.name) as file:
                owner = json.loads(file.read(4096))
            return bool(owner["token"] == self._token)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def is_in_place(self) -> bool:
        """Return whether the file that is locked is still the one in the folder."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self.folder / self.name))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock, if we have it."""
        if self._release is not None:
            self._release()
            self._release = None

    def _lock(self, descriptor: int) -> None:
        try:
            host.lock(descriptor)
        except BlockingIOError as error:
            raise CheckpointError(f"{self.folder} is in use by {_owner(descriptor)}") from error
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            logger.warning("%s cannot be locked (%s): let one run write there", self.folder, error.strerror)


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(host.read_at(descriptor, 4096, 0))
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (ValueError, TypeError, KeyError, OSError):
        return "another process"
