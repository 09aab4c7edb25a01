"""`search_page.py`: what a search has tried, in its own order and beside its results."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ignite_hooks.report.search_page import MOST_LINES, Axis, SearchPage, Tried, parts


def tried(number: int, value: float | None, state: str = "finished", **values: Any) -> Tried:
    return Tried(number, state, value, values or {"model.width": 8 * number, "depth": number % 2})


def shown(page: SearchPage) -> dict[str, str]:
    return {name: str(content) for name, _, content in parts(page)}


def test_the_best_so_far_never_gets_worse() -> None:
    page = SearchPage("loss", False, [tried(n, value) for n, value in enumerate((0.5, 0.7, 0.3, 0.4))])
    [steps] = re.findall(r'points="([^"]*)"', shown(page)["trials"])
    heights = [float(place.split(",")[1]) for place in steps.split()]
    assert len(heights) == 4
    assert heights == sorted(heights)


def test_pruned_trials_are_rings_and_failed_ones_are_left_out() -> None:
    page = SearchPage("loss", False, [tried(0, 0.5), tried(1, 0.9, "pruned"), tried(2, None, "failed"), tried(3, 0.4)])
    content = shown(page)["trials"]
    assert (content.count("dot s0"), content.count("ring s1")) == (2, 1)
    assert "pruned: its last value" in content
    assert shown(page)["settings"].count("<polyline") == 2


@pytest.mark.parametrize(("greater", "first"), [(True, 3), (False, 0)])
def test_the_best_trial_is_drawn_last_and_in_colour(greater: bool, first: int) -> None:
    page = SearchPage("iou", greater, [tried(n, 0.1 + n / 10) for n in range(4)])
    lines = re.findall(r"<polyline[^>]*><title>trial (\d)", shown(page)["settings"])
    assert int(lines[-1]) == first
    assert page.ranked[0].number == first


def test_settings_that_never_differ_have_no_axis() -> None:
    page = SearchPage("loss", False, [tried(n, n / 10, lr=0.1 * (n + 1), kind="mlp") for n in range(3)])
    titles = re.findall(r"<title>([a-z]+)</title>", shown(page)["settings"])
    assert titles == ["lr", "loss"]


def test_many_trials_are_told_and_only_the_best_drawn() -> None:
    page = SearchPage("loss", False, [tried(n, float(n + 1)) for n in range(MOST_LINES + 5)])
    content = shown(page)["settings"]
    assert content.count("<polyline") == MOST_LINES
    assert f"The best {MOST_LINES} of {MOST_LINES + 5} are drawn." in content


@pytest.mark.parametrize(
    ("values", "scale", "ticks"),
    [
        ([128, 32, 64], "choices", ["32", "64", "128"]),
        (["b", "a", "b"], "choices", ["b", "a"]),
        ([[32], [16]], "choices", ["[32]", "[16]"]),
        ([0.001, 0.1], "log", [0.001, 0.01, 0.1]),
        ([0.0, 0.1], "log", [0.0, 0.05, 0.1]),
    ],
)
def test_choices_have_a_place_each_and_numbers_a_scale(values: list[Any], scale: str, ticks: list[Any]) -> None:
    axis = Axis("setting", values, scale)
    assert list(axis.ticks()) == (ticks if scale == "choices" else pytest.approx(ticks))
    assert all(0 <= axis.place(one) <= 1 for one in values)


def test_nothing_is_said_of_a_search_without_a_result() -> None:
    assert parts(SearchPage("loss", False, [tried(0, None, "failed")])) == []


def test_texts_of_a_configuration_are_no_markup() -> None:
    page = SearchPage("<b>", False, [tried(n, n / 10, name=f"<i>{n}") for n in range(2)], {"<u>": 1.0})
    assert not re.search(r"<(b|i|u)>", "".join(shown(page).values()))
