"""Delivery to a tracker: a bounded queue and a thread, so that no tracker can delay or end the training."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ignite_hooks.text import duration
from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Continued, Ending, Offline, Tracker
from ignite_hooks.writers.trackers.turn import NotOurTurnError, Turn

BATCH = 500
GATHERED = 0.5
"""Seconds for which records are collected before a delivery, which takes time from the training loop."""
LOADING = 120.0
"""Seconds for which the end of a run waits until a tracker is loaded on a slow machine, besides the deadline."""
TOLD_FROM = 1.0
"""The seconds from which on the wait for loading is logged."""

logger = logging.getLogger("ignite_hooks")


class Delivery:
    """A queue, a thread that empties it, and a spool for records that cannot be delivered.

    After a failure the thread retries after each of ``retries`` seconds. Then the circuit opens: records go to the
    spool, and the tracker is tried again every ``pause`` seconds. The spool is sent first, so the order is kept.

    Only one process delivers at a time: while ``ignite-hooks send`` does, records wait in the spool, too.
    """

    def __init__(
        self,
        connect: Callable[[], Tracker],
        spool: Spool,
        name: str,
        *,
        turn: Turn | None = None,
        load: Callable[[], None] = lambda: None,
        limit: int = 10_000,
        gathered: float = GATHERED,
        retries: Sequence[float] = (0.5, 2.0),
        pause: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool = spool
        self._connect, self._name, self._load, self._limit = connect, name, load, limit
        self._turn = turn or Turn(spool.path, "run")
        self._was_told_to_wait = False
        self._loaded = threading.Event()
        self._gathered, self._retries, self._pause, self._clock = gathered, retries, pause, clock
        self._queue: deque[TrackerRecord] = deque()
        self._in_hand: list[TrackerRecord] = []
        self._news = threading.Condition()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._tracker: Tracker | None = None
        # What an earlier life of the run has left goes first.
        self._circuit_open = spool.path.exists()
        """Whether the tracker counts as unreachable, so that records go to the spool."""
        self._try_again_at = 0.0
        self._is_unsure = False
        """Whether the last delivery has failed, so that a part of it may have arrived."""
        self._lost = 0
        self._ended: Ending = "finished"
        self._thread = threading.Thread(target=self._work, name=f"ignite_hooks {name}", daemon=True)
        self._thread.start()

    def put(self, record: TrackerRecord) -> None:
        """Queue a record; if the queue is full, the older half goes to the spool."""
        with self._news:
            self._queue.append(record)
            overflow = len(self._queue) > self._limit
            if overflow:
                # The thread hangs. Half of the queue goes at once, so that this is rare.
                older = [self._queue.popleft() for _ in range(self._limit // 2)]
                self._circuit_open = True
            self._news.notify()
        if overflow:
            self._keep(older)

    def waiting(self) -> list[TrackerRecord]:
        """Return what is in memory only: neither sent nor in the spool."""
        with self._news:
            return [*self._in_hand, *self._queue]

    def wait_until_loaded(self, within: float) -> None:
        """Wait until ``load`` is done, but not longer than this many seconds."""
        began = self._clock()
        there = self._loaded.wait(within)
        if (seconds := self._clock() - began) >= TOLD_FROM:
            words = "was loaded in" if there else "is still not loaded after"
            logger.info("%s %s %s, before the first iteration", self._name, words, duration(seconds))

    def close(self, deadline: float, ended: Ending = "finished") -> None:
        """Deliver the remaining records, or put them into the spool."""
        self._ended = ended
        if ended != "finished":
            # Whoever sends the rest later closes the run as it ended.
            self.spool.say(ended=ended)
        self._closing.set()
        with self._news:
            self._news.notify()
        self._loaded.wait(LOADING)
        self._thread.join(deadline)
        if self._thread.is_alive():
            with self._news:
                self._given_up.set()
                left = [*self._in_hand, *self._queue]
                self._in_hand = []
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
            # Before anything is there that waits to be sent.
            with contextlib.suppress(NotOurTurnError):
                self._turn.take()
            self._load_and_deliver()
        finally:
            self._turn.release()

    def _load_and_deliver(self) -> None:
        try:
            self._load()
        except Exception as error:
            # Connecting fails with the same error, and is retried.
            logger.warning("%s: %s: %s", self._name, type(error).__name__, error)
        finally:
            self._loaded.set()
        while not self._given_up.is_set():
            with self._news:
                while not self._queue and not self._closing.is_set():
                    # The spool is retried from time to time even if no new records come.
                    if not self._news.wait(self._pause if self._circuit_open else None):
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

    def _deliver(self, records: list[TrackerRecord]) -> None:
        if self._circuit_open:
            self._keep_in_hand()
            if self._clock() >= self._try_again_at:
                self._empty_spool()
        elif records:
            if not self._sent(records):
                self._circuit_open = True
                self._keep_in_hand()
            elif self._tracker is not None and not self._tracker.vouches:
                self._keep_in_hand(taken=True)

    def _sent(self, records: list[TrackerRecord]) -> bool:
        """Send records, with retries except at the end of a run; return whether that succeeded."""
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

    def _send(self, records: list[TrackerRecord]) -> None:
        if self._tracker is None:
            self._wait_for_turn()
            self._tracker = self._connect()
        tracker = self._tracker
        if self._is_unsure:
            tracker = Continued(tracker, tracker.arrived())
        self._is_unsure = True
        tracker.send(records)
        self._is_unsure = False

    def _wait_for_turn(self) -> None:
        try:
            self._turn.take()
        except NotOurTurnError as error:
            if not self._was_told_to_wait:
                words = "%s: %s; what this run writes meanwhile waits in %s, and is sent after it"
                logger.info(words, self._name, error, self.spool.path)
            self._was_told_to_wait = True
            raise Offline(str(error)) from None

    def _keep_in_hand(self, *, taken: bool = False) -> None:
        with self._news:
            # If `close` has given up, it has taken these records already.
            records, self._in_hand = self._in_hand, []
        if records:
            self._keep(records, taken=taken)

    def _open_circuit(self, error: Exception) -> None:
        self._try_again_at = self._clock() + self._pause
        if not self._circuit_open and not self._given_up.is_set() and not isinstance(error, Offline):
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            logger.warning("%s cannot be reached, records wait in %s: %s", self._name, self.spool.path, words)

    def _empty_spool(self) -> None:
        """Send the records of the spool, oldest first; the circuit closes when it is empty."""
        try:
            while batch := self.spool.next_batch(BATCH):
                self._send(batch)
                if self._given_up.is_set():
                    return
                self.spool.took()
                self._forget_taken()
            self._circuit_open = False
        except Exception as error:
            self._open_circuit(error)
        self._forget_taken()

    def _forget_taken(self) -> None:
        """Let the spool forget what the tracker has taken, if that is safe there."""
        try:
            if self._tracker is None or self._tracker.vouches:
                self.spool.forget_taken()
        except OSError as error:
            logger.warning("%s: %s", self._name, error)

    def _end(self) -> None:
        if self._circuit_open:
            self._empty_spool()
        if self._tracker is None:
            return
        try:
            arrived = self._tracker.close(self._ended)
        except Exception as error:
            arrived = False
            logger.warning("%s could not be closed: %s", self._name, f"{type(error).__name__}: {error}")
        if not self._tracker.vouches and arrived and not self._circuit_open and not self._given_up.is_set():
            self.spool.forget_taken()

    def _keep(self, records: list[TrackerRecord], *, taken: bool = False) -> None:
        """Put records into the spool; if the disk is full, they are lost."""
        try:
            self.spool.append(records, taken=taken)
        except OSError as error:
            if not self._lost:
                logger.warning("%s: records are lost: %s", self._name, error)
            self._lost += len(records)
