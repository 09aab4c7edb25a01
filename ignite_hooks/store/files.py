"""Files that appear completely or not at all, and are opened only if they are regular files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from ignite_hooks.store.checksums import FAST, marked, new_hash
from ignite_hooks.system import host

TEMPORARY = ".tmp-"
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MEGABYTE = 1024 * 1024
PAGE: Final = mmap.PAGESIZE
# Each piece releases the GIL, and may wait 5 ms to get it back.
BLOCK: Final = 4 * MEGABYTE
# Filling a block again that the disk has just read takes four times as long; after five others, as long as a copy.
MOST_BLOCKS: Final = 6
AT_ONCE: Final = 32 * MEGABYTE


def temporary_path(folder: Path, name: str) -> Path:
    """Return an unused path in the folder of the final file: a rename must not cross file systems."""
    return folder / f"{TEMPORARY}{name}-{os.getpid()}-{secrets.token_hex(4)}"


class HashingFile:
    """A new file that counts and hashes what is written to it.

    Large pieces go to the disk past the file cache where the file system allows it, which saves the processor more
    work than all else that a save does, and leaves the memory of the machine to others.
    """

    def __init__(self, path: Path, algorithm: str = FAST) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | host.NO_LINKS | host.OPEN
        self.size = 0
        self.failure: OSError | None = None
        self._algorithm, self._hash = algorithm, new_hash(algorithm)
        self._blocks, self._used = [_take_block()], 0
        self._past_cache: bool | None = None
        self._descriptor = os.open(path, flags, 0o666)

    @property
    def checksum(self) -> str:
        """The checksum of what was written, with its algorithm; known once it is finished."""
        return marked(self._algorithm, self._hash.hexdigest())

    def write(self, data: bytes | bytearray | memoryview) -> int:
        rest = memoryview(data).cast("B")
        self.size += len(rest)
        if not self._used and len(rest) > BLOCK and _begins_a_page(rest):
            whole = len(rest) & -PAGE
            for start in range(0, whole, AT_ONCE):
                self._put(rest[start : min(start + AT_ONCE, whole)])
            rest = rest[whole:]
        while rest:
            taken = rest[: BLOCK - self._used]
            self._blocks[0][self._used : self._used + len(taken)] = taken
            self._used += len(taken)
            rest = rest[len(taken) :]
            if self._used == BLOCK:
                self._put(memoryview(self._blocks[0]))
                self._next_block()
        return len(data)

    def flush(self) -> None:
        """Do nothing: only `finish` writes what is left."""

    def finish(self) -> None:
        """Flush everything to the disk, or raise the first error that occurred."""
        if self.failure:
            raise self.failure
        if self._used:
            self._pass_cache(False)
            self._put(memoryview(self._blocks[0])[: self._used])
            self._used = 0
        host.sync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
        _unused_blocks.extend(self._blocks)

    def _next_block(self) -> None:
        """Make the block first that was written longest ago, or a new one."""
        block = _take_block() if len(self._blocks) < MOST_BLOCKS else self._blocks.pop()
        self._blocks.insert(0, block)
        self._used = 0

    def _put(self, view: memoryview) -> None:
        """Hash and write a piece that begins a page in memory and in the file."""
        self._hash.update(view)
        if self._past_cache is None and not len(view) % PAGE:
            self._pass_cache(True)
        rest = view
        try:
            while rest:
                try:
                    done = os.write(self._descriptor, rest)
                except OSError as error:
                    if not self._past_cache or error.errno != errno.EINVAL:
                        raise
                    # Said only now, by some file systems.
                    self._pass_cache(False)
                    continue
                if done % PAGE:
                    self._pass_cache(False)
                rest = rest[done:]
        except OSError as error:
            # Whoever writes may suppress it, or fail again and hide the first reason.
            self.failure = self.failure or error
            raise

    def _pass_cache(self, wanted: bool) -> None:
        """Choose whether to write past the file cache, if that can be chosen."""
        if wanted is not bool(self._past_cache):
            wanted = host.pass_cache(self._descriptor, wanted)
        self._past_cache = wanted


_unused_blocks: list[mmap.mmap] = []
"""Blocks that no file uses: touching new memory costs more than filling them."""


def _take_block() -> mmap.mmap:
    """Return memory of `BLOCK` bytes that begins a page."""
    try:
        return _unused_blocks.pop()
    except IndexError:
        return host.new_memory(BLOCK)


def _begins_a_page(view: memoryview) -> bool:
    return not view.readonly and not ctypes.addressof(ctypes.c_char.from_buffer(view)) % PAGE


@contextlib.contextmanager
def new_file(path: Path, algorithm: str = FAST) -> Iterator[HashingFile]:
    """Open a new file to write; it is on the disk when the block ends."""
    file = HashingFile(path, algorithm)
    try:
        yield file
        file.finish()
    except Exception as error:
        if file.failure and error is not file.failure:
            raise file.failure from error
        raise
    finally:
        file.close()


def remove_temporary(path: Path) -> None:
    # Fails if the disk has just failed; the next open() of the folder removes it.
    with contextlib.suppress(OSError):
        os.unlink(path)


def remove_folder(path: Path) -> None:
    """Remove a folder and the files in it; if it holds folders, which are not ours, keep it."""
    for found in list(os.scandir(path)):
        if not found.is_dir(follow_symlinks=False):
            os.unlink(found.path)
    try:
        os.rmdir(path)
    except OSError as error:
        # Not empty: it holds folders, or a dying process has just written there.
        if error.errno != errno.ENOTEMPTY:
            raise


def discard(path: Path) -> None:
    """Remove a file or folder if the disk allows it; otherwise the next `FolderStore.open` does it."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            path.unlink(missing_ok=True)


def remove_all_temporary(folder: Path) -> None:
    """Remove the temporary files and folders of dead writers; the caller holds the lock."""
    for found in list(os.scandir(folder)):
        if found.name.startswith(TEMPORARY):
            if found.is_dir(follow_symlinks=False):
                remove_folder(Path(found.path))
            else:
                os.unlink(found.path)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents; they are on the disk when it returns."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        host.sync_folder(path.parent)


def try_to_write(folder: Path) -> None:
    """Write, rename and remove a small file: raise an error now rather than at the first save."""
    written, renamed = temporary_path(folder, "probe"), temporary_path(folder, "probe")
    try:
        with new_file(written) as file:
            file.write(bytes(4096))
        host.replace(written, renamed)
        host.sync_folder(folder)
        os.unlink(renamed)
    except BaseException:
        remove_temporary(written)
        remove_temporary(renamed)
        raise


def publish(temporary: Path, path: Path) -> None:
    """Give a finished file its final name."""
    host.replace(temporary, path)
    host.sync_folder(path.parent)


def write_whole(path: Path, data: bytes) -> None:
    """Replace the content of a small file."""
    temporary = temporary_path(path.parent, path.name)
    try:
        with new_file(temporary) as file:
            file.write(data)
        publish(temporary, path)
    except BaseException:
        remove_temporary(temporary)
        raise


def open_regular(path: Path, *, follow_links: bool = False) -> BufferedReader:
    """Open a file to read; raise an error for links, pipes and devices."""
    flags = os.O_RDONLY | host.NO_WAITING | host.OPEN | (0 if follow_links else host.NO_LINKS)
    try:
        if not follow_links and not host.NO_LINKS and path.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link", str(path))
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def set_aside(path: Path, word: str) -> Path:
    """Rename a file that is not ours or not readable to ``name.word-1``, then ``-2``; return its new path."""
    moved = _unused(path, word)
    host.replace(path, moved)
    return moved


def keep_beside(path: Path, word: str) -> Path:
    """Give a file that another will replace a second name as `set_aside` does; until then it has both, if it can."""
    second = _unused(path, word)
    try:
        os.link(path, second)
    except OSError:
        # Not every file system has links.
        host.replace(path, second)
    return second


def _unused(path: Path, word: str) -> Path:
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.{word}-{number}")):
        number += 1
    return path.with_name(f"{path.name}.{word}-{number}")


def explain(error: BaseException, folder: Path, needed: int = 0) -> str:
    """Put into words what went wrong on the disk."""
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        reason = "quota used up" if error.errno == errno.EDQUOT else "disk full"
        return f"{reason}, needs {needed / MEGABYTE:.1f} MB, {_free(folder)} free in {folder}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename or folder})"
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def not_deleted(saved: str | None, folder: Path) -> str:
    """Return a description of the files that a save, or the end of a run, should have deleted."""
    if saved is None:
        return f"what is no longer needed in {folder}"
    return f"{folder / saved} is saved, but what it replaces"


def explain_files(names: list[str], temporary: Path) -> str:
    """Return which files of a folder that is saved are too many, or cannot be seen."""
    if all((temporary / name).exists() for name in names):
        return f"{', '.join(names)} should not be in {temporary}"
    return f"{', '.join(names)} cannot be seen by rank 0: all ranks need {temporary.parent} on the same disk"


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / MEGABYTE:.1f} MB"
    except OSError:
        return "an unknown amount"
