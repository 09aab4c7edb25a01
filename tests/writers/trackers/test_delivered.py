"""`delivered.py`: what a run in a tracker has already is not sent again."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.spool import TrackerRecord


def record(what: str, step: int, **content: Any) -> TrackerRecord:
    return TrackerRecord(what, step, 0.0, content)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (record("scalars", 4, loss=1.0), None),
        (record("scalars", 5, loss=1.0, lr=2.0), record("scalars", 5, lr=2.0)),
        (record("scalars", 6, loss=1.0), record("scalars", 6, loss=1.0)),
        (record("scalars", 0, new=1.0), record("scalars", 0, new=1.0)),
        (record("image", 3, name="cat"), None),
        (record("image", 4, name="cat"), record("image", 4, name="cat")),
        (record("histogram", 1, name="cat"), record("histogram", 1, name="cat")),
        (record("text", 0, name="plan"), record("text", 0, name="plan")),
        (record("artifact", 0, name="a"), record("artifact", 0, name="a")),
    ],
)
def test_only_what_is_missing_is_left(given: TrackerRecord, left: TrackerRecord | None) -> None:
    there = Delivered.of(
        [record("scalars", 5, loss=0.0), record("scalars", 2, loss=0.0, lr=0.0), record("image", 3, name="cat")]
    )
    assert there.missing_of(given) == left


def test_gaps_are_filled_where_a_tracker_tells_all_steps() -> None:
    there = Delivered({"loss": 5, "lr": 5}, steps={"loss": frozenset({1, 5})})
    given = [record("scalars", step, loss=1.0, lr=1.0) for step in (1, 3, 5, 6)]
    left = [None, {"loss": 1.0}, None, {"loss": 1.0, "lr": 1.0}]
    assert [None if (part := there.missing_of(one)) is None else part.content for one in given] == left


def test_a_tracker_that_knows_only_its_last_step_takes_later_ones() -> None:
    there = Delivered(numbers=5, others=5)
    assert there.missing_of(record("scalars", 5, loss=1.0)) is None
    assert there.missing_of(record("image", 5, name="cat")) is None
    assert there.missing_of(record("scalars", 6, loss=1.0)) is not None
