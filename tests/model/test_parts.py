"""`parts.py`: one object, a list and a mapping are looked at in the same way."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.model.parts import by_part, each, is_several, names_of, parts_of, why_no_fit, with_saved


@pytest.mark.parametrize(
    ("thing", "parts"),
    [
        (None, {}),
        (3, {"": 3}),
        ({"g": 1, "d": None}, {"g": 1}),
        ([1, None, 2], {"0": 1, "2": 2}),
        ((1,), {"0": 1}),
        ({}, {}),
    ],
)
def test_none_is_no_part(thing: Any, parts: dict[str, Any]) -> None:
    assert parts_of(thing) == parts
    assert list(each(thing)) == list(parts.values())


def test_a_list_of_one_is_several() -> None:
    assert is_several([1])
    assert not is_several(1)
    assert (names_of([1]), names_of(1)) == (["0"], None)


@pytest.mark.parametrize("thing", [-1, [-1, -2], {"g": -1, "d": -2}])
def test_what_was_made_by_part_goes_back_to_its_part(thing: Any) -> None:
    assert all(saved == abs(one) for _, one, saved in with_saved(thing, by_part(abs, thing)))


@pytest.mark.parametrize(("saved", "now"), [(None, None), (["g", "d"], ["d", "g"]), (["0"], ["0"])])
def test_the_same_names_fit_in_any_order(saved: list[str] | None, now: list[str] | None) -> None:
    assert why_no_fit("model", saved, now) is None


@pytest.mark.parametrize(
    ("saved", "now", "words"),
    [
        (None, ["g"], "one model, and this run has several, model g: pass model=... to"),
        (["0", "1"], None, "several, model 0, 1, and this run has one model: pass model=[..., ...] to"),
        (["0", "1"], ["0"], "several, model 0, 1, and this run has several, model 0: pass model=[..., ...] to"),
    ],
)
def test_what_does_not_fit_names_both_and_the_remedy(
    saved: list[str] | None, now: list[str] | None, words: str
) -> None:
    assert words in str(why_no_fit("model", saved, now))
