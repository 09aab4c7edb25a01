"""The place of a folder on its disk, which may be taken away while a run goes on, and come back."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from ignite_hooks.store.commit import CommitLog
from ignite_hooks.store.files import make_folder, remove_all_temporary
from ignite_hooks.store.found import find_unlisted
from ignite_hooks.store.lock import FolderLock

logger = logging.getLogger(__name__)

Identity = tuple[int, int]


class Place:
    """The folder that was opened: by its inode, as another folder appears under its name when its disk is taken away.

    What is written then lands below the mount point, where nobody looks for it, without an error.

    Args:
        folder: The folder.
        lock: Its lock, which is ours.
        log: Its commits.
    """

    def __init__(self, folder: Path, lock: FolderLock, log: CommitLog) -> None:
        self.folder = folder
        self._lock, self._log = lock, log
        self._own: Identity | None = None
        self._around: Identity | None = None
        self._was_lost = False

    def settle_in(self) -> None:
        """Finish what a crash or a loss interrupted, and remember the folder that has this name now."""
        remove_all_temporary(self.folder)
        self._log.recover()
        self._log.adopt(find_unlisted(self.folder, {entry.name for entry in self._log.manifest.entries}))
        self._own, self._around = _identity(self.folder), _identity(self.folder.parent)
        self._was_lost = False

    def check(self) -> None:
        """Raise an error if the folder that was opened does not have its name any more."""
        found = None
        try:
            found = _identity(self.folder)
        except FileNotFoundError:
            self._was_lost = True
            raise OSError(errno.ESTALE, "the folder is gone, with its disk or deleted", str(self.folder)) from None
        except OSError:
            self._was_lost = True
            raise
        if found != self._own:
            self._was_lost = True
            words = "another folder has this name now: the disk with the checkpoints was taken away"
            raise OSError(errno.ESTALE, words, str(self.folder))

    def go_back(self) -> None:
        """Take the folder up again if it was lost and has come back, or was deleted; raise an error if it is lost."""
        try:
            self.check()
        except OSError:
            if self._deleted():
                make_folder(self.folder)
                words = "%s was deleted, and is made again"
            elif self._lock.names_us():
                words = "%s is back"
            else:
                raise
            self._lock.release()
            self._lock.acquire()
        else:
            if not self._was_lost:
                return
            words = "%s is back"
        self.settle_in()
        logger.warning(words, self.folder)

    def _deleted(self) -> bool:
        """Return whether only the folder is missing, while the disk that it was on is still there."""
        try:
            return not os.path.lexists(self.folder) and _identity(self.folder.parent) == self._around
        except OSError:
            return False


def _identity(folder: Path) -> Identity:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
