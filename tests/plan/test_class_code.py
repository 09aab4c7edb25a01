"""What a class assigns and reads is read from its code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from ignite_hooks.plan.class_code import (
    attributes_assigned_in,
    attributes_read_in,
    keeps_keywords,
    methods_in,
    words_in,
)


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


def test_variables_are_known_where_instructions_take_several_at_once() -> None:
    class Loops:
        def act(self, runner: Any, those: Any) -> None:
            for one in those:
                runner.stop(one)
            for value, here in those:
                value.mark = here.place
            runner.where = those

    assert attributes_read_in([Loops], of="runner") == {"stop"}
    assert attributes_assigned_in([Loops], of="runner") == {"where"}
    assert attributes_read_in([Loops], of="here") == {"place"}
    assert attributes_assigned_in([Loops], of="value") == {"mark"}


def test_what_is_read_of_a_parent_is_of_no_variable() -> None:
    class Reads(Parent):
        def set_up(self) -> None:
            super().set_up()
            print(super().size)

    assert attributes_read_in([Reads]) == {"set_up", "size"}
    assert attributes_read_in([Reads], of="self") == frozenset()


class Keeps:
    def __init__(self, **more: Any) -> None:
        self.more = more
        print(more)


class HandsOn:
    def __init__(self, *given: Any, wanted: int = 0, **more: Any) -> None:
        super().__init__(*given, **more)


class AsksLater:
    def __init__(self, **more: Any) -> None:
        self.ask = lambda name: more[name]


class AsksInALoop:
    def __init__(self, names: Any, **more: Any) -> None:
        for name in names:
            more.pop(name)
        super().__init__(**more)


class HasNone:
    def __init__(self, wanted: int) -> None:
        print(wanted, wanted)


class IsBuiltIn(dict[str, Any]): ...


@pytest.mark.parametrize(
    ("cls", "kept"),
    [(Keeps, True), (HandsOn, False), (AsksLater, True), (AsksInALoop, True), (HasNone, False), (IsBuiltIn, False)],
)
def test_keywords_that_are_only_handed_on_are_not_kept(cls: type, kept: bool) -> None:
    assert keeps_keywords([cls]) is kept
    assert keeps_keywords([HasNone, cls]) is kept


def test_texts_and_names_of_inner_functions_are_found_too() -> None:
    class Inner:
        def act(self) -> Any:
            def later(wall: Any) -> Any:
                return getattr(wall, "hit") in ("soft", "hard", 3)  # noqa: B009

            return later

    assert {"wall", "hit", "soft", "hard", "getattr", "self"} <= words_in([Inner])
    assert 3 not in words_in([Inner])
