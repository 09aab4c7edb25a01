"""The stand-in finds and orders tasks as the server does: a search relies on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.writers.trackers.clearml_queries import found, hashed, update_last_metrics

TASKS: list[dict[str, Any]] = [
    {"id": "a", "name": "first", "parent": "p", "status": "completed", "last_metrics": {"m": {"v": {"value": 2.0}}}},
    {"id": "b", "name": "second", "parent": "p", "status": "failed"},
    {"id": "c", "name": "third", "parent": "p", "status": "completed", "last_metrics": {"m": {"v": {"value": 1.0}}}},
    {"id": "d", "name": "other", "parent": "q", "status": "completed"},
]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"parent": "p"}, "abc"),
        ({"parent": ["p", "q"], "status": ["completed"]}, "acd"),
        ({"parent": "p", "order_by": ["last_metrics.m.v.value"]}, "cab"),
        ({"parent": "p", "order_by": ["-last_metrics.m.v.value"]}, "acb"),
        ({"name": "^s"}, "b"),
        ({"order_by": ["-name"], "page": 1, "page_size": 3}, "a"),
    ],
)
def test_tasks_are_found_in_the_order_that_is_asked_for(asked: dict[str, Any], ids: str) -> None:
    assert "".join(task["id"] for task in found(TASKS, asked)) == ids


def test_an_answer_has_what_was_asked_for_and_the_identifier() -> None:
    asked = {"id": ["a", "b"], "only_fields": ["status", "last_metrics.m.v.value"]}
    first, second = found(TASKS, asked)
    assert first == {"id": "a", "status": "completed", "last_metrics": {"m": {"v": {"value": 2.0}}}}
    assert second == {"id": "b", "status": "failed"}


def test_a_query_that_would_be_answered_wrongly_is_refused() -> None:
    with pytest.raises(ValueError, match="does not read tags"):
        found(TASKS, {"tags": ["best"]})


def test_a_task_has_the_last_the_least_and_the_greatest_value_of_a_curve() -> None:
    kept: dict[str, Any] = {}
    batches = [[(20, 3.0), (10, 1.0)], [(15, 2.0)]]
    for batch in batches:
        update_last_metrics(kept, [{"metric": "loss", "variant": "val", "iter": i, "value": v} for i, v in batch])
    one = kept[hashed("loss")][hashed("val")]
    assert one["value"] == 2.0, "of the newest request"
    assert (one["min_value"], one["min_value_iteration"]) == (1.0, 10)
    assert (one["max_value"], one["max_value_iteration"]) == (3.0, 20)
