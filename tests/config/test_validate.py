"""Settings are checked against the types a class declares: strictly, in the words of a person."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy
import pytest
import torch
from annotated_types import Ge, Gt, Le, Lt

from ignite_hooks import Priority
from ignite_hooks.config.describe import Setting, describe
from ignite_hooks.config.validate import (
    convert_value,
    is_reference,
    type_adapter,
    validate_settings,
    validate_value,
)
from ignite_hooks.registry import HOOKS
from tests.config.styles import Config, Fields, None_, Own, Plain


class Times(TypedDict, total=False):
    wait: int
    active: int


class Strict(TypedDict):
    wait: Annotated[int, Ge(1)]
    name: NotRequired[str]


HUGE = 10**101
FITS: list[tuple[Any, list[Any]]] = [
    (int, [0, -3, 10**99, Priority.HIGH]),
    (float, [1.5, 1, -2, 0, 1e300]),
    (str, ["", "10", "null"]),
    (bool, [True, False]),
    (int | None, [3, None]),
    (float | str, [1, 1.5, "a"]),
    (Literal["min", "max"], ["min"]),
    (Literal[1, True], [1, True]),
    (Annotated[int, Ge(1)], [1, 2]),
    (Annotated[float, Gt(0), Le(1)], [1, 0.5]),
    (Annotated[int | None, Ge(1)], [1]),
    (list[str], [[], ["a"]]),
    (Sequence[int], [[], [1], (1, 2)]),
    (tuple[int, int], [[1, 2], (1, 2)]),
    (tuple[str, ...], [[], ["a", "b"], ("a",)]),
    (list[tuple[int, int]], [[[1, 2], [3, 4]]]),
    (dict[str, int], [{}, {"a": 1}]),
    (Mapping[str, float], [{"a": 1, "b": 2.5}]),
    (dict, [{}, {"a": object()}]),
    (list, [[], [object()]]),
    (Path, ["a/b", Path("a")]),
    (str | Path, ["a", Path("a")]),
    (Callable[[int], int], [abs, lambda x: x, int]),
    (Callable[..., Any] | None, [abs, None]),
    (Times, [{}, {"wait": 1}, {"wait": 1, "active": 2}]),
    (Times | None, [None, {"wait": 1}]),
    (Strict, [{"wait": 1}, {"wait": 1, "name": "a"}]),
    (Any, [1, "a", None, object(), math.nan]),
    (torch.nn.Module, [torch.nn.Linear(1, 1), "whatever a class is, it is checked by who takes it"]),
]
MISFITS: list[tuple[Any, str, list[Any]]] = [
    (
        int,
        "a whole number",
        [True, False, 1.0, 1.5, "10", "", None, [1], {}, math.nan, math.inf, numpy.float64(1.5), 1 + 0j],
    ),
    (float, "a number", [True, "1.5", None, math.nan, math.inf, -math.inf, [1.5], {}]),
    (str, "a string", [1, True, None, ["a"], b"a", Path("a")]),
    (bool, "true or false", [0, 1, "true", "yes", None, []]),
    (int | None, "a whole number or null", [1.0, "1", True]),
    (float | str, "a number or a string", [True, None, math.nan]),
    (Literal["min", "max"], "'min' or 'max'", ["mim", "MIN", None, 1, ["min"], {}]),
    (Literal[1, "all"], "1 or 'all'", [True, 1.0, "1"]),
    (Annotated[int, Ge(1)], "a whole number of at least 1", [0, -1, 1.0, True]),
    (Annotated[float, Gt(0), Le(1)], "a number above 0 and at most 1", [0, 1.1, math.nan]),
    (Annotated[float, Ge(0), Lt(1)], "a number of at least 0 and below 1", [1, -0.1]),
    (list[str], "a list of strings", ["ab", [1], [None], {}, {"a"}]),
    (Sequence[int], "a list of whole numbers", ["12", [True], [1.0], {1: 2}]),
    (tuple[int, int], "a list of 2 (a whole number, a whole number)", [[1], [1, 2, 3], [1, "2"], 1]),
    (tuple[str, ...], "a list of strings", ["ab", [1]]),
    (dict[str, int], "a mapping of names to whole numbers", [{"a": "b"}, {1: 1}, [], "a", None]),
    (Mapping[str, Any], "a mapping", [{1: 1}, [], "a"]),
    (dict, "a mapping", [[], "a", None]),
    (list, "a list", [{}, "a"]),
    (Path, "a path", [3, "", " ", "a\0b", None, ["a"]]),
    (Callable[[int], int], "a function", [3, "abs", None, [abs]]),
    (Callable[..., Any] | None, "a function or null", [3]),
    (Times, "a mapping of wait, active", [{"wat": 1}, {"wait": "1"}, {"wait": True}, [], 3]),
    (Strict, "a mapping of wait, name", [{}, {"wait": 0}, {"name": "a"}]),
]


@pytest.mark.parametrize(("annotation", "value"), [(a, v) for a, values in FITS for v in values])
def test_what_fits(annotation: Any, value: Any) -> None:
    assert validate_value(value, Setting("x", annotation)) == ""


@pytest.mark.parametrize(("annotation", "words", "value"), [(a, w, v) for a, w, values in MISFITS for v in values])
def test_what_does_not_fit_is_said_with_what_would(annotation: Any, words: str, value: Any) -> None:
    message = validate_value(value, Setting("x", annotation))
    assert message.startswith(f"{words} is needed, not ")
    assert len(message) < 200
    assert "\n" not in message


def test_none_fits_only_where_it_is_the_default() -> None:
    assert validate_value(None, Setting("x", int, 3)) == "a whole number is needed, not None"
    assert validate_value(None, Setting("x", int, None)) == ""


@pytest.mark.parametrize("value", [HUGE, -HUGE, 10**5000], ids=["huge", "negative", "unprintable"])
@pytest.mark.parametrize("annotation", [int, float, Any, int | None])
def test_numbers_beyond_reason_are_slips(annotation: Any, value: int) -> None:
    assert (
        validate_value(value, Setting("x", annotation)) == "a smaller number is needed, not one of more than 100 digits"
    )


def test_a_huge_number_within_a_mapping_is_refused() -> None:
    found = validate_value({"a": 10**5000}, Setting("x", Mapping[str, Any] | Callable[..., Any]))
    assert found == "a smaller number is needed, not one of more than 100 digits"


@pytest.mark.parametrize(
    ("value", "reference"),
    [("@model", True), ("@val_loader", True), ("@", False), ("@1", False), ("a@b", False), ("@a b", False), (3, False)],
)
def test_a_reference_is_the_name_of_a_service(value: Any, reference: bool) -> None:
    assert is_reference(value) is reference
    assert (validate_value(value, Setting("x", list)) == "") is reference


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (tuple[int, int], [1, 2], (1, 2)),
        (tuple[str, ...], ["a"], ("a",)),
        (list[tuple[int, int]], [[1, 2]], [(1, 2)]),
        (tuple[int, int] | None, [1, 2], (1, 2)),
        (tuple[int, int] | None, None, None),
        (Sequence[int], (1, 2), [1, 2]),
        (Path, "a/b", Path("a/b")),
        (int, "@service", "@service"),
        (Any, [1], [1]),
    ],
)
def test_a_value_is_made_to_fit(annotation: Any, value: Any, made: Any) -> None:
    result = convert_value(value, Setting("x", annotation))
    assert result == made
    assert type(result) is type(made)


def problems(cls: Any, **given: Any) -> list[tuple[str, str]]:
    return [tuple(problem) for problem in validate_settings(cls, given, "hooks[0]")]


@pytest.mark.parametrize(
    ("cls", "given", "expected"),
    [
        (Fields, {"must": "a", "size": [1, 2], "frequency": 3, "every": None}, []),
        (Fields, {}, [("hooks[0].must", "missing: Fields needs it")]),
        (
            Fields,
            {"must": 3, "mod": "min"},
            [
                ("hooks[0].must", "a string is needed, not 3"),
                ("hooks[0].mod", "not a setting of Fields, did you mean 'mode'?"),
            ],
        ),
        (
            Fields,
            {"must": "a", "zzz": 1},
            [("hooks[0].zzz", "not a setting of Fields; it has interval, mode, size, must")],
        ),
        (
            Fields,
            {"must": "a", "frequency": 0},
            [("hooks[0].frequency", "a whole number of at least 1 is needed, not 0")],
        ),
        (
            Fields,
            {"must": "a", "frequency": None},
            [("hooks[0].frequency", "a whole number of at least 1 is needed, not None")],
        ),
        (Fields, {"must": "a", "start": -1}, [("hooks[0].start", "a whole number of at least 0 is needed, not -1")]),
        (Fields, {"must": "a", "begin": 3}, []),
        (
            Fields,
            {"must": "a", "frequency": 2, "interval": 2},
            [("hooks[0].frequency", "says the same as 'interval': give one of them")],
        ),
        (
            Fields,
            {"must": "a", "every": "2 epoch", "interval": 2},
            [("hooks[0].every", "says the same as 'interval': give one of them")],
        ),
        (Own, {"mode": "a", "interval": "5"}, [("hooks[0].interval", "a whole number is needed, not '5'")]),
        (
            Own,
            {"mode": "a", "intervall": 5},
            [("hooks[0].intervall", "not a setting of Own, did you mean 'interval'?")],
        ),
        (Own, {}, [("hooks[0].mode", "missing: Own needs it")]),
        (Plain, {"k": 5}, [("hooks[0].k", "not a setting of Plain; it has none")]),
        (Config, {"anything": 5, "names": [], "frequency": 2}, []),
        (Config, {"frequncy": 2}, [("hooks[0].frequncy", "not a setting of Config, did you mean 'frequency'?")]),
        (None_, {"priorty": 2}, [("hooks[0].priorty", "not a setting of None_, did you mean 'priority'?")]),
        (None_, {"frequency": "2"}, [("hooks[0].frequency", "a whole number of at least 1 is needed, not '2'")]),
        *[
            (cls, {"must": "a", "mode": "min", **given} if cls is Fields else given, [expected])
            for cls in (Fields, Config, None_, Plain)
            for given, expected in (
                ({"name": ""}, ("hooks[0].name", "a name of at least one letter is needed, not ''")),
                ({"name": 3}, ("hooks[0].name", "a string or null is needed, not 3")),
                ({"on_error": None}, ("hooks[0].on_error", "'raise', 'warn' or 'disable' is needed, not None")),
                ({"on_error": "wran"}, ("hooks[0].on_error", "'raise', 'warn' or 'disable' is needed, not 'wran'")),
                ({"priority": "HIHG"}, ("hooks[0].priority", "'HIHG' is not a priority, did you mean HIGH?")),
                (
                    {"every": "5 moons"},
                    ("hooks[0].every", "'5 moons' does not say how often: write '50 iter', '2 epoch' or '10 min'"),
                ),
                ({"every": 5}, ("hooks[0].every", "a string is needed, not 5")),
                ({3: 5}, ("hooks[0][3]", "the name of a setting is text")),
            )
        ],
    ],
)
def test_problems_of_settings(cls: Any, given: dict[Any, Any], expected: list[tuple[str, str]]) -> None:
    assert [tuple(problem) for problem in validate_settings(cls, given, "hooks[0]")] == expected


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        ("high", ""),
        (35, ""),
        ({"after_train_iter": 95, "after_epoch": "LOW"}, ""),
        ({"my_point": 95}, ""),
        ({}, ""),
        (None, "None is not a priority: give a name such as HIGH, or a whole number from 0 to 100"),
        ({"after_train_itr": 95}, "'after_train_itr' is not a point, did you mean 'after_train_iter'?"),
        ({3: 95}, "3 is not a point"),
        ({"after_epoch": "LWO"}, "after_epoch: 'LWO' is not a priority, did you mean LOW?"),
        (
            {"after_epoch": None},
            "after_epoch: None is not a priority: give a name such as HIGH, or a whole number from 0 to 100",
        ),
    ],
)
def test_priorities(priority: Any, message: str) -> None:
    assert problems(None_, priority=priority) == ([("hooks[0].priority", message)] if message else [])


def test_the_settings_of_a_writer_are_its_own_alone() -> None:
    from ignite_hooks.writers.memory import MemoryWriter

    found = validate_settings(MemoryWriter, {"priority": 3}, "writers[0]", hook=False)
    assert [problem.place for problem in found] == ["writers[0].priority"]


def test_every_default_of_every_hook_fits_its_own_type() -> None:
    for name in HOOKS._modules:
        for setting in describe(HOOKS.get(name)).settings:
            if not setting.required:
                assert validate_value(setting.default, setting) == "", f"{name}.{setting.name}"


@pytest.mark.parametrize(
    "annotation", [Literal["greater", "less"], Path | None, list[Literal[1, 2]], Callable[..., Any]]
)
def test_the_check_of_a_type_is_made_once(annotation: Any) -> None:
    assert type_adapter(annotation) is type_adapter(annotation)


def test_each_order_of_a_union_has_a_schema_of_its_own() -> None:
    orders = [float | list[float], list[float] | float]
    assert orders[0] == orders[1]
    kinds = [[part["type"] for part in type_adapter(one).json_schema()["anyOf"]] for one in orders]
    assert kinds == [["number", "array"], ["array", "number"]]
