"""`heartbeats.py`: a few requests per rank, however many ranks there are, over a real store on loopback."""

from __future__ import annotations

import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ignite_hooks.distributed.heartbeats import MOST_NEWS, Heartbeats

LIMIT = 30.0


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self.store, self.requests, self.keys = store, 0, 0

    def set(self, key: str, value: str) -> None:
        self.requests, self.keys = self.requests + 1, self.keys + 1
        self.store.set(key, value)

    def append(self, key: str, value: str) -> None:
        self.requests, self.keys = self.requests + 1, self.keys + 1
        self.store.append(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.requests, self.keys = self.requests + 1, self.keys + len(keys)
        return list(self.store.multi_get(keys))


def ranks_on(server: Any, size: int, limit: float = LIMIT) -> list[Heartbeats]:
    Heartbeats.prepare(server, size)
    return [Heartbeats(Counting(server), number, size, limit) for number in range(size)]


@pytest.fixture
def server() -> Any:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def counts(rank: Heartbeats) -> tuple[int, int]:
    return rank._store.requests, rank._store.keys


@pytest.mark.parametrize("size", [2, 64, 1024])
def test_a_rank_asks_as_much_however_many_ranks_there_are(size: int, server: Any) -> None:
    ranks = ranks_on(server, size)[:2]
    for _ in range(20):
        for rank in ranks:
            rank.round()
    beats = sum(number % ranks[1]._rounds_per_beat == 0 for number in range(20))
    assert counts(ranks[1]) == (20 + beats, 40 + beats)
    assert counts(ranks[0])[0] == 20 + beats, "rank 0 gets all heartbeats in one request"


def test_rank_0_sees_who_beats_and_who_does_not(server: Any) -> None:
    first, second, _ = ranks_on(server, 3, limit=0.1)
    second.round()
    first.round()
    assert first.beats == {1: "1", 2: "0"}
    second.round()
    first.round()
    assert first.beats == {1: "2", 2: "0"}
    assert second.beats[0] == "1"


def test_all_ranks_hear_of_a_silent_one_and_of_an_error(server: Any) -> None:
    ranks = ranks_on(server, 4)
    ranks[0].report_silent(2, 31.2)
    ranks[1].leave("ValueError: a\nnewline")
    ranks[3].round()
    assert ranks[3].silent == {2: "31"}
    assert ranks[3].messages == {1: "ValueError: a newline"}


def test_who_left_well_is_known_to_those_who_ask_and_rank_0_to_all(server: Any) -> None:
    ranks = ranks_on(server, 4)
    ranks[2].leave("")
    ranks[3].round()
    assert ranks[3].messages == {}
    ranks[3].round([2])
    assert ranks[3].messages == {2: ""}
    ranks[0].leave("")
    ranks[1].round()
    assert ranks[1].messages == {0: ""}


def test_news_stay_short_where_all_ranks_fail(server: Any) -> None:
    ranks = ranks_on(server, 100)
    for rank in ranks:
        rank.round()
        rank.leave("RuntimeError: gloo")
    ranks[0].round()
    assert len(server.get("news").splitlines()) <= MOST_NEWS + 1


def test_a_roll_call_names_the_rank_that_does_not_answer_to_all(server: Any) -> None:
    clock = [0.0]
    Heartbeats.prepare(server, 4)
    first, second, third, dead = [Heartbeats(server, number, 4, LIMIT, lambda: clock[0]) for number in range(4)]
    for rank in (first, second, third, dead):
        rank.round()
    second.call_the_roll()
    second.round()
    # It is answered at once, although no heartbeat is due.
    assert second.rounds % second._rounds_per_beat
    for rank in (first, third, second, first):
        rank.round()
    assert first.missing == set(), "there is time to answer"
    clock[0] = first.patience
    for rank in (first, second, third):
        rank.round()
    assert [rank.missing for rank in (first, second, third)] == [{3}] * 3


@pytest.mark.parametrize("gone", [True, False], ids=["left", "alive"])
def test_nobody_is_missing_where_all_answer_or_have_left(gone: bool, server: Any) -> None:
    clock = [0.0]
    Heartbeats.prepare(server, 3)
    ranks = [Heartbeats(server, number, 3, LIMIT, lambda: clock[0]) for number in range(3)]
    ranks[1].call_the_roll()
    for rank in (*ranks, *ranks):
        rank.round()
    if gone:
        ranks[2].leave("ValueError: mine")
    clock[0] = 60.0
    for rank in ranks[:2]:
        rank.round()
    assert [rank.missing for rank in ranks] == [set()] * 3


def cores_of_server(size: int, seconds: float) -> float:
    """Return the share of a core that the process of the store needs for this many ranks, beating in time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        Heartbeats.prepare(store, size)
        os.write(write, f"{store.port:>6}".encode())
        time.sleep(600)
        os._exit(0)
    try:
        port = int(os.read(read, 6))
        # Each connection waits a moment for the server.
        with ThreadPoolExecutor(128) as pool:
            clients = list(pool.map(lambda _: TCPStore("127.0.0.1", port, is_master=False), range(size)))
        ranks = [Heartbeats(client, number, size, LIMIT) for number, client in enumerate(clients)]
        for number, rank in enumerate(ranks):
            rank.rounds = number % rank._rounds_per_beat  # ranks do not beat all at once
        rounds = max(2, round(seconds / ranks[0].period))
        for rank in ranks:
            rank.round()
        before = sum(psutil.Process(child).cpu_times()[:2])
        for _ in range(rounds):
            for rank in ranks:
                rank.round()
        used = sum(psutil.Process(child).cpu_times()[:2]) - before
        assert all(rank.rounds >= rounds for rank in ranks)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return used / (rounds * ranks[0].period)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.skipif(not os.environ.get("IGNITE_HOOKS_LONG"), reason="1024 connections take minutes: make faults")
def test_the_store_of_1024_ranks_needs_less_than_a_twentieth_of_a_core() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    try:
        share = cores_of_server(1024, 20.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(f"the store of 1024 ranks: {100 * share:.2f} % of a core", file=sys.stderr)
    assert share < 0.05
