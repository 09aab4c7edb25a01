"""`reachable.py`: what a script's objects and functions hold is found, and nothing is searched for ever."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest

from ignite_hooks.checkpoint.script.reachable import MOST_OBJECTS, reach


class Thing:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def method(self) -> None: ...


WANTED = Thing()
other: Any = sys.modules[__name__]  # as a module of the script that another one imports


def naming_a_global() -> Thing:
    return WANTED


def closing_over() -> Any:
    wanted = WANTED
    return lambda: wanted


class Slotted:
    __slots__ = ("held", "other")

    def __init__(self) -> None:
        self.held = WANTED


class Holding:
    shared = WANTED


def with_an_attribute() -> Any:
    def function() -> None: ...

    function.held = WANTED  # type: ignore[attr-defined]
    return function


class Naming:
    def __iter__(self) -> Any:
        return WANTED


@pytest.mark.parametrize(
    ("holder", "place"),
    [
        (Thing(held=WANTED), "root.held"),
        (Thing(held=[1, {"key": WANTED}]), "root.held.1.key"),
        (naming_a_global, "root.globals.WANTED"),
        (lambda: naming_a_global(), "root.globals.naming_a_global.globals.WANTED"),
        (closing_over(), "root.wanted"),
        (functools.partial(print, WANTED), "root.0"),
        (WANTED.method, "root.__self__"),
        (lambda given=WANTED: given, "root.0"),
        (Naming(), "root.globals.WANTED"),
        (Slotted(), "root.held"),
        (Holding(), "root.shared"),
        (lambda: Holding, "root.globals.Holding.shared"),
        (with_an_attribute(), "root.held"),
        (lambda: other.WANTED, "root.globals.other.WANTED"),
        (functools.wraps(closing_over())(lambda: None), "root.__wrapped__.wanted"),
    ],
)
def test_what_is_held_is_found_with_its_place(holder: Any, place: str) -> None:
    assert {found.place: found.thing for found in reach({"root": holder})}[place] is WANTED


def test_the_name_of_an_attribute_is_no_global() -> None:
    def function(thing: Any) -> Any:
        return thing.WANTED

    assert [found.place for found in reach({"root": function})] == ["root"]


def test_long_collections_and_rings_end_the_search() -> None:
    ring = Thing(samples=[Thing()] * 100_000)
    ring.ring = [ring]  # type: ignore[attr-defined]
    assert len(list(reach({"root": ring}))) < 10
    many = {f"root{index}": Thing() for index in range(2 * MOST_OBJECTS)}
    assert len(list(reach(many))) <= MOST_OBJECTS
