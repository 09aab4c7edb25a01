"""`progress.py`: what has changed since a run began is saved and put back, what only becomes longer is a log."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.checkpoint.script.plain_values import as_before
from ignite_hooks.checkpoint.script.progress import Progress, named
from ignite_hooks.checkpoint.script.variables import Variable


def variable(holder: dict[str, Any], name: str = "value") -> Variable:
    return Variable(f"step.{name}", lambda: holder[name], lambda value: holder.update({name: value}))


def test_what_has_changed_since_the_start_is_saved_and_put_back() -> None:
    holder: dict[str, Any] = {"value": 1, "same": 2}
    found = [variable(holder), variable(holder, "same")]
    progress = Progress()
    progress.begin(found)
    holder["value"] = 5
    state = progress.state(found, ())
    assert state == {"values": {"step.value": 5}, "unkept": []}
    holder["value"] = 1
    assert Progress().put_back(found, {**state["values"], "step.gone.it": 3}) == ["step.gone.it"]
    assert holder == {"value": 5, "same": 2}
    assert progress.state([variable({"value": 1})], ()) == {}


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]], [False, False, False]),
        ([[1.0, 2.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]], [False, False, True, True]),
        ([[[1]], [[1], [2]], [[1], [2, 3]]], [False, False, False]),
        ([[[0, 1]], [[0, 2]]], [False, True]),
        ([{0: [1], 1: []}, {0: [1], 1: [2]}], [False, False]),
    ],
    ids=["a log", "a window", "a log by epoch", "a table", "logs by class"],
)
def test_a_collection_that_only_becomes_longer_is_a_log(steps: list[Any], kept: list[bool]) -> None:
    holder: dict[str, Any] = {"value": type(steps[0])()}
    progress = Progress()
    progress.begin([variable(holder)])
    found = []
    for value in steps:
        holder["value"] = value
        found.append("step.value" in progress.state([variable(holder)], ()).get("values", {}))
    assert found == kept


def test_what_is_filled_again_remains_a_window_after_a_resume() -> None:
    holder: dict[str, Any] = {"value": []}
    progress = Progress()
    progress.begin([variable(holder)])
    progress.put_back([variable(holder)], {"step.value": {"kind": "list", "items": [1.0, 2.0]}})
    assert holder["value"] == [1.0, 2.0]
    saved = progress.state([variable(holder)], ())["values"]["step.value"]
    assert as_before(saved, None) == [1.0, 2.0]


def test_what_is_made_late_is_not_missed() -> None:
    holder: dict[str, Any] = {"value": None, "cache": {}, "memory": []}
    found = [variable(holder, name) for name in holder]
    progress = Progress()
    progress.begin(found)
    holder.update(value=object(), cache={1: object()}, memory=[object()])
    assert progress.state(found, ()) == {"values": {}, "unkept": ["step.memory"]}


def test_names_are_those_that_the_script_uses() -> None:
    assert named(["engine.trainer.rate", "trainer.step.globals.beta", "val.COMPLETED.__self__.best"]) == (
        "beta, self.best, trainer.rate"
    )
