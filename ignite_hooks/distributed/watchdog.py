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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ignite_hooks.distributed.collectives import all_gather, fail_on_all_ranks, is_main_process, rank, world_size
from ignite_hooks.distributed.connections import close_connections
from ignite_hooks.distributed.heartbeats import Heartbeats

if TYPE_CHECKING:
    import psutil

Result = TypeVar("Result")

PERIOD = 0.2
"""Seconds between two checks of the other ranks."""

GRACE = 0.8
"""Seconds that a process has to end by itself after another one has died."""

EXIT_CODE = 17

NETWORK = "/proc/self/ns/net"
"""The network namespace of this process."""


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
    holds only numbers and short texts, which are only shown. Rank 0 judges who is silent; every rank watches rank 0,
    and the processes of its own machine.

    Args:
        limit: The seconds without a heartbeat after which a rank counts as hanging.
        folder: The folder for the stacks of all threads, written when this process gives up.
        logger: Receives all messages.
        advice: Returns how the run goes on without the rank that is gone, for the last message.
    """

    def __init__(
        self, limit: float, folder: Path, logger: logging.Logger, advice: Callable[[], str] = lambda: ""
    ) -> None:
        self._limit, self._folder, self._logger, self._advice = limit, folder, logger, advice
        self._peers: list[Peer] = []
        self._store: Any = None
        self._sender: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._heartbeats: Heartbeats | None = None
        self._suspects: dict[int, bool] = {}
        """The ranks whose processes have ended, and whether the store was asked for their last words."""
        self._calls_roll = False
        """Whether this rank has lost a connection, and wants to know who is still there."""
        self._wake = threading.Event()
        self._ports: set[int] = set()
        self._ended = threading.Event()
        self._found: str | None = None
        self._left: str | None = None
        """Which rank has left the run and lives on, and why."""
        self._told_at: dict[int, float] = {}

    def begin(self) -> None:
        """Exchange addresses and start the threads; all ranks have to call it."""
        server = _serve() if is_main_process() else None
        if server is not None:
            Heartbeats.prepare(server, world_size())
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
        _RUNNING.append(self)

    def end(self, error: BaseException | None = None) -> None:
        """Stop the threads, and let the other ranks know whether this one has ended well.

        From here on the watchdog does not end this process, however long it takes to clean up.
        """
        if self._watcher is None:
            return
        _RUNNING.remove(self)
        self._ended.set()
        self._wake.set()
        self._watcher.join()
        self._watcher = None
        if self._sender is not None:
            self._sender.join(PERIOD + GRACE)
            if not self._sender.is_alive():
                self.leave(error)
        self._store = self._sender = self._heartbeats = None

    def explanation(self, seconds: float = 1.5) -> str | None:
        """Return which rank has died, if that explains a failure of this one; wait for it to show."""
        heartbeats, elsewhere = self._heartbeats, [peer for peer in self._peers if not peer.is_here]
        rounds = 0 if heartbeats is None else heartbeats.rounds
        if heartbeats is not None and elsewhere:
            # Their processes cannot be looked at from here.
            self._calls_roll = True
            self._wake.set()
            seconds = max(seconds, heartbeats.patience)
        until = time.monotonic() + seconds
        found = self._known_gone()
        while found is None and time.monotonic() < until:
            self._ended.wait(PERIOD / 2)
            found = self._known_gone()
        found = found or self._unreachable(elsewhere, rounds)
        if heartbeats is not None and heartbeats.missing and is_main_process():
            # Rank 0 takes the store along: the others have to have heard of it.
            self._ended.wait(2 * heartbeats.period)
        return None if found is None else f"{found}: this rank cannot go on without it{self._advice()}"

    def _known_gone(self) -> str | None:
        """Return which rank has died, has left by an error, or has not answered when the roll was called."""
        self._check_peers(None)
        missing = set() if self._heartbeats is None else self._heartbeats.missing
        return (
            self._found
            or self._left
            or next((f"{peer} does not answer" for peer in self._peers if peer.rank in missing), None)
        )

    def _unreachable(self, elsewhere: list[Peer], rounds: int) -> str | None:
        """Return which rank of another machine cannot be reached, if no rank is known to be missing.

        Args:
            elsewhere: The ranks of other machines.
            rounds: How many rounds the store of rank 0 had answered when a connection was lost.
        """
        elsewhere = [peer for peer in elsewhere if self._message_of(peer) != ""]
        first = next((peer for peer in elsewhere if peer.rank == 0), None)
        answered = self._is_connected() and self._heartbeats is not None and self._heartbeats.rounds > rounds
        if first is not None and self._store is not None and not answered:
            return f"{first} does not answer"
        # A connection was lost, and no process of this machine has ended.
        return f"{elsewhere[0]} cannot be reached" if len(elsewhere) == 1 else None

    # -- in the threads ---------------------------------------------------------------------------------------

    def _send_heartbeats(self, first: Mapping[str, Any]) -> None:
        """Send heartbeats and collect those of the others; a store whose process is stopped never answers."""
        # In this thread, as connecting may take long.
        if self._store is None:
            self._store = self._connect(first)
        if self._store is None:
            return
        heartbeats = self._heartbeats = Heartbeats(self._store, rank(), len(self._peers) + 1, self._limit)
        while True:
            self._wake.wait(heartbeats.period)
            self._wake.clear()
            if self._ended.is_set():
                return
            if self._calls_roll:
                self._calls_roll = False
                heartbeats.call_the_roll()
            asked = [number for number, answered in list(self._suspects.items()) if not answered]
            try:
                heartbeats.round(asked)
            except (RuntimeError, ValueError):
                # Rank 0, which holds the store, has ended. Processes of this machine can still be checked.
                return
            self._suspects |= dict.fromkeys(asked, True)

    def _watch(self) -> None:
        last = time.monotonic()
        rounds, waited = 0, 0.0
        watched = [peer.rank for peer in self._peers if is_main_process() or peer.rank == 0]
        seen: dict[int, str | None] = {}
        silent = dict.fromkeys(watched, 0.0)
        while not self._ended.wait(PERIOD):
            now, heartbeats = time.monotonic(), self._heartbeats
            # If this thread could not run for a while, heartbeats of others may have come meanwhile.
            passed, last = min(now - last, 2 * PERIOD), now
            waited += passed
            if heartbeats is None or heartbeats.rounds == rounds:
                # Nothing has come at all. If that lasts, the store of rank 0 does not answer.
                if self._depends_on_first_rank():
                    silent[0] += passed
            else:
                # Where this rank waits for rank 0, the time was counted above.
                more, waited, rounds = passed if 0 in silent else waited, 0.0, heartbeats.rounds
                for number in silent:
                    has_beaten = heartbeats.beats.get(number) != seen.get(number)
                    silent[number] = 0.0 if has_beaten else silent[number] + more
                    seen[number] = heartbeats.beats.get(number)
            self._check_peers(silent)
            if self._found is not None:
                self._give_up(silent)
                return
            self._stop_waiting_for_left(now)

    def _is_connected(self) -> bool:
        return self._store is not None and self._sender is not None and self._sender.is_alive()

    def _depends_on_first_rank(self) -> bool:
        return self._is_connected() and not is_main_process()

    def _check_peers(self, silent: Mapping[int, float] | None) -> None:
        for peer in self._peers:
            message = self._message_of(peer)
            if message == "":  # it has ended well
                continue
            if peer.has_exited():
                # What it said last may not have come yet.
                message = self._last_words(peer) if message is None else message
                if message != "":
                    self._found = f"{peer} has died{_quoted(message)}"
            elif silent is not None and (seconds := self._silence_of(peer, silent)) is not None:
                self._found = f"{peer} has sent no heartbeat for {seconds} s{_quoted(message)}"
            if self._found is not None:
                return

    def _message_of(self, peer: Peer) -> str | None:
        """Return what a rank said when it left the run; empty if without an error, None if it has not left."""
        return None if self._heartbeats is None else self._heartbeats.messages.get(peer.rank)

    def _last_words(self, peer: Peer) -> str | None:
        """Ask the store what a rank has said, whose process has ended."""
        until = time.monotonic() + GRACE
        self._suspects.setdefault(peer.rank, False)
        self._wake.set()
        while not self._suspects[peer.rank] and self._is_connected() and time.monotonic() < until:
            time.sleep(0.005)
        return self._message_of(peer)

    def _silence_of(self, peer: Peer, silent: Mapping[int, float]) -> str | None:
        """Return the seconds for which a rank has been silent, if they are too many."""
        if silent.get(peer.rank, 0.0) > self._limit:
            return f"{silent[peer.rank]:.0f}"
        return None if self._heartbeats is None else self._heartbeats.silent.get(peer.rank)

    def _stop_waiting_for_left(self, now: float) -> None:
        """Let collectives fail that wait for a rank that has failed, but whose process lives on."""
        for peer in self._peers:
            message = self._message_of(peer)
            if not message or not peer.is_here or self._left is not None:
                continue
            # This rank may be about to leave for the same reason.
            if now - self._told_at.setdefault(peer.rank, now) >= GRACE:
                self._left = f"{peer} has left the run: {message}"
                close_connections(peer.pid, besides=self._ports)

    def _give_up(self, silent: Mapping[int, float]) -> None:
        """End this process, which would wait forever, unless it ends by itself."""
        self._logger.error("%s: this rank cannot go on without it%s", self._found, self._advice())
        period = self._tell_silence(silent)
        # Rank 0 takes the store along: all have to have heard of it.
        if self._ended.wait(max(GRACE, 2 * period)):
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

    def _tell_silence(self, silent: Mapping[int, float]) -> float:
        """Tell the other ranks who is silent, if this is rank 0; return the seconds in which they hear of it."""
        heartbeats = self._heartbeats
        if heartbeats is None or not is_main_process():
            return 0.0
        for number, seconds in silent.items():
            if seconds > self._limit:
                try:
                    heartbeats.report_silent(number, seconds)
                except RuntimeError as error:
                    self._logger.debug("cannot reach the other ranks: %s", error)
        return heartbeats.period

    def leave(self, error: BaseException | None) -> None:
        """Tell the other ranks that this one has left the run: they stop waiting for it if it was by an error."""
        if self._heartbeats is not None:
            try:
                self._heartbeats.leave("" if error is None else f"{type(error).__name__}: {error}")
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


_RUNNING: list[Watchdog] = []
"""The watchdogs of the runs of this process."""


def fail_together(action: Callable[[], Result]) -> Result:
    """Return the result of an action of the script; if it fails on one rank, raise on all.

    The action may use collectives of its own, in which the others then wait: if they are not told in time, this rank
    leaves the run, and their collectives fail.

    Args:
        action: Acts.
    """
    try:
        result = action()
    except Exception as error:
        problem = error
    else:
        return fail_on_all_ranks(lambda: result)

    def fail() -> None:
        raise problem

    def leave() -> None:
        for watchdog in _RUNNING:
            watchdog.leave(problem)

    timer = threading.Timer(GRACE, leave)
    timer.daemon = True
    timer.start()
    try:
        fail_on_all_ranks(fail)
    except Exception as error:
        if error is not problem:
            logging.getLogger(__name__).debug("the other ranks have not been told: %s", error)
    finally:
        timer.cancel()
    raise problem


def _serve() -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))


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


def _quoted(message: str | None) -> str:
    return f"; its last message: {message}" if message else ""
