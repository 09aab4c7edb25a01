"""Delivery: order, failures, full queues, ends. Events take the place of a clock: nothing here sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from tests.writers.trackers.places import SOON, Place, put


def test_everything_arrives_in_order(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver()
    put(delivery, *range(1, 2001))
    delivery.close(SOON, ended="failed")
    assert [step for step in range(1, 2001) if step != 13] == place.steps
    assert place.connected == 1
    assert place.closed == ["failed"]
    assert not delivery.spool.path.exists()


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


def test_what_has_arrived_before_a_failure_is_not_sent_again(
    place: Place, deliver: Callable[..., Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes two of three numbers, and dies; then it is asked what it has."""
    taken, failures = place.scalars, [ConnectionError("the line is dead")]

    def scalars(record: TrackerRecord) -> None:
        if record.step == 3 and failures:
            raise failures.pop()
        taken(record)

    monkeypatch.setattr(place, "scalars", scalars)
    monkeypatch.setattr(place, "arrived", lambda: Delivered.of(place.arrived_so_far))
    delivery = deliver()
    place.answer.clear()
    put(delivery, 1)
    place.asked.acquire()
    put(delivery, 2, 3, 4)
    place.answer.set()
    delivery.close(SOON)
    assert place.steps == [1, 2, 3, 4]
    assert not failures
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


def test_the_start_waits_until_a_tracker_is_loaded(
    deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    go_on, loaded = threading.Event(), threading.Event()

    def load() -> None:
        assert go_on.wait(SOON)
        loaded.set()

    delivery = deliver(load=load)
    delivery.wait_until_loaded(0.0)
    assert not loaded.is_set(), "a sick disk does not stop the training"
    go_on.set()
    delivery.wait_until_loaded(SOON)
    assert loaded.is_set()
    delivery.close(SOON)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("is_loaded", "said"),
    [
        (True, "A was loaded in 2.0 s, before the first iteration"),
        (False, "A is still not loaded after 2.0 s, before the first iteration"),
    ],
)
def test_a_long_wait_for_loading_is_logged(
    is_loaded: bool, said: str, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    times, go_on = iter((5.0, 7.0)), threading.Event()
    delivery = deliver(load=lambda: None if is_loaded else go_on.wait(SOON) and None, clock=lambda: next(times, 9.0))
    delivery.wait_until_loaded(SOON if is_loaded else 0.0)
    go_on.set()
    delivery.close(SOON)
    assert caplog.messages == [said]
