"""The heartbeats of the ranks: what they exchange through a store, a few requests per rank however many there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

PERIOD = 0.2
"""The least number of seconds between two rounds of a rank."""

ROUNDS_PER_SECOND = 1250
"""The rounds of all ranks together that a store answers in a second, at a few percent of a core."""

SLOWEST_BEAT = 2.0
BEATS_IN_LIMIT = 8
"""The heartbeats in the time after which a rank counts as hanging."""

NEWS = "news"
"""The key of what all ranks have to know: a line for each rank that has failed or hangs."""

MOST_NEWS = 32
"""How many lines are written: where many ranks fail, the first ones say why."""

ANSWER = 1.0
"""Seconds in which a rank answers a roll call; three periods, if those are longer."""

LEFT, SILENT, CALL, MISSING = "left", "silent", "call", "missing"


class Heartbeats:
    """The heartbeats of one rank. In a round it sends its own, if due, and gets the news, in two requests at most.

    Only rank 0 gets the heartbeats of all the others, in one request, and reports who is silent. Of a rank that has
    left the run without an error, the others learn where they ask for it.

    A rank that has lost a connection calls the roll: the next heartbeat of every rank, at once, answers. Rank 0 reports
    those who do not.

    Args:
        store: The ``TCPStore`` of rank 0.
        rank: The number of this rank.
        size: The number of ranks.
        limit: The seconds without a heartbeat after which a rank counts as hanging.
        now: Returns the time in seconds.
    """

    def __init__(
        self, store: Any, rank: int, size: int, limit: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._rank, self._size, self._now = store, rank, size, now
        self.period = max(PERIOD, size / ROUNDS_PER_SECOND)
        self._rounds_per_beat = max(1, int(min(SLOWEST_BEAT, limit / BEATS_IN_LIMIT) / self.period))
        self.rounds = 0
        """The number of rounds that the store has answered."""
        self.beats: dict[int, str] = {}
        """The last heartbeat of each rank that was asked for; on rank 0 of all of them."""
        self.messages: dict[int, str] = {}
        """The last messages of ranks that have left: empty if without an error."""
        self.silent: dict[int, str] = {}
        """The ranks that rank 0 says are silent, with the seconds."""
        self.missing: set[int] = set()
        """The ranks that have not answered a roll call."""
        self.calls = 0
        """How many roll calls there were."""
        self._answers_until: float | None = None
        self._wants_call = self._has_left = False

    @staticmethod
    def prepare(store: Any, size: int) -> None:
        """Prepare a new store: getting a key that does not exist would wait for it."""
        store.multi_set([NEWS, *map(_key, range(size))], ["\n", *["0"] * size])

    @property
    def patience(self) -> float:
        """The seconds after which a rank that has called the roll knows who is missing."""
        return max(ANSWER, 3 * self.period) + 3 * self.period

    def call_the_roll(self) -> None:
        """Ask in the next round who is still there, unless somebody has asked."""
        self._wants_call = True

    def round(self, asked: Iterable[int] = ()) -> None:
        """Send a heartbeat and get the news, and the last words of some ranks."""
        is_due = self.rounds % self._rounds_per_beat == 0 and not self._has_left
        if is_due:
            self._beat()
        gets_all = not self._rank and (is_due or self._answers_until is not None)
        wanted: list[int] = list(range(1, self._size)) if gets_all else [0, *asked]
        news, *beats = self._store.multi_get([NEWS, *map(_key, wanted)])
        for number, beat in zip(wanted, beats, strict=True):
            self._receive(number, beat)
        calls = 0
        for line in _text(news).splitlines():
            word, _, rest = line.partition(" ")
            number_, _, text = rest.partition(" ")
            calls += word == CALL
            if number_.isdecimal() and word == MISSING:
                self.missing.add(int(number_))
            elif number_.isdecimal() and word in (LEFT, SILENT):
                (self.messages if word == LEFT else self.silent)[int(number_)] = text
        if self._wants_call and not calls:
            self._store.append(NEWS, f"{CALL} {self._rank}\n")
        self._wants_call = False
        if calls > self.calls:
            self.calls = calls
            self._beat()
            if not self._rank:
                self._answers_until = self._now() + max(ANSWER, 3 * self.period)
        elif self._answers_until is not None:
            self._take_answers(self._answers_until)
        self.rounds += 1

    def _beat(self) -> None:
        self._store.set(_key(self._rank), f"{self.rounds + 1} {self.calls}" if self.calls else f"{self.rounds + 1}")

    def _take_answers(self, until: float) -> None:
        """Report the ranks that have not answered in time, if this is rank 0."""
        silent = [
            number
            for number in range(1, self._size)
            if number not in self.messages and _answered(self.beats.get(number, "")) < self.calls
        ]
        if not silent or self._now() >= until:
            self._answers_until = None
            for number in silent[:MOST_NEWS]:
                self._report(f"{MISSING} {number}")
                self.missing.add(number)

    def report_silent(self, number: int, seconds: float) -> None:
        """Tell all ranks that one of them is silent."""
        self._report(f"{SILENT} {number} {seconds:.0f}")

    def leave(self, message: str) -> None:
        """Leave the run: with a message if by an error, which all ranks learn; no more heartbeats are sent."""
        self._has_left = True
        line = " ".join(message.split())[:300]
        self._store.set(_key(self._rank), f"{LEFT} {line}")
        # Rank 0 takes the store along, so nobody could ask for its last words later.
        if line or not self._rank:
            self._report(f"{LEFT} {self._rank} {line}")

    def _report(self, line: str) -> None:
        if len(self.messages) + len(self.silent) + len(self.missing) < MOST_NEWS:
            self._store.append(NEWS, f"{line}\n")

    def _receive(self, number: int, beat: bytes) -> None:
        text = _text(beat)
        if text.startswith(LEFT):
            self.messages.setdefault(number, text.removeprefix(LEFT).strip())
        else:
            self.beats[number] = text


def _key(number: int) -> str:
    return f"rank/{number}"


def _answered(beat: str) -> int:
    """Return the number of the last roll call that a heartbeat answers."""
    number = beat.partition(" ")[2]
    return int(number) if number.isdecimal() else 0


def _text(message: bytes) -> str:
    """Return what another process has written, which is only shown."""
    return message.decode("utf-8", "replace")
