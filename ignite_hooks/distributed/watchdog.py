"""Ranks that watch each other: one that has died or hangs is named, instead of being waited for in vain."""

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
from typing import Any

from ignite_hooks.distributed.collectives import all_gather, is_main_process, rank

PERIOD = 0.2
"""Seconds between two signs of life, and between two looks at the others."""

GRACE = 0.8
"""Seconds in which a process may end by itself after another one has died."""

EXIT_CODE = 17

NETWORK = "/proc/self/ns/net"
"""Names the space in which this process has its addresses."""

LEFT = "left "
"""Stands before the last words of a rank, where its signs of life have stood."""


@dataclass(frozen=True)
class Peer:
    """Another process of the run."""

    rank: int
    host: str
    pid: int
    started: float

    @property
    def is_here(self) -> bool:
        """Whether it runs where this process could see it."""
        return self.host == this_host()

    def is_gone(self) -> bool:
        """Whether it is known to have ended; of another machine nothing is known."""
        import psutil

        if not self.is_here:
            return False
        try:
            process = psutil.Process(self.pid)
            # The number may have been given to another process since.
            return bool(process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - self.started) > 1)
        except psutil.NoSuchProcess:
            return True

    def __str__(self) -> str:
        where = "" if self.is_here else f" on {self.host.partition(' ')[0]}"
        return f"rank {self.rank} (process {self.pid}{where})"


class Vigil:
    """A thread that gives signs of life and looks for those of the other ranks, for the time of a run.

    The signs go through a store of their own: they need no collective and no help of the training's thread. Nothing
    in it is anything but numbers and short texts, which are only shown.

    Args:
        limit: The seconds of silence after which a rank counts as hanging.
        folder: Where the stacks of all threads are written when this process gives up.
        logger: Hears of everything.
    """

    def __init__(self, limit: float, folder: Path, logger: logging.Logger) -> None:
        self._limit, self._folder, self._logger = limit, folder, logger
        self._peers: list[Peer] = []
        self._store: Any = None
        self._talker: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._signs: dict[int, int] = {}
        self._rounds = 0
        self._ended = threading.Event()
        self._found: str | None = None
        self._last_words: dict[int, str] = {}

    def begin(self) -> None:
        """Meet the other ranks, and begin to watch; to be called by all ranks."""
        server = _served() if is_main_process() else None
        mine = {"host": this_host(), "pid": os.getpid(), "started": started_at(), "port": server and server.port}
        mine["network"] = _link(NETWORK)
        heard = all_gather({**mine, "address": _address()})
        self._peers = [
            Peer(number, str(of["host"]), int(of["pid"]), float(of["started"]))
            for number, of in enumerate(heard)
            if number != rank()
        ]
        self._store = server
        self._talker = threading.Thread(
            target=self._talk, args=(heard[0],), name="ignite_hooks vigil, talking", daemon=True
        )
        self._talker.start()
        self._watcher = threading.Thread(target=self._watch, name="ignite_hooks vigil", daemon=True)
        self._watcher.start()

    def end(self, error: BaseException | None = None) -> None:
        """Stop watching; the others are told whether this rank has ended well.

        From here on this process is not ended any more, however long it takes to clean up.
        """
        if self._watcher is None:
            return
        self._ended.set()
        self._watcher.join()
        self._watcher = None
        if self._talker is not None:
            self._talker.join(PERIOD + GRACE)
            if not self._talker.is_alive():
                self._say(LEFT + ("" if error is None else f"{type(error).__name__}: {error}"[:300]))
        self._store = self._talker = None

    def explanation(self, seconds: float = 1.5) -> str | None:
        """Which rank has died, where that explains a failure of this one; it may take a moment to show."""
        until = time.monotonic() + seconds
        while self._found is None and time.monotonic() < until:
            self._look(None)
            if self._found is None:
                self._ended.wait(PERIOD / 2)
        return self._found

    # -- in the threads ---------------------------------------------------------------------------------------

    def _talk(self, first: Mapping[str, Any]) -> None:
        """Give signs and collect those of the others; a store whose process is stopped answers never."""
        # Here, as nobody is to wait for a connection.
        if self._store is None:
            self._store = self._client(first)
        if self._store is None:
            return
        beats = 0
        met: list[int] = []
        while not self._ended.wait(PERIOD):
            beats += 1
            try:
                self._store.set(_place(rank()), str(beats))
                # Asking for what is not there yet would wait for it; of those that are, one question asks all.
                met += [p.rank for p in self._peers if p.rank not in met and self._store.check([_place(p.rank)])]
                signs = self._store.multi_get([_place(number) for number in met]) if met else []
                for number, said in zip(met, signs, strict=True):
                    self._hear(number, said)
            except (RuntimeError, ValueError):
                # Rank 0, which has the store, has gone. What can be seen without it still is.
                return
            self._rounds = beats

    def _hear(self, number: int, said: bytes) -> None:
        if said.startswith(LEFT.encode()):
            self._last_words[number] = _shown(said.removeprefix(LEFT.encode()))
        else:
            self._signs[number] = int(said)

    def _watch(self) -> None:
        last = time.monotonic()
        rounds, seen = 0, dict(self._signs)
        silent = dict.fromkeys([peer.rank for peer in self._peers], 0.0)
        while not self._ended.wait(PERIOD):
            now = time.monotonic()
            # Where this thread itself was kept from running, the others may have spoken meanwhile.
            passed, last = min(now - last, 2 * PERIOD), now
            if self._rounds == rounds:
                # Nothing was heard of anybody: it is rank 0 through which they are heard.
                if self._talks():
                    silent[0] += passed
            else:
                rounds = self._rounds
                for number in silent:
                    silent[number] = 0.0 if self._signs.get(number) != seen.get(number) else silent[number] + passed
                seen = dict(self._signs)
            self._look(silent)
            if self._found is not None:
                self._give_up()
                return

    def _talks(self) -> bool:
        connected = self._store is not None and self._talker is not None and self._talker.is_alive()
        return connected and not is_main_process()

    def _look(self, silent: Mapping[int, float] | None) -> None:
        for peer in self._peers:
            if self._last_words.get(peer.rank) == "":
                continue
            words = f"; its last words: {self._last_words[peer.rank]}" if self._last_words.get(peer.rank) else ""
            if peer.is_gone():
                self._found = f"{peer} has died{words}"
            elif silent is not None and silent[peer.rank] > self._limit:
                self._found = f"{peer} has given no sign of life for {silent[peer.rank]:.0f} s{words}"
            if self._found is not None:
                return

    def _give_up(self) -> None:
        """End this process, which would wait in vain, unless it ends by itself."""
        self._logger.error("%s: this rank cannot go on without it", self._found)
        if self._ended.wait(GRACE):
            return
        self._write_stacks()
        self._logger.error("rank %d ends with exit code %d, as it is still waiting", rank(), EXIT_CODE)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue  # nobody reads it any more
        os._exit(EXIT_CODE)

    def _write_stacks(self) -> None:
        path = self._folder / f"stacks_rank_{rank()}.txt"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file, all_threads=True)
            self._logger.error("what every thread was doing:\n%s", path.read_text(encoding="utf-8").rstrip())
        except OSError as error:
            self._logger.error("the stacks cannot be written: %s", error)

    def _say(self, text: str) -> None:
        if self._store is not None:
            try:
                self._store.set(_place(rank()), text)
            except RuntimeError as error:
                self._logger.debug("the other ranks could not be told: %s", error)

    def _client(self, first: Mapping[str, Any]) -> Any:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        here = first["host"] == this_host() and first["network"] == _link(NETWORK)
        address = "127.0.0.1" if here else str(first["address"])
        try:
            return TCPStore(address, int(first["port"]), is_master=False, timeout=timedelta(seconds=10))
        except (RuntimeError, TypeError, ValueError) as error:
            line = str(error).partition("\n")[0]
            self._logger.warning("the other ranks can be watched only as far as they run here: %s", line)
            return None


def _served() -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))


def _place(number: int) -> str:
    """Where a rank gives its signs."""
    return f"rank/{number}"


def _address() -> str:
    """Where the other machines find this one: as they have found it to meet."""
    return os.environ.get("MASTER_ADDR") or socket.gethostname()


def is_of_another_rank(error: BaseException | None) -> bool:
    """Whether an error looks like what is left of a rank that has gone."""
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
    """This machine, apart from others that call themselves the same, and the space in which its processes count."""
    return f"{socket.gethostname()} {_first_line('/proc/sys/kernel/random/boot_id')} {_link('/proc/self/ns/pid')}"


def started_at() -> float:
    """When this process began."""
    import psutil

    return float(psutil.Process().create_time())


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


def _shown(said: bytes) -> str:
    return said.decode("utf-8", "replace").partition("\n")[0][:300]
