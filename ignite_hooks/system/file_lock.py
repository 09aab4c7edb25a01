"""A lock that is a file: it says who holds it, and ends with the process that does, however that ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ignite_hooks.system import host

NO_LOCKS_HERE: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK})


class HeldError(BlockingIOError):
    """Another holds the lock."""

    def __init__(self, path: Path, owner: Mapping[str, Any]) -> None:
        super().__init__(errno.EAGAIN, "is held", str(path))
        self.owner = owner
        """What the file says about it; empty if that cannot be read."""

    @property
    def process(self) -> str:
        """The process that holds it, in words."""
        try:
            return f"process {int(self.owner['pid'])} on {self.owner['host']}"
        except (ValueError, TypeError, KeyError):
            return "another process"


class FileLock:
    """A lock that ends with `release`, with this object or with the process, whichever comes first.

    Args:
        path: The file.
        details: What the file says besides our process.
    """

    def __init__(self, path: Path, details: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._details = dict(details or {})
        self._token = secrets.token_hex(8)
        self._descriptor = -1
        self._release: weakref.finalize[[int], FileLock] | None = None

    @property
    def held(self) -> bool:
        return self._release is not None

    def acquire(self) -> None:
        """Take the lock and record our process in its file; raise `HeldError` if another has it."""
        flags = os.O_RDWR | os.O_CREAT | host.NO_LINKS | host.OPEN
        descriptor = os.open(self.path, flags, 0o666)
        try:
            self._lock(descriptor)
            self._descriptor = descriptor
            self.describe(self._details)
        except BaseException:
            os.close(descriptor)
            raise
        # Also closes the file if whoever holds the lock is dropped without closing it.
        self._release = weakref.finalize(self, os.close, descriptor)

    def describe(self, details: Mapping[str, Any]) -> None:
        """Write our process and these details into the file of the lock, which we hold."""
        owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "token": self._token, **details}).encode()
        os.ftruncate(self._descriptor, 0)
        host.write_at(self._descriptor, owner, 0)

    def is_in_place(self) -> bool:
        """Return whether the file that is locked is still the one that has its name."""
        return host.is_open_file(self._descriptor, self.path)

    def release(self) -> None:
        """Release the lock, if we have it."""
        if self._release is not None:
            self._release()
            self._release = None

    def remove(self) -> None:
        """Remove the file and release the lock; whoever has waited for it sees that the file is not in place."""
        if self._release is not None and self.is_in_place():
            with contextlib.suppress(OSError):  # Windows removes no open file: it stays
                self.path.unlink()
        self.release()

    def cannot_lock(self, error: OSError) -> None:
        """Act where the disk has no locks: nobody is kept out then."""

    def _lock(self, descriptor: int) -> None:
        try:
            host.lock(descriptor)
        except BlockingIOError as error:
            raise HeldError(self.path, _owner(descriptor)) from error
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            self.cannot_lock(error)


def _owner(descriptor: int) -> Mapping[str, Any]:
    try:
        owner = json.loads(host.read_at(descriptor, 4096, 0))
    except (ValueError, OSError):
        return {}
    return owner if isinstance(owner, dict) else {}
