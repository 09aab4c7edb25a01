from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest

from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord, suffix_of


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
    assert [len(batch) for batch in spool.batches(500)] == [1]
    assert spool.forget_delivered()
    assert not spool.path.exists()


def test_records_delivered_before_a_failure_are_not_kept(spool: Spool) -> None:
    spool.append([scalar(step) for step in range(1, 8)])
    for batch in spool.batches(3):
        if batch[0].step == 4:
            break
    spool.append([scalar(8)])
    assert not spool.forget_delivered()
    assert [record.step for record in Spool(spool.path)] == [4, 5, 6, 7, 8]


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
