"""Machines made of namespaces: each with its own network, mounts, host name and processes, on one switch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x4000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
SWITCH = "10.77.0.100"

libc = ctypes.CDLL(None, use_errno=True)


def ip(*words: str) -> str:
    """Run ``ip`` and return what it printed."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def check(result: int, what: str) -> None:
    """Raise an error if a call of the C library has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    """Mount something in this mount namespace."""
    given = (source.encode(), target.encode(), kind.encode() if kind else None, flags, None)
    check(libc.mount(*given), f"mount {source} on {target}")


def enter_network(name: str) -> None:
    """Move this process into a network namespace."""
    with open(f"/run/netns/{name}", "rb") as file:
        check(libc.setns(file.fileno(), CLONE_NEWNET), f"setns {name}")


class Machine:
    """A machine with a disk and a cable.

    Args:
        number: Its number, from 1; its address ends with it.
        tag: The prefix of the names of all namespaces of one test.
        disk: Its disk, a folder.
        run: The path at which its processes see the disk, the same on all machines.
    """

    def __init__(self, number: int, tag: str, disk: Path, run: Path) -> None:
        self.number, self.tag, self.disk, self.run = number, tag, disk, run
        self.network, self.host, self.address = f"{tag}-{number}", f"node{number}", f"10.77.0.{number}"

    def cable(self, state: str) -> None:
        """Plug the cable in (``up``) or pull it out (``down``)."""
        ip("-n", f"{self.tag}-sw", "link", "set", f"p{self.number}", state)

    def start(self, action: Callable[[], None], printed: Path, *, apart: bool = True) -> int:
        """Run a function here and return its process; killing that is the sudden death of all that it has started.

        Args:
            action: What it does.
            printed: Where its output goes.
            apart: Whether it has its own disk, name and processes; otherwise only the network.
        """
        sys.stdout.flush()
        outer = os.fork()
        if outer:
            return outer
        code = 1
        try:
            check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
            output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1), os.dup2(output, 2)
            enter_network(self.network)
            if apart:
                check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID), "unshare")
                inner = os.fork()
                if inner:
                    _, status = os.waitpid(inner, 0)
                    os._exit(min(255, abs(os.waitstatus_to_exitcode(status))))
                check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
                socket.sethostname(self.host)
                mount("none", "/", None, MS_REC | MS_PRIVATE)
                mount(str(self.disk), str(self.run), None, MS_BIND)
                mount("proc", "/proc", "proc", 0)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)


@contextlib.contextmanager
def machines(count: int, folder: Path) -> Iterator[list[Machine]]:
    """Yield machines on one switch, and remove them afterwards."""
    tag = f"ih{secrets.token_hex(2)}"
    run = folder / "run"
    run.mkdir(parents=True, exist_ok=True)
    made = []
    with contextlib.ExitStack() as stack:
        ip("netns", "add", f"{tag}-sw")
        stack.callback(ip, "netns", "del", f"{tag}-sw")
        for words in (
            ("link", "add", "br0", "type", "bridge"),
            ("link", "set", "br0", "up"),
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{SWITCH}/24", "dev", "br0"),
        ):
            ip("-n", f"{tag}-sw", *words)
        for number in range(1, count + 1):
            disk = folder / f"disk{number}"
            disk.mkdir()
            machine = Machine(number, tag, disk, run)
            ip("netns", "add", machine.network)
            stack.callback(ip, "netns", "del", machine.network)
            peer = ("peer", "name", f"p{number}", "netns", f"{tag}-sw")
            ip("-n", machine.network, "link", "add", "eth0", "type", "veth", *peer)
            ip("-n", f"{tag}-sw", "link", "set", f"p{number}", "master", "br0", "up")
            for words in (
                ("addr", "add", f"{machine.address}/24", "dev", "eth0"),
                ("link", "set", "lo", "up"),
                ("link", "set", "eth0", "up"),
            ):
                ip("-n", machine.network, *words)
            made.append(machine)
        yield made
