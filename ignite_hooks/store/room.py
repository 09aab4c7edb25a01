"""The memory that is left: on the machine, and in the control groups that limit this process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from ignite_hooks.text import size

PROC: Final = Path("/proc")
SMALLEST_RESERVE: Final = 64 * 2**20
LARGEST_RESERVE: Final = 2 * 2**30
RESERVED_SHARE: Final = 0.05


class MemoryLeft(NamedTuple):
    """The bytes that may still be used before a limit."""

    free: int
    limit: int

    def __str__(self) -> str:
        return f"{size(max(0, self.free))} of {size(self.limit)}"


@dataclass(frozen=True)
class Group:
    """A control group for memory.

    Args:
        folder: Where its files are.
        version: 1 or 2, which have other files.
    """

    folder: Path
    version: int

    def left(self) -> MemoryLeft | None:
        """Return the memory that is left in it; None without a limit."""
        names = ["memory.limit_in_bytes"] if self.version == 1 else ["memory.max", "memory.high"]
        words = [word for name in names if (word := self._read(name)).isdigit()]
        used = self._read("memory.usage_in_bytes" if self.version == 1 else "memory.current")
        if not words or not used.isdigit():
            return None
        limit = min(int(word) for word in words)
        return MemoryLeft(limit - int(used) + self._file_cache(), limit)

    def _file_cache(self) -> int:
        """Return what is counted as used, but is given back before anything is killed: copies of files."""
        prefix = "total_" if self.version == 1 else ""
        wanted = {f"{prefix}inactive_file", f"{prefix}active_file"}
        lines = [line.split() for line in self._read("memory.stat").splitlines()]
        return sum(int(line[1]) for line in lines if len(line) == 2 and line[0] in wanted and line[1].isdigit())

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""


def memory_left(proc: Path = PROC) -> MemoryLeft:
    """Return the memory that is left where it is tightest: in a control group of this process or on the machine.

    Args:
        proc: Where the system describes the process.
    """
    import psutil

    found = [left for group in groups_of_process(proc) if (left := group.left()) is not None]
    # Where /proc is hidden, psutil fails.
    with contextlib.suppress(OSError, RuntimeError):
        machine = psutil.virtual_memory()
        found.append(MemoryLeft(machine.available, machine.total))
    return min(found, default=MemoryLeft(sys.maxsize, sys.maxsize))


def groups_of_process(proc: Path = PROC) -> Iterator[Group]:
    """Yield the control groups for memory that this process is in, and those around them."""
    try:
        own = dict(_own_groups((proc / "self/cgroup").read_text(encoding="utf-8", errors="replace")))
        mounts = (proc / "self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in mounts:
        place, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        version = {"cgroup": 1, "cgroup2": 2}.get(kind)
        if version not in own or (version == 1 and "memory" not in options.split()[-1].split(",")):
            continue
        root, mount = (word.replace("\\040", " ") for word in place.split()[3:5])
        path, top = PurePosixPath(own[version]), Path(mount)
        # In a container the mount often shows the own group alone, while the path is that of the machine.
        folder = top / path.relative_to(root) if path.is_relative_to(root) else top
        if not folder.is_dir():
            folder = top
        yield Group(folder, version)
        for parent in folder.parents:
            if not parent.is_relative_to(top):
                break
            yield Group(parent, version)


def _own_groups(text: str) -> Iterator[tuple[int, str]]:
    """Yield the version and the path of the groups for memory in ``/proc/self/cgroup``."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield 1, path
        elif number == "0" and not controllers:
            yield 2, path


def swing_of_process(proc: Path = PROC) -> int:
    """Return by how many bytes this process has been larger before: a step may need them again."""
    try:
        lines = (proc / "self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    found = {words[0]: int(words[1]) * 1024 for words in map(str.split, lines) if words[0] in ("VmHWM:", "VmRSS:")}
    return max(0, found.get("VmHWM:", 0) - found.get("VmRSS:", 0))


def room_for_copies(left: MemoryLeft, swing: int) -> int:
    """Return how many bytes copies may take beyond what is used now; below zero, memory should be given back.

    Args:
        left: The memory that is left.
        swing: By how much the training may grow again.

    Example:
        >>> gb = 2**30
        >>> room_for_copies(MemoryLeft(free=4 * gb, limit=20 * gb), swing=gb) / gb
        2.0
        >>> room_for_copies(MemoryLeft(free=gb // 2, limit=4 * gb), swing=gb // 2) < 0
        True
    """
    reserve = min(LARGEST_RESERVE, max(SMALLEST_RESERVE, int(left.limit * RESERVED_SHARE)))
    return left.free - swing - reserve


def copies_that_fit(size: int, room: int, most: int = 2) -> int:
    """Return how many copies of a state there is room for.

    Example:
        >>> [copies_that_fit(10, room) for room in (-5, 9, 10, 25, 99)]
        [0, 0, 1, 2, 2]
    """
    return most if size <= 0 else max(0, min(most, room // size))
