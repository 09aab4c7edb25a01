"""The lock of a folder: one run at a time writes in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.files import open_regular
from ignite_hooks.system.file_lock import FileLock, HeldError

LOCK: Final = ".lock"

logger = logging.getLogger(__name__)


class FolderLock(FileLock):
    """A lock that ends with `release`, with this object or with the process, whichever comes first.

    Args:
        folder: the folder to lock.
        name: the name of its lock file.
        details: what the file says besides our process.
    """

    def __init__(self, folder: Path, name: str = LOCK, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(folder / name, details)
        self.folder = folder

    def acquire(self) -> None:
        """Take the lock and record our process in its file; raise an error if another process has it."""
        try:
            super().acquire()
        except HeldError as error:
            raise CheckpointError(f"{self.folder} is in use by {error.process}") from error

    def names_us(self) -> bool:
        """Return whether the file in the folder says that we hold it, also on a disk that was mounted again."""
        try:
            with open_regular(self.path) as file:
                owner = json.loads(file.read(4096))
            return bool(owner["token"] == self._token)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def cannot_lock(self, error: OSError) -> None:
        logger.warning("%s cannot be locked (%s): let one run write there", self.folder, error.strerror)
