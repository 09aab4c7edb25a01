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


def test_a_tracker_that_knows_only_its_last_step_takes_later_ones() -> None:
    there = Delivered(numbers=5, others=5)
    assert there.missing_of(record("scalars", 5, loss=1.0)) is None
    assert there.missing_of(record("image", 5, name="cat")) is None
    assert there.missing_of(record("scalars", 6, loss=1.0)) is not None
