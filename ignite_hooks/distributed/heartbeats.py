"""The heartbeats of the ranks: what they exchange through a store, a few requests per rank however many there are."""

from __future__ import annotations

from collections.abc import Iterable
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

LEFT, SILENT = "left", "silent"


class Heartbeats:
    """The heartbeats of one rank. In a round it sends its own, if due, and gets the news, in two requests at most.

    Only rank 0 gets the heartbeats of all the others, in one request, and reports who is silent. Of a rank that has
    left the run without an error, the others learn where they ask for it.

    Args:
        store: The ``TCPStore`` of rank 0.
        rank: The number of this rank.
        size: The number of ranks.
        limit: The seconds without a heartbeat after which a rank counts as hanging.
    """

    def __init__(self, store: Any, rank: int, size: int, limit: float) -> None:
        self._store, self._rank, self._size = store, rank, size
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

    @staticmethod
    def prepare(store: Any, size: int) -> None:
        """Prepare a new store: getting a key that does not exist would wait for it."""
        store.multi_set([NEWS, *map(_key, range(size))], ["\n", *["0"] * size])

    def round(self, asked: Iterable[int] = ()) -> None:
        """Send a heartbeat and get the news, and the last words of some ranks."""
        if self.rounds % self._rounds_per_beat == 0:
            self._store.set(_key(self._rank), str(self.rounds + 1))
            wanted: list[int] = [0, *asked] if self._rank else list(range(1, self._size))
        else:
            wanted = [0, *asked]
        news, *beats = self._store.multi_get([NEWS, *map(_key, wanted)])
        for number, beat in zip(wanted, beats, strict=True):
            self._receive(number, beat)
        for line in _text(news).splitlines():
            word, _, rest = line.partition(" ")
            number_, _, text = rest.partition(" ")
            if number_.isdecimal():
                (self.messages if word == LEFT else self.silent)[int(number_)] = text
        self.rounds += 1

    def report_silent(self, number: int, seconds: float) -> None:
        """Tell all ranks that one of them is silent."""
        self._report(f"{SILENT} {number} {seconds:.0f}")

    def leave(self, message: str) -> None:
        """Leave the run: with a message if by an error, which all ranks learn."""
        line = " ".join(message.split())[:300]
        self._store.set(_key(self._rank), f"{LEFT} {line}")
        # Rank 0 takes the store along, so nobody could ask for its last words later.
        if line or not self._rank:
            self._report(f"{LEFT} {self._rank} {line}")

    def _report(self, line: str) -> None:
        if len(self.messages) + len(self.silent) < MOST_NEWS:
            self._store.append(NEWS, f"{line}\n")

    def _receive(self, number: int, beat: bytes) -> None:
        text = _text(beat)
        if text.startswith(LEFT):
            self.messages.setdefault(number, text.removeprefix(LEFT).strip())
        else:
            self.beats[number] = text


def _key(number: int) -> str:
    return f"rank/{number}"


def _text(message: bytes) -> str:
    """Return what another process has written, which is only shown."""
    return message.decode("utf-8", "replace")
