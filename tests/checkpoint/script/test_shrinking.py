"""`shrinking.py`: code that takes something out of a list is found by its instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ignite_hooks.checkpoint.script.shrinking import taken_from

LIST: list[Any] = []
BY_NAME: dict[str, list[Any]] = {}


class Step:
    window: list[Any]

    def __init__(self) -> None:
        self.window = []


def appends(self: Step, value: Any) -> None:
    LIST.append(value)
    LIST.extend([value])
    self.window += [value]


def reads(self: Step, value: Any) -> Any:
    shown = {"mean": 0.0}
    shown["mean"] = sum(LIST[-10:]) / max(LIST)
    return shown


def makes_longer(self: Step, value: Any) -> None:
    self.window = [*self.window, value]


def deletes(self: Step, value: Any) -> None:
    del LIST[:-3]


def deletes_deeper(self: Step, value: Any) -> None:
    del BY_NAME[value][:-3]


def pops(self: Step, value: Any) -> None:
    BY_NAME["a"].pop(0)


def clears(self: Step, value: Any) -> None:
    self.window.clear()


def slices(self: Step, value: Any) -> None:
    self.window = [*self.window, value][-3:]


def begins_anew(self: Step, value: Any) -> None:
    self.window = []


def replaces(self: Step, value: Any) -> None:
    LIST[value % 3] = value


def within(self: Step, value: Any) -> Any:
    return lambda: self.window.remove(value)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (Step.__init__, set()),
        (appends, set()),
        (reads, set()),
        (makes_longer, set()),
        (deletes, {"LIST"}),
        (deletes_deeper, {"BY_NAME"}),
        (pops, {"BY_NAME"}),
        (clears, {"window"}),
        (slices, {"window"}),
        (begins_anew, {"window"}),
        (replaces, {"LIST"}),
        (within, {"window"}),
    ],
)
def test_what_code_takes_from_is_found(function: Callable[..., Any], found: set[str]) -> None:
    assert taken_from(function.__code__) == found


def makes() -> Callable[[], None]:
    made = [1, 2]
    return lambda: made.append(3)


def makes_anew() -> Callable[[], None]:
    made = [1, 2]

    def anew() -> None:
        nonlocal made
        made = []

    return lambda: made.extend([anew()])


def test_where_a_variable_of_a_closure_begins_nothing_is_taken() -> None:
    assert (taken_from(makes.__code__), taken_from(makes_anew.__code__)) == (set(), {"made"})
