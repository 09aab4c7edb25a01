"""A process without what Linux alone has, for tests: ``from tests.bare import take_away`` before importing the package.

torch and Ignite have to be imported before: they ask for what their own wheels are made for.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import sys
import types
from typing import Any

import psutil

MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        *("O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "getpgid", "killpg", "pread"),
        *("pwrite", "register_at_fork", "sched_getaffinity", "sched_setscheduler", "uname"),
    ),
    signal: (
        *("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "pthread_sigmask", "sigtimedwait"),
        *("sigwait", "sigwaitinfo"),
    ),
    mmap: ("MADV_HUGEPAGE", "MAP_ANONYMOUS", "MAP_PRIVATE"),
}
"""What Windows lacks; macOS has most of it."""


def take_away(*, system: str = "linux", locks: bool = False) -> None:
    """Take away ``fcntl``, ``/proc`` and what else Windows lacks.

    Args:
        system: What ``sys.platform`` says to the package.
        locks: Whether there is a ``msvcrt``, whose locks belong to an open file, too.
    """
    sys.modules["fcntl"] = None  # type: ignore[assignment]
    if locks:
        sys.modules["msvcrt"] = msvcrt()
    for module, names in MISSING.items():
        for name in names:
            delattr(module, name)
    # On other systems psutil asks in other ways: it alone still reads the folder, by another spelling.
    psutil.PROCFS_PATH = "//proc"
    sys.addaudithook(_hide_proc)
    follow = os.readlink
    os.readlink = lambda path, **more: follow(_visible(path), **more)
    before, sys.platform = sys.platform, system
    import ignite_hooks.system.host

    sys.platform = before
    assert system == ignite_hooks.system.host.SYSTEM


def msvcrt() -> types.ModuleType:
    """Return a module that locks as that of Windows does: by byte, and so that even the same process is refused."""
    flock = ctypes.CDLL(None, use_errno=True).flock

    def locking(descriptor: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        # Readers of the file would be refused as well, had its first bytes been locked.
        assert os.lseek(descriptor, 0, os.SEEK_CUR) >= 2**20
        if flock(descriptor, 2 | 4):
            raise PermissionError(errno.EACCES, "Permission denied")

    found = types.ModuleType("msvcrt")
    vars(found).update(LK_NBLCK=2, locking=locking)
    return found


def _visible(path: Any) -> Any:
    if str(path).startswith("/proc"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return path


def _hide_proc(event: str, values: Any) -> None:
    if event in ("open", "os.listdir", "os.scandir") and values:
        _visible(values[0])
