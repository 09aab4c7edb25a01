"""The interface of a tracker: which errors are about one record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import KINDS, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Offline, Tracker, Unreachable
from tests.writers.trackers.places import SOON, Place, put


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


def test_only_three_refusals_are_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.name = "the place"
    place.send([TrackerRecord("scalars", 13, 1.0, {})] * 5)
    assert place.refused == 5
    assert caplog.messages == ["the place does not take the scalars of step 13: 13 is not a step"] * 3


@pytest.mark.parametrize("error", [Unreachable, Offline, RuntimeError])
def test_errors_of_the_connection_end_a_delivery(error: type[Exception]) -> None:
    class Down(Tracker):
        sent = 0

        def text(self, record: TrackerRecord) -> None:
            self.sent += 1
            raise error("no answer")

    tracker = Down()
    with pytest.raises(error, match="no answer"):
        tracker.send([TrackerRecord("text", step, 1.0, {}) for step in (1, 2)])
    assert (tracker.sent, tracker.refused) == (1, 0)


def test_a_tracker_has_a_method_for_every_record() -> None:
    Tracker().send([TrackerRecord(kind, 1, 1.0, {}) for kind in sorted(KINDS)])
    assert Tracker.refused == 0
    assert Tracker().close()
