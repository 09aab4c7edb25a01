"""What a class assigns and reads is read from its code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ignite_hooks.plan.class_code import attributes_assigned_in, attributes_read_in, methods_in


def decorated(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def around(*given: Any) -> Any:
        return method(*given).around

    return around


class Parent:
    def set_up(self) -> None:
        self.ready = self.size > 0

    size = 3


class Child(Parent):
    @decorated
    def act(self, runner: Any) -> Any:
        self.calls, (self.last, _) = runner.epoch, runner.pair
        runner.model.train()
        runner.mode = 3
        return runner.stop("done")


def test_a_class_defines_its_methods_and_not_those_of_its_parent() -> None:
    assert [method.__name__ for method in methods_in([Child])] == ["act"]


def test_attributes_are_told_by_whether_they_are_assigned_or_read() -> None:
    assert attributes_assigned_in([Child, Parent]) == {"calls", "last", "ready", "mode"}
    assert attributes_assigned_in([Child, Parent], of="runner") == {"mode"}
    assert attributes_read_in([Parent]) == {"size"}
    assert attributes_read_in([Child]) == {"epoch", "pair", "model", "train", "stop"}


def test_attributes_of_one_variable_are_told_from_others() -> None:
    assert attributes_read_in([Child, Parent], of="runner") == {"epoch", "pair", "model", "stop"}
