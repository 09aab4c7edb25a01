"""A watchdog on every rank: a rank that has died or hangs is named, and the others do not wait for it."""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import all_gather, is_main_process, rank
from ignite_hooks.distributed.connections import close_connections

if TYPE_CHECKING:
    import psutil

PERIOD = 0.2
"""Seconds between two heartbeats, and between two checks of the other ranks."""

GRACE = 0.8
"""Seconds that a process has to end by itself after another one has died."""

EXIT_CODE = 17

NETWORK = "/proc/self/ns/net"
"""The network namespace of this process."""

LEFT = "left "
"""The prefix of the last message of a rank, which replaces its heartbeats."""


@dataclass(frozen=True)
class Peer:
    """Another process of the run."""

    rank: int
    host: str
    pid: int
    process: psutil.Process | None = None
    """The process, if it runs on this machine. Its start time would not identify it: setting the clock changes that."""

    @classmethod
    def found(cls, rank: int, host: str, pid: int) -> Peer:
        """Return the peer; look its process up by number, if it runs on this machine and has not ended yet."""
        import psutil

        if host != this_host():
            return cls(rank, host, pid)
        try:
            return cls(rank, host, pid, psutil.Process(pid))
        except psutil.NoSuchProcess:
            return cls(rank, host, pid)

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, in the same process namespace."""
        return self.host == this_host()

    def has_exited(self) -> bool:
        """Return whether it is known to have ended; nothing is known of another machine."""
        import psutil

        if not self.is_here:
            return False
        try:
            # The system may have given the number to another process.
            return (
                self.process is None or not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return True

    def __str__(self) -> str:
        where = "" if self.is_here else f" on {self.host.partition(' ')[0]}"
        return f"rank {self.rank} (process {self.pid}{where})"


class Watchdog:
    """Send heartbeats and check those of the other ranks, in threads, for the time of a run.

    Heartbeats go through a separate store: they need no collective and no help of the training's thread. The store
    holds only numbers and short texts, which are only shown.

    Args:
        limit: The seconds without a heartbeat after which a rank counts as hanging.
        folder: The folder for the stacks of all threads, written when this process gives up.
        logger: Receives all messages.
    """

    def __init__(self, limit: float, folder: Path, logger: logging.Logger) -> None:
        self._limit, self._folder, self._logger = limit, folder, logger
        self._peers: list[Peer] = []
        self._store: Any = None
        self._sender: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._heartbeats: dict[int, int] = {}
        self._rounds = 0
        self._ports: set[int] = set()
        self._ended = threading.Event()
        self._found: str | None = None
        self._left: str | None = None
        """Which rank has left the run and lives on, and why."""
        self._told_at: dict[int, float] = {}
        self._last_messages: dict[int, str] = {}

    def begin(self) -> None:
        """Exchange addresses and start the threads; all ranks have to call it."""
        server = _serve() if is_main_process() else None
        mine = {"host": this_host(), "pid": os.getpid(), "port": server and server.port}
        mine["network"] = _link(NETWORK)
        gathered = all_gather({**mine, "address": _address()})
        self._peers = [
            Peer.found(number, str(of["host"]), int(of["pid"]))
            for number, of in enumerate(gathered)
            if number != rank()
        ]
        self._store = server
        self._ports = {int(gathered[0]["port"]), int(os.environ.get("MASTER_PORT", 0))}
        self._sender = threading.Thread(
            target=self._send_heartbeats, args=(gathered[0],), name="ignite_hooks heartbeats", daemon=True
        )
        self._sender.start()
        self._watcher = threading.Thread(target=self._watch, name="ignite_hooks watchdog", daemon=True)
        self._watcher.start()

    def end(self, error: BaseException | None = None) -> None:
        """Stop the threads, and let the other ranks know whether this one has ended well.

        From here on the watchdog does not end this process, however long it takes to clean up.
        """
        if self._watcher is None:
            return
        self._ended.set()
        self._watcher.join()
        self._watcher = None
        if self._sender is not None:
            self._sender.join(PERIOD + GRACE)
            if not self._sender.is_alive():
                self._leave_message(LEFT + ("" if error is None else f"{type(error).__name__}: {error}"[:300]))
        self._store = self._sender = None

    def explanation(self, seconds: float = 1.5) -> str | None:
        """Return which rank has died, if that explains a failure of this one; wait for it to show."""
        until = time.monotonic() + seconds
        while self._found is None and self._left is None and time.monotonic() < until:
            self._check_peers(None)
            if self._found is None:
                self._ended.wait(PERIOD / 2)
        return self._found or self._left

    # -- in the threads ---------------------------------------------------------------------------------------

    def _send_heartbeats(self, first: Mapping[str, Any]) -> None:
        """Send heartbeats and collect those of the others; a store whose process is stopped never answers."""
        # In this thread, as connecting may take long.
        if self._store is None:
            self._store = self._connect(first)
        if self._store is None:
            return
        beats = 0
        met: list[int] = []
        while not self._ended.wait(PERIOD):
            beats += 1
            try:
                self._store.set(_key(rank()), str(beats))
                # Getting a key that does not exist would wait for it; one request gets all that exist.
                met += [p.rank for p in self._peers if p.rank not in met and self._store.check([_key(p.rank)])]
                heartbeats = self._store.multi_get([_key(number) for number in met]) if met else []
                for number, message in zip(met, heartbeats, strict=True):
                    self._receive(number, message)
            except (RuntimeError, ValueError):
                # Rank 0, which holds the store, has ended. Processes of this machine can still be checked.
                return
            self._rounds = beats

    def _receive(self, number: int, message: bytes) -> None:
        if message.startswith(LEFT.encode()):
            self._last_messages[number] = _shown(message.removeprefix(LEFT.encode()))
        else:
            self._heartbeats[number] = int(message)

    def _watch(self) -> None:
        last = time.monotonic()
        rounds, seen = 0, dict(self._heartbeats)
        silent = dict.fromkeys([peer.rank for peer in self._peers], 0.0)
        while not self._ended.wait(PERIOD):
            now = time.monotonic()
            # If this thread could not run for a while, heartbeats of others may have come meanwhile.
            passed, last = min(now - last, 2 * PERIOD), now
            if self._rounds == rounds:
                # No heartbeat has come at all: the store of rank 0 does not answer.
                if self._depends_on_first_rank():
                    silent[0] += passed
            else:
                rounds = self._rounds
                for number in silent:
                    has_beaten = self._heartbeats.get(number) != seen.get(number)
                    silent[number] = 0.0 if has_beaten else silent[number] + passed
                seen = dict(self._heartbeats)
            self._check_peers(silent)
            if self._found is not None:
                self._give_up()
                return
            self._stop_waiting_for_left(now)

    def _depends_on_first_rank(self) -> bool:
        connected = self._store is not None and self._sender is not None and self._sender.is_alive()
        return connected and not is_main_process()

    def _check_peers(self, silent: Mapping[int, float] | None) -> None:
        for peer in self._peers:
            message = self._last_messages.get(peer.rank)
            if message == "":  # it has ended well
                continue
            suffix = f"; its last message: {message}" if message else ""
            if peer.has_exited():
                self._found = f"{peer} has died{suffix}"
            elif silent is not None and silent[peer.rank] > self._limit:
                self._found = f"{peer} has sent no heartbeat for {silent[peer.rank]:.0f} s{suffix}"
            if self._found is not None:
                return

    def _stop_waiting_for_left(self, now: float) -> None:
        """Let collectives fail that wait for a rank that has failed, but whose process lives on."""
        for peer in self._peers:
            message = self._last_messages.get(peer.rank)
            if not message or not peer.is_here or self._left is not None:
                continue
            # This rank may be about to leave for the same reason.
            if now - self._told_at.setdefault(peer.rank, now) >= GRACE:
                self._left = f"{peer} has left the run: {message}"
                close_connections(peer.pid, besides=self._ports)

    def _give_up(self) -> None:
        """End this process, which would wait forever, unless it ends by itself."""
        self._logger.error("%s: this rank cannot go on without it", self._found)
        if self._ended.wait(GRACE):
            return
        self._write_stacks()
        self._logger.error("rank %d ends with exit code %d, as it is still waiting", rank(), EXIT_CODE)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue  # its reader has ended
        os._exit(EXIT_CODE)

    def _write_stacks(self) -> None:
        path = self._folder / f"stacks_rank_{rank()}.txt"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file, all_threads=True)
            self._logger.error("stacks of all threads:\n%s", path.read_text(encoding="utf-8").rstrip())
        except OSError as error:
            self._logger.error("cannot write the stacks: %s", error)

    def _leave_message(self, text: str) -> None:
        if self._store is not None:
            try:
                self._store.set(_key(rank()), text)
            except RuntimeError as error:
                self._logger.debug("cannot reach the other ranks: %s", error)

    def _connect(self, first: Mapping[str, Any]) -> Any:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        here = first["host"] == this_host() and first["network"] == _link(NETWORK)
        address = "127.0.0.1" if here else str(first["address"])
        try:
            return TCPStore(address, int(first["port"]), is_master=False, timeout=timedelta(seconds=10))
        except (RuntimeError, TypeError, ValueError) as error:
            line = str(error).partition("\n")[0]
            self._logger.warning(
                "cannot reach the watchdog of rank 0: only ranks of this machine are watched: %s", line
            )
            return None


def _serve() -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))


def _key(number: int) -> str:
    """Return the key of the heartbeats of a rank."""
    return f"rank/{number}"


def _address() -> str:
    """Return the address of this machine: the one at which the ranks have met."""
    return os.environ.get("MASTER_ADDR") or socket.gethostname()


def is_of_another_rank(error: BaseException | None) -> bool:
    """Return whether an error may come from a rank that has ended."""
    from torch.distributed import DistError

    while error is not None:
        if isinstance(error, DistError) or (
            isinstance(error, (RuntimeError, ConnectionError)) and _LOST.search(str(error))
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


_LOST = re.compile("gloo|nccl|connection|socket|peer", re.IGNORECASE)


def this_host() -> str:
    """Return a name of this machine and its process namespace, different from other machines of the same host name."""
    return f"{socket.gethostname()} {_first_line('/proc/sys/kernel/random/boot_id')} {_link('/proc/self/ns/pid')}"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _shown(message: bytes) -> str:
    return message.decode("utf-8", "replace").partition("\n")[0][:300]
