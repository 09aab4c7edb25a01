"""Named priorities, and the priority of a hook at a point."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy
import pytest

from ignite_hooks import BaseHook
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.priority import Order, Priority, hook_priority

SPECIFIED = {
    "HIGHEST": 0,
    "VERY_HIGH": 10,
    "HIGH": 30,
    "ABOVE_NORMAL": 40,
    "NORMAL": 50,
    "BELOW_NORMAL": 60,
    "LOW": 70,
    "VERY_LOW": 90,
    "LOWEST": 100,
}


def test_the_priorities_are_those_of_the_specification() -> None:
    assert {name: int(value) for name, value in Priority.__members__.items()} == SPECIFIED


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *SPECIFIED.items(),
        *[(name.lower(), value) for name, value in SPECIFIED.items()],
        ("Below_Normal", 60),
        ("below-normal", 60),
        ("below normal", 60),
        (" HIGH ", 30),
        (Priority.LOW, 70),
        *[(number, number) for number in (0, 1, 35, 99, 100)],
    ],
)
def test_priorities_are_names_in_any_case_or_numbers(given: Any, value: int) -> None:
    assert Priority.value_of(given) == value
    assert type(Priority.value_of(given)) is int


class Other(IntEnum):
    TOO_MUCH = 101


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("NORMALL", "'NORMALL' is not a priority, did you mean NORMAL?"),
        ("below_norml", "'below_norml' is not a priority, did you mean BELOW_NORMAL?"),
        ("verylow", "'verylow' is not a priority, did you mean VERY_LOW?"),
        ("", f"'' is not a priority, choose one of {', '.join(SPECIFIED)}"),
        ("50", f"'50' is not a priority, choose one of {', '.join(SPECIFIED)}"),
        *[
            (value, f"{value!r} is not a priority: give a name such as HIGH, or a whole number from 0 to 100")
            for value in (True, False, 1.5, 50.0, -1, 101, None, [50], {"a": 1}, float("nan"), Other.TOO_MUCH)
        ],
        pytest.param(
            10**5000, "<int> is not a priority: give a name such as HIGH, or a whole number from 0 to 100", id="huge"
        ),
        (
            numpy.float64(3),
            # NumPy 1 writes it as 3.0.
            f"{numpy.float64(3)!r} is not a priority: give a name such as HIGH, or a whole number from 0 to 100",
        ),
    ],
)
def test_anything_else_is_refused_with_what_would_have_worked(given: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Priority.value_of(given)
    assert str(caught.value) == message


class Averaged(BaseHook):
    priority = Priority.ABOVE_NORMAL
    point_priority = {"after_train_iter": 95}

    def after_train_iter(self) -> None: ...

    def after_val(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "at_iteration", "at_validation"),
    [
        (None, 95, 40),
        ("low", 95, 70),
        (20, 95, 20),
        ({"after_train_iter": "HIGHEST"}, 0, 40),
        ({"after_step": 3}, 3, 40),
        ({"after_val": 7}, 95, 7),
    ],
)
def test_the_configuration_replaces_the_class_and_the_point_replaces_both(
    given: Any, at_iteration: int, at_validation: int
) -> None:
    hook = Averaged() if given is None else Averaged(priority=given)
    assert (hook_priority(hook, "after_train_iter"), hook_priority(hook, "after_val")) == (at_iteration, at_validation)


class Placed(BaseHook):
    @at("before_train_iter", order=Order.OUTERMOST)
    def before_train_iter(self) -> None: ...

    @at("before_train_iter", order=Order.INNERMOST)
    def begin_step(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "named", "beside"),
    [
        (None, Order.OUTERMOST, Order.INNERMOST),
        ("LOW", Order.OUTERMOST, Order.INNERMOST),
        ({"before_train_iter": 40}, 40, Order.INNERMOST),
    ],
)
def test_settings_move_only_the_method_named_like_the_point(given: Any, named: int, beside: int) -> None:
    hook = Placed() if given is None else Placed(priority=given)
    slots = {slot.method: slot.priority for slot in Plan({"placed": hook}).at("before_train_iter")}
    assert slots == {"before_train_iter": named, "begin_step": beside}


def test_outer_places_are_out_of_reach_of_settings() -> None:
    assert Order.OUTERMOST < Order.OUTER < Priority.HIGHEST
    with pytest.raises(ValueError, match="not a priority"):
        Priority.value_of(-2)
