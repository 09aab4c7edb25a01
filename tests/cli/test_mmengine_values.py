"""Values of MMEngine configurations are merged as MMEngine does it."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.cli.mmengine_values import Budget, Section, Unread, changed_at, child_of, merged, substituted
from ignite_hooks.errors import ConfigError


@pytest.mark.parametrize(
    ("over", "base", "found"),
    [
        ({"a": {"x": 1}}, {"a": {"x": 0, "y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"_delete_": True, "x": 1}}, {"a": {"x": 0, "y": 2}}, {"a": {"x": 1}}),
        ({"a": {"_delete_": True, "x": 1}}, {}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": 3}, {"a": {"x": 1}}),
        ({"a": [1]}, {"a": [2, 3]}, {"a": [1]}),
        ({"a": None}, {"a": {"x": 1}}, {"a": None}),
    ],
)
def test_mappings_are_merged_and_all_else_replaces(over: dict[str, Any], base: dict[str, Any], found: object) -> None:
    before = repr(base)
    assert merged(over, base) == found
    assert repr(base) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{_base_.a}}", 1),
        ("{{ _base_.b.c }}", [2]),
        ("{{_base_.d}}", Unread("{{_base_.d}}")),
        ("a {{_base_.a}}", None),
    ],
)
def test_references_become_values(text: str, value: object) -> None:
    assert substituted(text, {"a": 1, "b": {"c": [2]}}) == (text if value is None else value)


@pytest.mark.parametrize(
    ("value", "step", "found"),
    [
        ({"a": 1}, "a", (1,)),
        ({"a": None}, "a", (None,)),
        ({"a": 1}, "b", None),
        ([1, 2], -1, (2,)),
        ([1, 2], 2, None),
        ([1, 2], slice(None, -1), ([1],)),
        ([1, 2], True, None),
        ("ab", 0, None),
    ],
)
def test_a_child_is_found_or_nothing_is(value: object, step: object, found: object) -> None:
    assert child_of(value, step) == found


@pytest.mark.parametrize(
    ("path", "method", "args"),
    [([], "=", [1]), (["b", "c"], "=", [1]), (["a", 5], "=", [1]), (["a"], "reverse", []), (["a"], "pop", [7])],
)
def test_a_change_that_is_not_known_changes_nothing(path: list[Any], method: str, args: list[Any]) -> None:
    root = Section({"a": [1, 2]})
    assert not changed_at(root, path, method, args, {})
    assert root == {"a": [1, 2]}


def test_copies_have_a_budget() -> None:
    budget = Budget(nodes=5)
    assert budget.copied([1, 2]) == [1, 2]
    with pytest.raises(ConfigError, match="too large"):
        budget.copied([1, 2])
