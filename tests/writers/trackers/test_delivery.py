"""Delivery: order, failures, full queues, ends. Events stand where a clock would: nothing here sleeps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.writers.convert import binned, plain
from ignite_hooks.writers.trackers import probe
from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.probe import answers
from ignite_hooks.writers.trackers.spool import Record, Spool
from ignite_hooks.writers.trackers.tracker import Refused, Tracker
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter
from tests.writers.trackers.servers import FAULTS, faulty, unreachable

SOON = 30.0
"""Seconds after which something that should happen has not."""


class Place(Tracker):
    """Remembers what arrives; can be down, and can hang."""

    def __init__(self) -> None:
        self.arrived: list[Record] = []
        self.down = False
        self.asked = threading.Semaphore(0)
        self.answer = threading.Event()
        self.answer.set()
        self.connected = 0
        self.closed: list[bool] = []

    def connect(self) -> Place:
        self.connected += 1
        return self

    def send(self, records: Sequence[Record]) -> None:
        self.asked.release()
        self.answer.wait()
        if self.down:
            raise ConnectionError("the line is dead")
        super().send(records)

    def scalars(self, record: Record) -> None:
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
        delivery.put(Record("scalars", step, float(step), {"loss": 1.0}))


def test_everything_arrives_in_order(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver()
    put(delivery, *range(1, 2001))
    delivery.close(SOON, failed=True)
    assert [step for step in range(1, 2001) if step != 13] == place.steps
    assert place.connected == 1
    assert place.closed == [True]
    assert not delivery.spool.path.exists()


def test_what_is_refused_is_told_and_costs_nothing_else(
    place: Place, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    delivery = deliver()
    put(delivery, 12, 13, 14)
    delivery.close(SOON)
    assert place.steps == [12, 14]
    assert caplog.messages == ["the tracker does not take the scalars of step 13: 13 is not a step"]


@pytest.mark.parametrize("error", [ValueError("no such key"), TypeError("no such key"), LookupError("no such key")])
def test_a_record_of_which_the_client_can_make_nothing_blocks_no_other(
    error: Exception, place: Place, deliver: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    def text(record: Record) -> None:
        raise error

    place.text = text  # type: ignore[method-assign]
    delivery = deliver()
    delivery.put(Record("text", 1, 1.0, {}))
    put(delivery, 2)
    delivery.close(SOON)
    assert place.steps == [2]
    assert caplog.messages == ["the tracker does not take the text of step 1: no such key"]


def test_an_answer_that_makes_no_sense_is_no_mistake_of_a_record(place: Place) -> None:
    class NotJSON(ValueError, OSError):
        """As `requests.exceptions.JSONDecodeError` is."""

    def text(record: Record) -> None:
        raise NotJSON

    place.text = text  # type: ignore[method-assign]
    with pytest.raises(NotJSON):
        place.send([Record("text", 1, 1.0, {})])


def test_a_failure_is_tried_again(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver(retries=(0.0, 0.0, 0.0))
    place.down = True
    place.answer.clear()
    put(delivery, 1)
    place.asked.acquire()
    place.down = False
    place.answer.set()
    delivery.close(SOON)
    assert place.steps == [1]


def test_what_cannot_be_delivered_is_in_the_spool(
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


def test_after_an_outage_the_order_is_kept(place: Place, deliver: Callable[..., Delivery]) -> None:
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


def test_the_end_does_not_wait_for_what_hangs(
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


def test_a_full_queue_goes_to_the_spool_and_arrives_later_in_order(
    place: Place, deliver: Callable[..., Delivery]
) -> None:
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


def test_a_tracker_that_does_not_vouch_has_a_copy_until_the_end(place: Place, deliver: Callable[..., Delivery]) -> None:
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


def test_a_spool_that_cannot_be_written_costs_records_only(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    place.down = True
    delivery = Delivery(place.connect, Spool(tmp_path / "file" / "a.spool"), "A", retries=())
    put(delivery, 1, 2)
    delivery.close(SOON)
    assert any(message.startswith("A: 2 records are lost, as") for message in caplog.messages)


# -- the writer ---------------------------------------------------------------------------------------------------


class ToPlace(TrackerWriter):
    def __init__(self, place: Any, work_dir: Path, **settings: Any) -> None:
        super().__init__("place", settings.pop("mode", "auto"), work_dir, SOON, **settings)
        self.place = place

    def connect(self) -> Tracker:
        self.run_id = self.run_id or "run 1"
        return self.place  # type: ignore[no-any-return]


class Everything(Tracker):
    def __init__(self) -> None:
        self.records: list[Record] = []

    def send(self, records: Sequence[Record]) -> None:
        self.records += records


def test_every_kind_of_thing_becomes_a_record(tmp_path: Path) -> None:
    place = Everything()
    writer = ToPlace(place, tmp_path)
    picture = numpy.ones((2, 3, 3))
    writer.write_scalar("lr", 0.1, 1)
    writer.write_scalars({"loss": torch.tensor(0.5), "text": "no number"}, 2, kind="val")
    writer.write_image("cat", picture, 3)
    writer.write_histogram("weights", torch.tensor([0.0, 1.0, torch.nan]), 4)
    writer.write_text("note", "hello", 5)
    writer.write_config({"seed": 1})
    writer.write_artifact(tmp_path / "best.pth", kind="model")
    picture[:] = 0
    writer.close()
    seen = [(record.what, record.step) for record in place.records]
    assert seen == [
        ("scalars", 1),
        ("scalars", 2),
        ("image", 3),
        ("histogram", 4),
        ("text", 5),
        ("config", 0),
        ("artifact", 0),
    ]
    contents = [record.content for record in place.records]
    assert contents[:2] == [{"lr": 0.1}, {"val/loss": 0.5}]
    assert (contents[2]["image"] == 255).all(), "what is drawn later does not change it"
    assert sum(contents[3]["counts"]) == 2
    assert contents[6] == {"path": str(tmp_path / "best.pth"), "name": "best.pth", "kind": "model"}
    times = [record.time for record in place.records]
    assert times == sorted(times)


def test_a_disabled_writer_does_nothing(tmp_path: Path) -> None:
    writer = ToPlace(None, tmp_path, mode="disabled")
    writer.write_scalar("lr", 0.1, 1)
    writer.close()
    assert threading.active_count() == threading.active_count()
    assert list(tmp_path.iterdir()) == []


def test_a_mode_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^mode: auto, online, offline or disabled is needed, not False$"):
        ToPlace(None, tmp_path, mode=False)


def test_what_waits_for_an_earlier_run_stays_apart(tmp_path: Path) -> None:
    class Down(Tracker):
        def send(self, records: Sequence[Record]) -> None:
            raise ConnectionError

    writer = ToPlace(Down(), tmp_path)
    writer.write_scalar("loss", 1.0, 1)
    writer.close()
    writer.write_scalar("loss", 1.0, 2)
    writer.close()
    writer.resumed(1)
    writer.write_scalar("loss", 1.0, 2)
    writer.close()
    found = {path.name: [record.step for record in Spool(path)] for path in sorted(tmp_path.iterdir())}
    assert found == {"place-2.spool": [2], "place.spool": [1, 2]}
    header = Spool(tmp_path / "place.spool").read_header()
    assert header == {"writer": "ToPlace", "settings": {}, "run": "run 1", "folder": str(tmp_path)}


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = threading.active_count()
    for _ in range(20):
        writer = ToPlace(Everything(), tmp_path)
        writer.write_scalar("loss", 1.0, 1)
        writer.close()
        writer.close()
    assert threading.active_count() == before


# -- asking a server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", list(FAULTS))
def test_a_server_with_a_fault_does_not_answer(how: str) -> None:
    with faulty(how) as url:
        # For all bytes together: the slow one sends the next in time, and would have said 200 in the end.
        assert not answers(url, patience=1.0)


def test_where_nobody_listens_nobody_answers() -> None:
    assert not answers(unreachable())
    assert not answers("no address at all")
    assert not answers("http://")


def test_a_histogram_counts_what_is_finite() -> None:
    counts, edges = binned(torch.tensor([0.0, 0.0, 1.0, torch.inf]), bins=2)
    assert (counts, edges) == ([2, 1], [0.0, 0.5, 1.0])
    assert sum(binned(torch.tensor([torch.nan]))[0]) == 0


def test_the_line_about_being_offline_says_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ToPlace(None, tmp_path).offline_because("http://x does not answer", tmp_path)
    assert caplog.messages == [
        f"ToPlace: http://x does not answer, so it works offline, in {tmp_path}; "
        f"'ignite-hooks send {tmp_path}' sends it later"
    ]
    assert probe.PATIENCE == 2.0


def test_a_configuration_holds_nothing_but_names_numbers_and_texts(tmp_path: Path) -> None:
    """W&B takes neither an object nor a number as a name, and would have no configuration at all."""
    assert plain({"net": {"path": tmp_path, 3: (1, None)}, "lr": 0.1, "on": True, "device": torch.device("cpu")}) == {
        "net": {"path": str(tmp_path), "3": [1, None]},
        "lr": 0.1,
        "on": True,
        "device": "cpu",
    }
