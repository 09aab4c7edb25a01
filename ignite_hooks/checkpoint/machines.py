"""The machines of a run: which ranks share one, and bytes handed from one machine to the others."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from ignite_hooks.distributed.collectives import all_gather, broadcast_bytes, fail_on_all_ranks, rank
from ignite_hooks.distributed.watchdog import this_host
from ignite_hooks.store.files import MEGABYTE, open_regular
from ignite_hooks.store.manifest import Entry

CHUNK = 64 * MEGABYTE
MOUNTS = "/proc/self/ns/mnt"


@dataclass(frozen=True)
class Machines:
    """Where the ranks run.

    Args:
        hosts: The host name of each rank, for messages.
        firsts: The first rank of the machine of each rank.
    """

    hosts: tuple[str, ...]
    firsts: tuple[int, ...]

    @classmethod
    def of_all_ranks(cls) -> Machines:
        """Ask all ranks; all have to call it."""
        told = all_gather([socket.gethostname(), _identity()])
        identities = [identity for _, identity in told]
        return cls(tuple(str(host) for host, _ in told), tuple(identities.index(one) for one in identities))

    @property
    def several(self) -> bool:
        """Whether there are at least two."""
        return len(set(self.firsts)) > 1

    @property
    def mine(self) -> int:
        """The first rank of this machine."""
        return self.firsts[rank()]

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank of its machine."""
        return self.mine == rank()

    def on(self, number: int) -> str:
        """Return where a rank is, for a message; nothing where all are on one machine."""
        return f" on {self.hosts[number]}" if self.several else ""


def hand_over(entry: Entry, source: Path | None, target: Path | None, sender: int) -> None:
    """Send a checkpoint from one rank to others, in parts; all ranks have to call it.

    Args:
        entry: The checkpoint.
        source: Where it is, on the rank that sends it.
        target: Where it goes, on a rank that lacks it; None on a rank that has it.
        sender: The rank that sends it.
    """
    problem: OSError | None = None
    if entry.files and target is not None:
        target.mkdir(parents=True, exist_ok=True)
    for name, size in [(part.name, part.size) for part in entry.files] or [("", entry.size)]:
        try:
            _hand_over_file(source and source / name, target and target / name, size, sender)
        except OSError as error:
            problem = problem or error

    def report() -> None:
        if problem is not None:
            raise problem

    fail_on_all_ranks(report)


def _hand_over_file(source: Path | None, target: Path | None, size: int, sender: int) -> None:
    """Send one file; whoever fails goes on with the others to its end, which wait for it."""
    problem: OSError | None = None
    reader = writer = None
    try:
        if rank() == sender and source is not None:
            reader = open_regular(source)
        elif target is not None:
            writer = target.open("xb")
    except OSError as error:
        problem = error
    try:
        for begin in range(0, size, CHUNK):
            part = bytearray(min(CHUNK, size - begin))
            try:
                if reader is not None:
                    reader.readinto(part)
            except OSError as error:
                problem = problem or error
            broadcast_bytes(part, sender)
            try:
                if writer is not None and problem is None:
                    writer.write(part)
            except OSError as error:
                problem = problem or error
    finally:
        for file in (reader, writer):
            if file is not None:
                file.close()
    if problem is not None:
        raise problem


def _identity() -> str:
    try:
        mounts = os.readlink(MOUNTS)
    except OSError:
        mounts = ""
    # Containers of one host see their own files.
    return f"{this_host()} {mounts}"
