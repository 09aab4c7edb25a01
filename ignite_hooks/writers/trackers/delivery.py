"""Delivery to trackers: one bounded queue and one thread each. Training neither waits for them nor ends with them."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.errors import SettingError
from ignite_hooks.writers.interface import Writer, as_picture, fetched, finite, full_name, number_of
from ignite_hooks.writers.trackers.spool import SUFFIX, Record, Spool

Mode = Literal["auto", "online", "offline", "disabled"]

PATIENCE = 2.0
"""Seconds in which a server has to answer to count as reachable."""
BATCH = 500
GATHERED = 0.5
"""Seconds in which records are gathered once one is there: each delivery takes the interpreter from the loop."""
LOADING = 120.0
"""Seconds that the import of a tracker may take on a slow machine, besides the deadline."""

logger = logging.getLogger("ignite_hooks")


class Unreachable(ConnectionError):
    """The tracker cannot be reached now; what is for it waits in the spool."""


class Offline(Unreachable):
    """It is not tried to reach the tracker, which was said already or was asked for."""


class Refused(ValueError):
    """The tracker does not take this record, now or later."""


OF_A_RECORD = (Refused, ValueError, TypeError, AttributeError, LookupError)
"""What the client of a tracker raises where it can make nothing of what it is given."""


class Tracker:
    """What a tracker takes; one thread alone calls it.

    What it raises means that nothing can be delivered now, except what is about one record: ``Refused``, and the errors
    in ``OF_A_RECORD`` that are none of a connection. Such a record is left out, or it would block all others.
    """

    vouches = True
    """Whether a ``send`` that returns means that all has arrived or is safe; else copies are kept until ``close``."""
    name = "the tracker"
    refused = 0

    def send(self, records: Sequence[Record]) -> None:
        """Deliver records in order."""
        for record in records:
            try:
                getattr(self, record.what)(record)
            except OF_A_RECORD as error:
                # The errors of `requests` are errors of the system, and some are of values too.
                if isinstance(error, OSError):
                    raise
                self.refused += 1
                if self.refused <= 3:
                    words = " ".join(str(error).split())[:300]
                    logger.warning("%s does not take the %s of step %d: %s", self.name, record.what, record.step, words)

    def scalars(self, record: Record) -> None:
        """``content``: numbers by name."""

    def image(self, record: Record) -> None:
        """``content``: name, and image as height x width x channels of bytes."""

    def histogram(self, record: Record) -> None:
        """``content``: name, counts, and edges: one more than counts."""

    def text(self, record: Record) -> None:
        """``content``: name and text."""

    def config(self, record: Record) -> None:
        """``content``: the configuration."""

    def artifact(self, record: Record) -> None:
        """``content``: path, name and kind."""

    def close(self, failed: bool) -> bool:
        """Let go of it; whether everything has arrived, as far as that can be known."""
        return True


class BackgroundWriter(Writer):
    """Base of the writers for trackers: takes notes for a thread that delivers them."""

    def __init__(self, kind: str, mode: Mode, work_dir: str | Path | None, deadline: float) -> None:
        if mode not in ("auto", "online", "offline", "disabled"):
            raise SettingError("mode", f"auto, online, offline or disabled is needed, not {mode!r}")
        self.kind, self.mode, self.deadline = kind, mode, deadline
        self.work_dir = Path(work_dir or ".").absolute()
        self.run_id: str | None = None
        """The tracker's name of the run, once it has one; a writer that is used again goes on with it."""
        self.failed = False
        """Whether the run has failed, which trackers show."""
        self._delivery: Delivery | None = None
        self._spool: Spool | None = None
        self._begun = False
        """Whether the run in the tracker has anything that belongs to a step."""

    def load(self) -> None:
        """Import what the tracker needs: seconds, but none in which a server keeps us waiting."""

    def connect(self) -> Tracker:
        """Reach the tracker; called in the thread that delivers, again after a failure."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What ``ignite-hooks send`` needs to make this writer again; no secrets."""
        return {}

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.write_scalars({name: value}, step)

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        numbers = {full_name(name, kind): number_of(value) for name, value in fetched(scalars).items()}
        self._put("scalars", step, {name: value for name, value in numbers.items() if value is not None})

    def write_image(self, name: str, image: Any, step: int) -> None:
        # A copy: whoever drew it may draw the next one over it.
        self._put("image", step, {"name": name, "image": as_picture(image).copy()})

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        counts, edges = binned(values)
        self._put("histogram", step, {"name": name, "counts": counts, "edges": edges})

    def write_text(self, name: str, text: str, step: int) -> None:
        self._put("text", step, {"name": name, "text": text})

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._put("config", 0, plain(config))

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        path = Path(path).absolute()
        self._put("artifact", 0, {"path": str(path), "name": name or path.name, "kind": kind})

    def resumed(self, step: int) -> None:
        """Begin another run in the tracker: trackers cannot take back the steps that come again."""
        if self._begun:
            self.close()
            self.run_id, self._spool, self._begun = None, None, False

    def began_anew(self) -> None:
        self.resumed(0)

    def prepare(self) -> None:
        """Look at what only the thread of the script can see, before the first record."""

    def close(self) -> None:
        """Wait for what is on its way, but not longer than ``deadline`` seconds."""
        if self._delivery is not None:
            delivery, self._delivery = self._delivery, None
            delivery.close(self.deadline, failed=self.failed)

    def _put(self, what: str, step: int, content: Mapping[str, Any]) -> None:
        if self.mode == "disabled":
            return
        self._begun = self._begun or step > 0
        if self._delivery is None:
            self.prepare()
            self._delivery = self._begin()
        self._delivery.put(Record(what, step, time.time(), content))

    def _begin(self) -> Delivery:
        if self._spool is None:
            header = {
                "writer": type(self).__name__,
                "settings": self.settings(),
                "run": self.run_id,
                "folder": str(self.work_dir),
            }
            self._spool = Spool(_unused(self.work_dir, self.kind), header)
        spool = self._spool

        def connect() -> Tracker:
            tracker = self.connect()
            tracker.name = type(self).__name__
            if spool.header.get("run") != self.run_id:
                spool.say(run=self.run_id)
            return tracker

        return Delivery(connect, spool, type(self).__name__, load=self.load)

    def offline_because(self, reason: str, where: object) -> None:
        """Say in one line why a tracker that was looked for is not used, and what to do."""
        logger.warning(
            "%s: %s, so it works offline, in %s; 'ignite-hooks send %s' sends it later",
            type(self).__name__,
            reason,
            where,
            self.work_dir,
        )


class Delivery:
    """From the first record to ``close``: a queue, a thread, and a spool for what cannot be delivered.

    A failure is tried again after each of ``retries`` seconds; then everything goes to the spool, and the tracker is
    asked again every ``pause`` seconds. Whatever lies in the spool goes first, so the order is kept.
    """

    def __init__(
        self,
        connect: Callable[[], Tracker],
        spool: Spool,
        name: str,
        *,
        load: Callable[[], None] = lambda: None,
        limit: int = 10_000,
        gathered: float = GATHERED,
        retries: Sequence[float] = (0.5, 2.0),
        pause: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool = spool
        self._connect, self._name, self._load, self._limit = connect, name, load, limit
        self._loaded = threading.Event()
        self._gathered, self._retries, self._pause, self._clock = gathered, retries, pause, clock
        self._queue: deque[Record] = deque()
        self._in_hand: list[Record] = []
        self._news = threading.Condition()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._tracker: Tracker | None = None
        self._broken = False
        """Whether the tracker counts as unreachable; records go to the spool then."""
        self._try_again_at = 0.0
        self._lost = 0
        self._failed = False
        self._thread = threading.Thread(target=self._work, name=f"ignite_hooks {name}", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Take a record; what does not fit into memory goes to the spool."""
        with self._news:
            self._queue.append(record)
            overflow = len(self._queue) > self._limit
            if overflow:
                # The thread hangs. The older half goes, so that this is rare.
                older = [self._queue.popleft() for _ in range(self._limit // 2)]
                self._broken = True
            self._news.notify()
        if overflow:
            self._keep(older)

    def close(self, deadline: float, failed: bool = False) -> None:
        """Deliver what is left, or see to it that it is in the spool."""
        self._failed = failed
        self._closing.set()
        with self._news:
            self._news.notify()
        self._loaded.wait(LOADING)
        self._thread.join(deadline)
        if self._thread.is_alive():
            with self._news:
                self._given_up.set()
                left = [*self._in_hand, *self._queue]
                self._queue.clear()
            self._keep(left)
            logger.warning("%s: no answer for %.0f s, not waited for any longer", self._name, deadline)
        if self.spool.path.exists():
            logger.warning(
                "%s: %d records are not known to have arrived and lie in %s; 'ignite-hooks send %s' sends them",
                self._name,
                len(self.spool),
                self.spool.path,
                self.spool.path.parent,
            )
        if self._lost:
            words = "%s: %d records are lost, as they could not be written to %s"
            logger.warning(words, self._name, self._lost, self.spool.path)

    # -- in the thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._load()
        except Exception as error:
            # Connecting will say so again, and be tried again.
            logger.warning("%s: %s: %s", self._name, type(error).__name__, error)
        finally:
            self._loaded.set()
        while not self._given_up.is_set():
            with self._news:
                while not self._queue and not self._closing.is_set():
                    # Without records too, what waits in the spool is tried again now and then.
                    if not self._news.wait(self._pause if self._broken else None):
                        break
            self._closing.wait(self._gathered)
            with self._news:
                self._in_hand = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]
            self._deliver(self._in_hand)
            with self._news:
                if self._given_up.is_set():
                    return
                self._in_hand = []
                if self._closing.is_set() and not self._queue:
                    break
        if not self._given_up.is_set():
            self._end()

    def _deliver(self, records: list[Record]) -> None:
        if self._broken:
            self._keep_in_hand()
            if self._clock() >= self._try_again_at:
                self._empty_spool()
        elif records:
            if not self._sent(records):
                self._broken = True
                self._keep_in_hand()
            elif self._tracker is not None and not self._tracker.vouches:
                self._keep_in_hand()

    def _sent(self, records: list[Record]) -> bool:
        """Send, and try again where it fails; at the end of a run once only."""
        waits = iter(self._retries)
        while True:
            try:
                self._send(records)
                return True
            except Exception as error:
                wait = next(waits, None)
                if wait is None or isinstance(error, Offline) or self._closing.is_set() or self._given_up.is_set():
                    self._open_circuit(error)
                    return False
                self._closing.wait(wait)

    def _send(self, records: list[Record]) -> None:
        if self._tracker is None:
            self._tracker = self._connect()
        self._tracker.send(records)

    def _keep_in_hand(self) -> None:
        with self._news:
            # Who has given up waiting has taken them already.
            records, self._in_hand = self._in_hand, []
        self._keep(records)

    def _open_circuit(self, error: Exception) -> None:
        self._try_again_at = self._clock() + self._pause
        if not self._broken and not self._given_up.is_set() and not isinstance(error, Offline):
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            logger.warning("%s cannot be reached, records wait in %s: %s", self._name, self.spool.path, words)

    def _empty_spool(self) -> None:
        """Send what waits, oldest first; the circuit closes when all of it is gone."""
        try:
            for batch in self.spool.batches(BATCH):
                self._send(batch)
                if self._given_up.is_set():
                    return
        except Exception as error:
            self._open_circuit(error)
        try:
            if self._tracker is not None and not self._tracker.vouches:
                self._broken = self.spool.delivered < len(self.spool)
            else:
                self._broken = not self.spool.forget_delivered()
        except OSError as error:
            logger.warning("%s: %s", self._name, error)

    def _end(self) -> None:
        if self._broken:
            self._empty_spool()
        if self._tracker is None:
            return
        try:
            arrived = self._tracker.close(self._failed)
        except Exception as error:
            arrived = False
            logger.warning("%s could not be closed: %s", self._name, f"{type(error).__name__}: {error}")
        if not self._tracker.vouches and arrived and not self._broken and not self._given_up.is_set():
            self.spool.remove()

    def _keep(self, records: list[Record]) -> None:
        """Into the spool; a full disk costs records, not the run."""
        try:
            self.spool.append(records)
        except OSError as error:
            if not self._lost:
                logger.warning("%s: records are lost: %s", self._name, error)
            self._lost += len(records)


def _unused(folder: Path, kind: str) -> Path:
    """The path of a spool: what waits for another run stays apart."""
    path, number = folder / f"{kind}{SUFFIX}", 1
    while path.exists():
        number += 1
        path = folder / f"{kind}-{number}{SUFFIX}"
    return path


def answers(url: str, patience: float = PATIENCE) -> bool:
    """Whether an HTTP server answers at all, and in time; not every one that accepts connections does."""
    until = time.monotonic() + patience
    try:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        secure = parts.scheme == "https"
        address = parts.hostname or "", parts.port or (443 if secure else 80)
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection(address, timeout=patience))
            if secure:
                connection.settimeout(max(0.01, until - time.monotonic()))
                context = ssl.create_default_context()
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=address[0]))
            request = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
            connection.sendall(request.encode("ascii", "replace"))
            said = b""
            while b"\n" not in said:
                # For all of it together: a slow server sends a byte now and then.
                connection.settimeout(max(0.01, until - time.monotonic()))
                heard = connection.recv(100)
                if not heard or time.monotonic() > until:
                    return False
                said += heard
            return re.match(rb"HTTP/\S+ [1-4]\d\d\b", said) is not None
    except (OSError, ValueError):
        return False


def binned(values: Any, bins: int = 64) -> tuple[list[int], list[float]]:
    """A histogram: how many values lie between each edge and the next; what is not finite is left out."""
    import numpy

    counts, edges = numpy.histogram(finite(values), bins=bins)
    return [int(count) for count in counts], [float(edge) for edge in edges]


def plain(value: Any) -> Any:
    """A configuration as every tracker takes it: objects as their texts, and texts for names."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
