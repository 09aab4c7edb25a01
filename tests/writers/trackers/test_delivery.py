"""Delivery: order, failures, full queues, ends. Events take the place of a clock: nothing here sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Refused, Tracker

SOON = 30.0
"""Seconds after which something that should happen has failed."""


class Place(Tracker):
    """Keeps the records that arrive; can be down, and can hang."""

    def __init__(self) -> None:
        self.arrived: list[TrackerRecord] = []
        self.down = False
        self.asked = threading.Semaphore(0)
        self.answer = threading.Event()
        self.answer.set()
        self.connected = 0
        self.closed: list[bool] = []

    def connect(self) -> Place:
        self.connected += 1
        return self

    def send(self, records: Sequence[TrackerRecord]) -> None:
        self.asked.release()
        self.answer.wait()
        if self.down:
            raise ConnectionError("the line is dead")
        super().send(records)

    def scalars(self, record: TrackerRecord) -> None:
        if record.step == 13:
            raise Refused("13 is not a step")
        self.arrived.append(record)

    def close(self, failed: bool) -> bool:
        self.closed.append(failed)
        return not self.down

    @property
    def steps(self) -> list[int]:
        return [record.step for record in self.arrived]


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def deliver(place: Place, tmp_path: Path) -> Callable[..., Delivery]:
    def make(**settings: Any) -> Delivery:
        spool = Spool(tmp_path / "a.spool", {"writer": "A"})
        return Delivery(place.connect, spool, "A", **{"retries": (), "pause": 0.0, **settings})

    return make


def put(delivery: Delivery, *steps: int) -> None:
    for step in steps:
        delivery.put(TrackerRecord("scalars", step, float(step), {"loss": 1.0}))


def test_everything_arrives_in_order(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver()
    put(delivery, *range(1, 2001))
    delivery.close(SOON, failed=True)
    assert [step for step in range(1, 2001) if step != 13] == place.steps
    assert place.connected == 1
    assert place.closed == [True]
    assert not delivery.spool.path.exists()


def test_a_refused_record_is_logged_and_skipped(
    place: Place, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    delivery = deliver()
    put(delivery, 12, 13, 14)
    delivery.close(SOON)
    assert place.steps == [12, 14]
    assert caplog.messages == ["the tracker does not take the scalars of step 13: 13 is not a step"]


@pytest.mark.parametrize("error", [ValueError("no such key"), TypeError("no such key"), LookupError("no such key")])
def test_a_record_that_the_client_rejects_blocks_no_other(
    error: Exception, place: Place, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    def text(record: TrackerRecord) -> None:
        raise error

    place.text = text  # type: ignore[method-assign]
    delivery = deliver()
    delivery.put(TrackerRecord("text", 1, 1.0, {}))
    put(delivery, 2)
    delivery.close(SOON)
    assert place.steps == [2]
    assert caplog.messages == ["the tracker does not take the text of step 1: no such key"]


def test_an_invalid_answer_is_no_mistake_of_a_record(place: Place) -> None:
    class NotJSON(ValueError, OSError):
        """Has the parents of `requests.exceptions.JSONDecodeError`."""

    def text(record: TrackerRecord) -> None:
        raise NotJSON

    place.text = text  # type: ignore[method-assign]
    with pytest.raises(NotJSON):
        place.send([TrackerRecord("text", 1, 1.0, {})])


def test_a_failed_delivery_is_retried(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver(retries=(0.0, 0.0, 0.0))
    place.down = True
    place.answer.clear()
    put(delivery, 1)
    place.asked.acquire()
    place.down = False
    place.answer.set()
    delivery.close(SOON)
    assert place.steps == [1]


def test_undelivered_records_are_in_the_spool(
    place: Place, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    place.down = True
    delivery = deliver()
    put(delivery, *range(1, 101))
    delivery.close(SOON)
    assert place.steps == []
    assert [record.step for record in delivery.spool] == list(range(1, 101))
    first, last = caplog.messages
    assert first.startswith("A cannot be reached, records wait in ")
    assert first.endswith(": ConnectionError: the line is dead")
    assert last.startswith("A: 100 records are not known to have arrived and lie in ")


def test_an_outage_keeps_the_order_of_records(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver()
    put(delivery, 1)
    place.asked.acquire()
    place.down = True
    put(delivery, 2, 3)
    place.asked.acquire()
    put(delivery, 4)
    place.asked.acquire()
    place.down = False
    put(delivery, 5)
    delivery.close(SOON)
    assert place.steps == [1, 2, 3, 4, 5]
    assert not delivery.spool.path.exists()


def test_close_does_not_wait_for_a_hanging_tracker(
    place: Place, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    delivery = deliver()
    place.answer.clear()
    put(delivery, 1)
    place.asked.acquire()
    put(delivery, 2, 3)
    delivery.close(0.01)
    assert [record.step for record in delivery.spool] == [1, 2, 3]
    assert "A: no answer for 0 s, not waited for any longer" in caplog.messages
    place.answer.set()
    delivery._thread.join(SOON)
    assert not delivery._thread.is_alive()
    assert [record.step for record in delivery.spool] == [1, 2, 3], "what came after all does not touch the file"


def test_records_of_a_full_queue_arrive_later_in_order(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver(limit=10)
    place.answer.clear()
    put(delivery, 1)
    place.asked.acquire()
    put(delivery, *range(20, 60))
    assert len(delivery._queue) <= 10
    assert len(delivery.spool) >= 30
    place.answer.set()
    delivery.close(SOON)
    assert place.steps == [1, *range(20, 60)]


def test_copies_are_kept_until_a_tracker_is_closed(place: Place, deliver: Callable[..., Delivery]) -> None:
    place.vouches = False
    delivery = deliver()
    put(delivery, 1, 2, 3)
    delivery.close(SOON)
    assert not delivery.spool.path.exists()
    second = deliver()
    put(second, 4)
    place.asked.acquire()
    place.down = True
    put(second, 5)
    second.close(SOON)
    assert [record.step for record in second.spool] == [4, 5]


def test_an_unwritable_spool_costs_records_only(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    place.down = True
    delivery = Delivery(place.connect, Spool(tmp_path / "file" / "a.spool"), "A", retries=())
    put(delivery, 1, 2)
    delivery.close(SOON)
    assert any(message.startswith("A: 2 records are lost, as") for message in caplog.messages)
