"""`progress.py`: what has changed since a run began is saved and put back, what only becomes longer is a log."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.checkpoint.script.places import name_of
from ignite_hooks.checkpoint.script.plain_values import as_before
from ignite_hooks.checkpoint.script.progress import Progress, named
from ignite_hooks.checkpoint.script.variables import Variable, variables


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
    assert Progress().put_back(found, {"values": {**state["values"], "step.gone.it": 3}}) == ["step.gone.it"]
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


def test_a_list_that_code_takes_from_is_no_log() -> None:
    holder: dict[str, Any] = {"value": [], "log": []}
    progress, found = Progress(), [variable(holder), variable(holder, "log")]
    progress.begin(found, lambda: {"value"})
    holder.update(value=[1.0, 2.0], log=[1.0, 2.0])
    saved = {"kind": "list", "items": [1.0, 2.0]}
    assert progress.state(found, ()) == {"values": {"step.value": saved}, "unkept": [], "logs": ["step.log"]}


def entries(mapping: dict[str, Any]) -> list[Variable]:
    found = variables({"trainer.step": lambda: mapping}, {}, {}, set())
    return [one for one in found if one.place.startswith("trainer.step.mapping")]


@pytest.mark.parametrize(
    ("first", "now", "order"),
    [
        (["a", "b"], ["b", "a"], ["b", "a"]),
        (["a", "b"], ["a", "c", "b"], ["a", "c", "b"]),
        (["a", "b", "c"], ["c", "a"], ["c", "a"]),
        (["a.b", "", "'q'"], ["'q'", "", "a.b"], ["'q'", "", "a.b"]),
        (["a", "b"], ["a", "b", "c"], None),
        (["a", "b", "c"], ["b", "c"], None),
        ([], ["b", "a"], None),
    ],
)
@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_order_of_a_mapping_goes_on(
    first: list[str], now: list[str], order: list[str] | None, is_replaced: bool
) -> None:
    mapping = dict.fromkeys(first, 0)
    progress = Progress()
    progress.begin(entries(mapping))
    if not is_replaced:
        mapping.clear()
    mapping = mapping if not is_replaced else {}
    mapping.update((key, 1 + number) for number, key in enumerate(now))
    state = progress.state(entries(mapping), ())
    names = None if order is None else [name_of(key) for key in order]
    assert state.get("order", {}).get("trainer.step.mapping") == names
    resumed = dict.fromkeys(first, 0)
    assert Progress().put_back(entries(resumed), state) == []
    assert list(resumed.items()) == list(mapping.items())


def test_what_comes_late_is_progress_also_when_another_run_begins() -> None:
    mapping: dict[str, Any] = {"a": 0}
    progress = Progress()
    progress.begin(entries(mapping))
    mapping["late"] = 5
    progress.begin(entries(mapping))
    assert progress.state(entries(mapping), ())["values"] == {"trainer.step.mapping.late": 5}


def test_what_is_filled_again_remains_a_window_after_a_resume() -> None:
    holder: dict[str, Any] = {"value": []}
    progress = Progress()
    progress.begin([variable(holder)])
    progress.put_back([variable(holder)], {"values": {"step.value": {"kind": "list", "items": [1.0, 2.0]}}})
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
