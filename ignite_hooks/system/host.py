"""What Linux, macOS and Windows do differently: the one module that asks which system this is and what it has.

For macOS and Windows it follows what Python and the systems document: the workflow ``tests`` runs it there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

SYSTEM: Final = sys.platform
WINDOWS, MACOS, LINUX = (name == SYSTEM for name in ("win32", "darwin", "linux"))

OPEN: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""For every file that is opened: child processes do not get it, and Windows changes no line ends."""
NO_LINKS: Final[int] = getattr(os, "O_NOFOLLOW", 0)
NO_WAITING: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe waits for a writer otherwise."""
FOLDER: Final[int] = getattr(os, "O_DIRECTORY", 0)
PAST_CACHE: Final[int] = getattr(os, "O_DIRECT", 0)

LOCKED_BYTE: Final = 2**30
"""What msvcrt locks: others cannot read a byte that is locked, and the file says from its first byte who holds it."""
RETRIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The seconds before Windows is asked again to replace a file that somebody reads, such as a virus scanner."""
# Not MADV_DONTFORK: a child that frees what it does not have would free what it has put there since.
WIPE_ON_FORK: Final = 18
PARENT_DIES: Final = 1
"""``PR_SET_PDEATHSIG`` of Linux."""
LOOKS_FOR_PARENT: Final = 1.0
"""Seconds between two looks for the parent process, where the system does not tell of its end."""


def _module(name: str) -> Any:
    """Return a module that not every system has, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")

# -- files -----------------------------------------------------------------------------------------------------


def lock(descriptor: int) -> None:
    """Lock an open file until it is closed; raise `BlockingIOError` if another process has locked it."""
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    elif _msvcrt is not None:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(errno.EAGAIN, "is locked") from error
    else:
        raise OSError(errno.ENOSYS, "this Python cannot lock files")


def unlock(descriptor: int) -> None:
    """Unlock an open file, also where a forked child has it open too; elsewhere closing it is enough."""
    if _fcntl is not None:
        with contextlib.suppress(OSError):  # a disk without locks
            _fcntl.flock(descriptor, _fcntl.LOCK_UN)


def lock_within(descriptor: int, seconds: float) -> bool:
    """Lock an open file that others lock for moments; return whether that succeeded, which not every disk lets it."""
    until = time.monotonic() + seconds
    while True:
        try:
            lock(descriptor)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        except OSError:
            return False
        else:
            return True


def is_open_file(descriptor: int, path: Path) -> bool:
    """Return whether the file that has this name is the one that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def remove_open(file: IO[bytes], path: Path) -> None:
    """Remove a file that we have open, and locked, and close it; Windows removes none that is open."""
    if WINDOWS:
        file.close()
    path.unlink(missing_ok=True)
    file.close()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Return the bytes at a place of an open file."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def write_at(descriptor: int, data: bytes, offset: int) -> int:
    """Write bytes at a place of an open file; return how many were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)


def replace(source: str | Path, target: str | Path) -> None:
    """Rename a file or folder; a file that has the name is replaced in the same step."""
    if WINDOWS:
        for seconds in RETRIES:
            with contextlib.suppress(PermissionError):
                return os.replace(source, target)
            time.sleep(seconds)
    return os.replace(source, target)


def sync(descriptor: int) -> None:
    """Flush what was written to an open file to the disk."""
    if MACOS and hasattr(_fcntl, "F_FULLFSYNC"):
        # There, fsync leaves it in the cache of the disk. Disks of the network know no other.
        with contextlib.suppress(OSError):
            _fcntl.fcntl(descriptor, _fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Flush renames and removals in the folder to the disk; Windows opens no folders, and journals both by itself."""
    if WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY | FOLDER | OPEN)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pass_cache(descriptor: int, wanted: bool) -> bool:
    """Choose whether an open file is written past the file cache; return whether it is."""
    if _fcntl is None or not PAST_CACHE:
        return False
    flags = _fcntl.fcntl(descriptor, _fcntl.F_GETFL)
    try:
        _fcntl.fcntl(descriptor, _fcntl.F_SETFL, flags | PAST_CACHE if wanted else flags & ~PAST_CACHE)
    except OSError:
        return False
    return wanted


def path_of_open(descriptor: int, path: Path) -> str:
    """Return a path to an open file that stays valid when its name is removed, where the system has such paths."""
    held = f"/proc/self/fd/{descriptor}"
    return held if os.path.exists(held) else str(path)


def second_name(path: Path, name: Path) -> None:
    """Give a file a second name for a while; where links need a right that is missing, make a copy."""
    try:
        name.symlink_to(path)
    except OSError:
        shutil.copyfile(path, name)


# -- memory ----------------------------------------------------------------------------------------------------


def new_memory(size: int) -> mmap.mmap:
    """Return memory that begins a page, and that no other process sees."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


def in_huge_pages(memory: mmap.mmap) -> None:
    """Put memory into huge pages and leave it out of forked processes, where the system can."""
    if LINUX and hasattr(mmap, "MADV_HUGEPAGE"):
        for advice in (mmap.MADV_HUGEPAGE, WIPE_ON_FORK):
            # Systems without huge pages refuse the first, old ones the second.
            with contextlib.suppress(OSError):
                memory.madvise(advice)


def trim_memory() -> None:
    """Return freed memory to the system, if the C library supports it."""
    trim = None if WINDOWS else getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


# -- processes and threads -------------------------------------------------------------------------------------


def after_fork_in_child(function: Callable[[], object]) -> None:
    """Call a function in every process that is forked from this one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def usable_cores() -> int:
    """Return how many cores this process may use, of which a container or a job may have a part."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def yield_to_other_threads() -> None:
    """Make this thread wait for its turn when it wakes; if all cores are busy, it would preempt the training."""
    if hasattr(os, "sched_setscheduler"):
        # Not a lower priority: a thread that is not scheduled while it holds the interpreter blocks all others.
        with contextlib.suppress(OSError):  # a sandbox may forbid it; all works without it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def kill_session(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started with ``start_new_session``, together with those that it has started."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
        return
    import psutil

    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
    process.kill()  # first: it must not go on, or end well, because a child of it has ended
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()


def die_with(parent: int) -> None:
    """End this process at once when its parent has ended."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None) if LINUX else None
    if prctl is not None:
        prctl(PARENT_DIES, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        threading.Thread(target=_end_after, args=(parent,), name="parent", daemon=True).start()


def _end_after(parent: int) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        alive = psutil.Process(parent)
        while alive.is_running() and alive.status() != psutil.STATUS_ZOMBIE:
            time.sleep(LOOKS_FOR_PARENT)
    os._exit(128 + 9)


def shield_from_group(numbers: set[int], is_ending: Callable[[], bool] | None = None) -> None:
    """Make this worker process ignore signals, but obey its run, which ends it by SIGTERM.

    A signal of a terminal, or of a scheduler, goes to all processes of the group. In a forked process on Linux the
    sender is known. In others it is not: the first SIGTERM is ignored, unless the run is ending its workers, and the
    second ends the process. Windows has no such signals.

    Args:
        numbers: The signals.
        is_ending: Returns whether the run is ending its workers.
    """
    for number in numbers - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask") and hasattr(signal, "sigwaitinfo") and _has_one_thread():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_obey_only_the_parent, daemon=True).start()
    elif not WINDOWS:
        # A thread that was there before, such as those of numpy, would take what this one blocks.
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGTERM, _leave_it)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=_obey_the_second, args=(reader, is_ending), daemon=True).start()


def _leave_it(number: int, frame: FrameType | None) -> None:
    """Do nothing: a thread reads the number of the signal."""


def _has_one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _obey_only_the_parent() -> None:
    parent = os.getppid()
    # The run itself ends a hanging worker by SIGTERM. A worker whose run was killed obeys every process.
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != _run() and os.getppid() == parent:
        continue
    os._exit(0)


def _run() -> int | None:
    """Return the process that has started this one; to the system, a server of forks may be its parent."""
    import multiprocessing

    run = multiprocessing.parent_process()
    return os.getppid() if run is None else run.pid


def _obey_the_second(reader: int, is_ending: Callable[[], bool] | None) -> None:
    parent, ignored = os.getppid(), 0
    while number := os.read(reader, 1):
        if number[0] == signal.SIGTERM:
            if ignored or os.getppid() != parent or (is_ending is not None and is_ending()):
                os._exit(0)
            ignored += 1
