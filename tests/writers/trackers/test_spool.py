from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest

from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord, _row, suffix_of


def scalar(step: int) -> TrackerRecord:
    return TrackerRecord("scalars", step, 1.5, {"loss": 1 / step, "val/loss": math.inf})


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "runs" / "a.spool", {"writer": "A"})


@pytest.mark.parametrize(
    "record",
    [
        scalar(3),
        TrackerRecord("text", 1, 2.5, {"name": "note", "text": "line\nline \ud800 文"}),
        TrackerRecord("histogram", 1, 2.5, {"name": "w", "counts": [1, 2], "edges": [0.0, 0.5, 1.0]}),
        TrackerRecord("config", 0, 2.5, {"hooks": [{"type": "A"}], "seed": 1}),
    ],
    ids=lambda record: record.what,
)
def test_a_record_comes_back_as_it_was(record: TrackerRecord, spool: Spool) -> None:
    spool.append([record])
    [again] = Spool(spool.path)
    assert again == record or again.what == "text"
    assert again.content.keys() == record.content.keys()


def test_a_picture_comes_back_to_the_byte(spool: Spool) -> None:
    picture = numpy.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=numpy.uint8)
    spool.append([TrackerRecord("image", 1, 2.5, {"name": "cat", "image": picture})])
    [again] = spool
    assert (again.content["image"] == picture).all()


def test_the_file_exists_while_records_wait(spool: Spool) -> None:
    assert not spool.path.exists()
    spool.append([scalar(1)])
    assert spool.path.exists()
    assert len(spool.next_batch()) == 1
    spool.took()
    assert spool.next_batch() == []
    assert spool.forget_taken()
    assert not spool.path.exists()


def take(spool: Spool, size: int) -> list[int]:
    """Take the next batch as a tracker does, and return its steps."""
    steps = [record.step for record in spool.next_batch(size)]
    spool.took()
    return steps


def test_records_delivered_before_a_failure_are_not_kept(spool: Spool) -> None:
    spool.append([scalar(step) for step in range(1, 8)])
    assert take(spool, 3) == [1, 2, 3]
    assert [record.step for record in spool.next_batch(3)] == [4, 5, 6]
    spool.append([scalar(8)])
    assert not spool.forget_taken()
    again = Spool(spool.path)
    assert [record.step for record in again] == [4, 5, 6, 7, 8]
    assert len(again) == 5
    assert take(again, 10) == [4, 5, 6, 7, 8]
    assert again.forget_taken()


def test_what_was_taken_and_may_not_have_arrived_is_sent_again_by_the_next_process(spool: Spool) -> None:
    spool.append([scalar(1), scalar(2)])
    assert take(spool, 1) == [1]
    spool.append([scalar(3)], taken=True)
    assert take(spool, 10) == [2, 3], "2 was not taken, so 3 is not behind it"
    spool.append([scalar(4)], taken=True)
    spool.append([scalar(5)])
    assert take(spool, 10) == [5]
    assert take(Spool(spool.path), 10) == [1, 2, 3, 4, 5]
    assert len(spool) == 5


def test_a_batch_ends_where_pictures_take_much_room(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ignite_hooks.writers.trackers.spool.MOST_BYTES", 1000)
    spool.append([TrackerRecord("text", step, 1.5, {"name": "note", "text": "a" * 400}) for step in range(1, 6)])
    assert [take(spool, 500), take(spool, 500)] == [[1, 2, 3], [4, 5]]


def test_a_file_is_read_once(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.append([scalar(step) for step in range(1, 1001)])
    assert len(spool) == 1000
    parsed: list[bytes] = []
    monkeypatch.setattr("ignite_hooks.writers.trackers.spool._row", lambda line: parsed.append(line) or _row(line))
    for _ in range(3):
        assert len(spool) == 1000
        assert spool.read_header() == {"writer": "A"}
        assert len(spool.next_batch(10)) == 10
    assert len(parsed) == 33, "the header and ten records each time"


OLD = """{"writer": "A", "settings": {}}
{"what": "scalars", "step": 1, "time": 1.5, "content": {"loss": 0.5}}
{"run": "7"}
{"what": "text", "step": 2, "time": 1.5, "content": {"name": "note", "text": "one twothree"}}
{"what": "scalars", "step": 3, "time": 1.5, "content": {"loss": NaN}}"""


def test_a_file_of_an_earlier_version_is_read_also_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "a.spool").write_text(OLD, encoding="utf-8")
    spool = Spool(tmp_path / "a.spool")
    spool.append([scalar(4)])
    assert [record.step for record in spool] == [1, 2, 3, 4]
    assert [record.content.get("text") for record in spool][1] == "one twothree"
    assert spool.read_header() == {"writer": "A", "settings": {}, "run": "7"}


@pytest.mark.parametrize(
    "line",
    [
        '{"arrived": 10000000, "records": 1}',
        '{"arrived": -1, "records": 1}',
        '{"arrived": "1", "records": 1}',
        '{"arrived": true, "records": 1}',
        '{"arrived": 1.5, "records": 1}',
        '{"arrived": 0, "records": -1}',
        '{"arrived": 0}',
        '{"arrived": 0, "records": 99}',
    ],
)
def test_a_place_that_is_none_hides_nothing(line: str, spool: Spool) -> None:
    spool.append([scalar(1), scalar(2)])
    with spool.path.open("a") as file:
        file.write(f"{line}\n")
    again = Spool(spool.path)
    assert [record.step for record in again] == take(again, 10) == [1, 2]
    assert take(again, 10) == []
    assert again.forget_taken()


def test_a_file_that_was_replaced_is_read_anew(spool: Spool) -> None:
    spool.append([scalar(step) for step in range(1, 9)])
    assert take(spool, 4) == [1, 2, 3, 4]
    spool.path.unlink()
    assert len(spool) == 0
    spool.append([scalar(9)])
    assert take(spool, 10) == [9]
    assert Spool(spool.path).read_header() == {"writer": "A"}


def test_later_values_of_the_header_count(spool: Spool) -> None:
    spool.say(run="1")
    spool.append([scalar(1)])
    spool.say(run="2")
    assert Spool(spool.path).read_header() == {"writer": "A", "run": "2"}
    assert len(spool) == 1


def test_a_torn_line_costs_one_record(spool: Spool) -> None:
    spool.append([scalar(1), scalar(2)])
    spool.path.write_bytes(spool.path.read_bytes()[:-20])
    spool.append([scalar(3)])
    assert [record.step for record in spool] == [1, 3]


def test_sounds_and_videos_come_back_from_the_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "x.spool", {"writer": "X"})
    record = TrackerRecord(
        "media", 4, 1.0, {"name": "tone", "suffix": "wav", "data": bytes(range(256)), "rate": 8000.0}
    )
    spool.append([record])
    assert list(Spool(spool.path)) == [record]
    assert suffix_of(record) == "wav"
    with pytest.raises(ValueError, match="no sound or video"):
        suffix_of(TrackerRecord("media", 4, 1.0, {"suffix": "../../a.py"}))
