"""`left_out.py`: what a checkpoint does without is named in few words, and completed from today's state."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.checkpoint.left_out import (
    MOST_NAMED,
    LeftOut,
    copied_state,
    in_words,
    missing_parts,
    with_todays,
    without_methods,
)


def test_many_parts_are_named_in_one_line_and_only_once() -> None:
    told: list[str] = []
    left_out = LeftOut(told.append)
    state = {"meta": {}, "hooks": {str(number): print for number in range(40)}}
    for _ in range(3):
        plain = left_out.plain(state)
    assert len(told) == 1
    assert f"and {40 - MOST_NAMED} more" in told[0].replace(", 35 more", " and 35 more")
    assert (plain["hooks"], len(plain["meta"]["missing"])) == ({}, 40)


@pytest.mark.parametrize(
    ("saved", "today", "missing", "wanted"),
    [
        ({"a": 1}, {"a": 2, "f": 3}, ["o.f"], {"a": 1, "f": 3}),
        ({"a": 1}, {"a": 2, "f": 3}, ["p.f"], {"a": 1}),
        ({"a": 1}, {"a": 2, "new": 3, "f": 4}, ["o.f"], {"a": 1, "f": 4}),
        ({"g": [{"lr": 1}]}, {"g": [{"lr": 2, "f": 3}]}, ["o.g[0].f"], {"g": [{"lr": 1, "f": 3}]}),
        ({"g": [{"lr": 1}]}, {"g": []}, ["o.g[0].f"], {"g": [{"lr": 1}]}),
        ([1], None, ["o.f"], [1]),
    ],
)
def test_only_missing_parts_are_completed(saved: Any, today: Any, missing: list[str], wanted: Any) -> None:
    assert with_todays(saved, "o", missing, lambda: today) == wanted


@pytest.mark.parametrize("meta", [None, {}, {"missing": 3}, {"missing": [3]}])
def test_a_file_that_lists_nothing_misses_nothing(meta: Any) -> None:
    assert missing_parts({"meta": meta}) == []


class Binding:
    """A state with a method of its owner, as that of Ignite's ReduceLROnPlateauScheduler."""

    def __init__(self) -> None:
        self.inner = {"best": 0.5, "act": self.act}

    def act(self) -> Binding:
        return self

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner, "at": 3}


def test_methods_are_no_part_of_a_state() -> None:
    assert copied_state(Binding()) == without_methods(Binding().state_dict()) == {"inner": {"best": 0.5}, "at": 3}


def test_functions_remain_to_be_named() -> None:
    assert without_methods({"f": len, "g": in_words}) == {"f": len, "g": in_words}
