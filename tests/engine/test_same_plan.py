"""The plans of several ranks are compared before the first iteration."""

from __future__ import annotations

import pytest

from ignite_hooks import BaseHook
from ignite_hooks.engine.same_plan import compare_plans, differences
from ignite_hooks.plan.plan import Plan

PLAN = {"names": ["a", "b"], "settings": {"a": {"x": 1}, "b": {}}, "lines": [["a", "one"], ["b", "two"]]}


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({"names": ["a"], "lines": [["a", "one"]]}, "rank 3 has no 'b', which rank 0 has"),
        ({"names": ["a", "b", "c"]}, "rank 3 has 'c', which rank 0 does not have"),
        ({"names": ["b", "a"]}, "their order differs on rank 3"),
        ({"settings": {"a": {"x": 2}, "b": {}}}, "a.x is 1 on rank 0 and 2 on rank 3"),
        ({"lines": [["a", "one"], ["b", "three"]]}, "'b' differs on rank 3: three, two"),
    ],
)
def test_what_differs_is_named(other: dict[str, object], wanted: str) -> None:
    assert list(differences(PLAN, {**PLAN, **other}, 3)) == [wanted]


def test_a_hook_that_answers_no_point_is_compared_too() -> None:
    plan = Plan({"silent": BaseHook()})
    compare_plans(plan)
    assert [hook for hook, _ in plan.lines_by_hook()] == ["silent"]
