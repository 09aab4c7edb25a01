"""`search_section.py`: every problem of the section at once, and what a setting may be."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.errors import Problem
from ignite_hooks.trainer.search_section import Dimension, LocalEngine, SearchSection, read_dimension, read_search


@pytest.mark.parametrize(
    ("wanted", "dimension"),
    [
        ([1, "a", None], Dimension((1, "a", None))),
        ({"choices": [[16], [32]]}, Dimension(([16], [32]))),
        ({"seeds": 3}, Dimension((0, 1, 2))),
        ({"log": [1e-5, 0.1]}, Dimension(low=1e-5, high=0.1, log=True)),
        ({"float": [0, 1], "step": 0.5}, Dimension(low=0, high=1, step=0.5)),
        ({"int": [1, 64], "log": True}, Dimension(low=1, high=64, log=True, whole=True)),
    ],
    ids=str,
)
def test_a_dimension_is_read(wanted: Any, dimension: Dimension) -> None:
    problems: list[Problem] = []
    assert (read_dimension(wanted, "x", problems), problems) == (dimension, [])


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (3, "a list of choices, or a mapping"),
        ([], "an empty list"),
        ({}, "one of log, float, int, choices, seeds is needed"),
        ({"log": [1e-5, 1], "int": [1, 2]}, "one of log"),
        ({"lg": [1e-5, 1]}, "x.lg: not known here, did you mean 'log'?"),
        ({"log": [0, 1]}, "above 0 on a logarithmic scale"),
        ({"log": [1, 0.1]}, "the smaller first"),
        ({"log": "1e-5"}, "two numbers"),
        ({"int": [1, 2.5]}, "two whole numbers"),
        ({"float": [0, float("nan")]}, "two numbers"),
        ({"int": [1, 5], "step": 0.5}, "a whole number above 0"),
        ({"seeds": 0}, "the number of seeds"),
        ({"choices": []}, "a list is needed"),
    ],
    ids=str,
)
def test_what_is_no_dimension_is_explained(wanted: Any, words: str) -> None:
    problems: list[Problem] = []
    read_dimension(wanted, "x", problems)
    assert words in "; ".join(map(str, problems))


def test_every_problem_of_a_section_is_found_at_once() -> None:
    problems: list[Problem] = []
    content = {"space": {"a": {"log": [0, 1]}, "b": 3}, "jobs": 0, "sampler": "tpee", "metrc": "x", "metric": "reach"}
    assert read_search(content, problems) is None
    assert sorted(problem.place for problem in problems) == [
        "search.direction",
        "search.jobs",
        "search.metrc",
        "search.sampler",
        "search.space.a.log",
        "search.space.b",
    ]


@pytest.mark.parametrize("content", [{}, {"space": {}}])
def test_a_space_is_needed(content: Any) -> None:
    problems: list[Problem] = []
    assert read_search(content, problems) is None
    assert [problem.place for problem in problems] == ["search.space"]


def test_a_grid_needs_values_that_can_be_counted() -> None:
    problems: list[Problem] = []
    assert read_search({"space": {"lr": {"log": [1e-5, 1]}}, "sampler": "grid"}, problems) is None
    assert "a grid needs choices" in problems[0].message


def test_a_grid_has_every_combination_and_no_more_trials() -> None:
    section = SearchSection(
        {"a": [1, 2], "b": {"int": [0, 4], "step": 2}, "c": {"float": [0, 1], "step": 0.5}}, sampler="grid"
    )
    assert (len(section.grid()), section.number) == (18, 18)
    assert section.grid()[0] == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize(
    ("metric", "direction", "greater"),
    [
        ("val_loss", "auto", False),
        ("accuracy", "auto", True),
        ("reach", "maximize", True),
        ("accuracy", "minimize", False),
    ],
)
def test_the_direction_follows_from_the_metric_unless_it_is_said(metric: str, direction: Any, greater: bool) -> None:
    assert SearchSection({"a": [1]}, metric, direction).greater is greater


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ("locl", "search.engine: nothing called 'locl' runs trials, did you mean 'local'?"),
        ({"type": "local", "nodes": 3}, "search.engine.nodes: not a setting of LocalEngine; it has none"),
        ({"nodes": 3}, "search.engine: nothing called 'None' runs trials; there are local"),
        (3, "search.engine: "),
    ],
    ids=str,
)
def test_what_runs_no_trials_is_explained(engine: Any, problem: str) -> None:
    problems: list[Problem] = []
    assert read_search({"space": {"a": [1]}, "engine": engine}, problems) is None
    assert str(problems[0]).startswith(problem), problems


def test_an_engine_has_its_settings() -> None:
    assert SearchSection({"a": [1]}, engine={"type": "local"}).engine_settings == LocalEngine()
