"""Mistakes in a hook are found when it is registered."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest

from ignite_hooks import BaseHook
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.plan.hook_problems import problems_of
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.plan import Plan


def test_problems_of_a_hook_name_setting_or_method() -> None:
    class Slips(BaseHook):
        def after_train_itr(self) -> None: ...

        def before_my_epoch(self) -> None: ...

    found = problems_of(Slips(priority={"after_lunch": 5, "after_epoch": 101}, interval=0))
    assert [setting for setting, _ in found] == ["after_train_itr", "priority", "priority", "interval"]
    assert "did you mean 'after_train_iter'?" in found[0][1]
    assert "no point 'after_lunch'" in found[1][1]
    assert "101" in found[2][1]


class Foreign(BaseHook):
    """Has the points of other frameworks; the answer is the nearest point here."""

    def on_train_batch_end(self) -> None: ...

    def on_epoch_end(self) -> None: ...

    def before_iter(self) -> None: ...

    def after_iter(self) -> None: ...

    def on_fit_start(self) -> None: ...

    def on_validation_epoch_end(self) -> None: ...

    def on_lunch(self) -> None: ...

    def epoch_completed(self) -> None: ...

    def after_batch(self) -> None: ...


MEANT = {
    "on_train_batch_end": "after_train_iter",
    "on_epoch_end": "after_epoch",
    "before_iter": "before_train_iter",
    "after_iter": "after_train_iter",
    "on_fit_start": "before_run",
    "on_validation_epoch_end": "after_val_epoch",
    "epoch_completed": "after_epoch",
    "after_batch": "after_train_iter",
}


def test_points_of_other_frameworks_are_refused_with_the_nearest_of_ours() -> None:
    found = dict(problems_of(Foreign()))
    assert found.keys() == {*MEANT, "on_lunch"}
    assert [name for name, point in MEANT.items() if f"did you mean {point!r}?" not in found[name]] == []
    assert 'custom_points = ("on_lunch",)' in found["on_lunch"]


def test_a_class_lists_the_custom_points_that_have_such_names() -> None:
    class Listed(Foreign):
        custom_points = (*MEANT, "on_lunch", "after_train_itr")

        def after_train_itr(self) -> None: ...

    assert problems_of(Listed()) == []


def test_other_names_stay_custom_points() -> None:
    class Own(BaseHook):
        on_what = "an attribute"

        def before_my_epoch(self) -> None: ...

        def reset(self) -> None: ...

        def _on_epoch_end(self) -> None: ...

        def on_exception(self) -> None: ...

    assert problems_of(Own()) == []


def test_a_custom_point_that_the_class_lists_must_be_there() -> None:
    class Without(BaseHook):
        custom_points = ("on_lunch",)

        def on_lunsh(self) -> None: ...

    assert [name for name, _ in problems_of(Without())] == ["custom_points", "on_lunsh"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"after_train_itr": 5}, "no point 'after_train_itr', did you mean 'after_train_iter'?"),
        ({"after_epoch": 500}, "after_epoch: 500 is not a priority"),
        ({"after_lunch": 5}, "no point 'after_lunch'"),
        ({"after_epoch": "LOW", "mine": 5, "write": 7, "after_step": 7, "after_val": 5}, None),
        ([5], "a mapping of points to priorities is needed"),
        (None, None),
    ],
)
def test_priorities_of_single_points_are_checked(given: Any, expected: str | None) -> None:
    class Placed(BaseHook):
        point_priority = given

        def after_epoch(self) -> None: ...

        def after_step(self) -> None: ...

        @at("after_train_iter")
        def write(self) -> None: ...

        def mine(self) -> None: ...

    found = problems_of(Placed())
    assert [setting for setting, _ in found] == (["point_priority"] if expected else [])
    assert expected is None or expected in found[0][1]


def test_a_priority_of_a_point_counts_under_any_of_its_names() -> None:
    class Aliased(BaseHook):
        point_priority: ClassVar = {"after_step": 95}

        def after_train_iter(self) -> None: ...

    assert Plan({"hook": Aliased()}).at("after_train_iter")[0].priority == 95


async def later(*_: Any) -> None: ...


def lazily(*_: Any) -> Iterator[None]:
    yield


async def lazily_later(*_: Any) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("method", [later, lazily, lazily_later, functools.partial(later)])
@pytest.mark.parametrize("point", ["after_train_iter", "after_step", "lunch"])
def test_a_method_that_would_never_run_is_refused(method: Any, point: str) -> None:
    cls = type("Waiting", (BaseHook,), {point: method, "custom_points": ("lunch",) if point == "lunch" else ()})
    if not isinstance(method, functools.partial):
        [(name, message)] = problems_of(cls())
        assert (name, "def" in message) == (point, True)
    with pytest.raises(SettingError, match=f"{point}: .*def"):
        LambdaHook(**{point: method})
