"""`plain_values.py`: what is saved of a value comes back as it was, or is said to be no value for a file."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import time
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn

from ignite_hooks.checkpoint.script.kinds import MOST_LEAVES
from ignite_hooks.checkpoint.script.marks import mark_of
from ignite_hooks.checkpoint.script.plain_values import CANNOT, NO_STATE, as_before, plain_of


class Stage(enum.Enum):
    WARM = 1
    MAIN = 2


class Parts(enum.Flag):
    HEAD = 1
    BODY = 2
    TAIL = 4


class Best(NamedTuple):
    epoch: int
    score: float


@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    seen: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Narrow:
    number: int


class Level(int):
    pass


class Window(list[Any]):
    pass


@pytest.mark.parametrize(
    "value",
    [
        *(1, 0.5, True, None, "text", 1 + 2j, b"", b"ab\xff"),
        *((1, (2.0, None)), [1, 2], [[1.0], [2, (3,)]], deque([1, 2]), {1, 2}, frozenset({"a"})),
        *({"a": 1}, {1: [2.0], (1, "b"): {"c": None}}, {}),
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    again = as_before(plain_of(value), None)
    assert again == value
    assert type(again) is type(value)


def test_a_number_of_numpy_and_a_counter_come_back() -> None:
    assert as_before(plain_of(numpy.float32(0.5)), None) == 0.5
    count = itertools.count(3, 2)
    next(count)
    again = as_before(plain_of(count), None)
    assert [next(again), next(again)] == [5, 7]


@pytest.mark.parametrize(
    ("there", "later"),
    [
        (defaultdict(int, a=1), {"a": 2, "b": 3}),
        (OrderedDict(a=1), {"b": 1, "a": 2}),
        (Counter("aab"), {"a": 5}),
        ({0: 1.0}, {0: 0.5, 1: 2.0}),
        ({1, 2}, {2, 3}),
        ([1.0], [2.0, 3.0]),
        (deque([1], maxlen=2), [2, 3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_collection_that_is_there_is_filled(there: Any, later: Any) -> None:
    kind = type(there)
    saved = plain_of(deque(later) if kind is deque else later)
    assert as_before(saved, there) is there
    assert there == (deque(later) if kind is deque else later)
    assert type(there) is kind
    if kind is deque:
        assert there.maxlen == 2


def test_collections_within_collections_are_filled_where_they_are() -> None:
    inner = [1.0]
    there = {0: inner}
    as_before(plain_of({0: [5.0]}), there)
    assert there[0] is inner == [5.0]


def test_a_member_of_an_enumeration_comes_back_where_it_has_its_class() -> None:
    saved = plain_of(Stage.MAIN)
    assert as_before(saved, Stage.WARM) is Stage.MAIN
    assert as_before(saved, None) is CANNOT


@pytest.mark.parametrize(
    "value",
    [
        *(object(), torch.zeros(2**23), [object()], list(range(MOST_LEAVES + 1)), 1 << 4000),
        *(numpy.array([None]), numpy.zeros(2**22), "a" * 2**25, [defaultdict(int)], iter([1])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_not_kept(value: Any) -> None:
    assert plain_of(value) is CANNOT


@pytest.mark.parametrize(
    ("later", "now"),
    [
        *((Parts.BODY | Parts.TAIL, Parts.HEAD), (Best(3, 0.5), Best(0, 0.0)), (Phase("main", (1,)), Phase("warm"))),
        *(
            (Narrow(2), Narrow(1)),
            (Level(3), Level(0)),
            (Window([3]), Window([1, 2])),
            (bytearray(b"b"), bytearray(b"a")),
        ),
        *((Decimal("0.3"), Decimal(0)), (Fraction(1, 3), None), (range(2, 9, 3), range(2)), (Path("b"), Path("a"))),
        *(
            ([Stage.MAIN, 2], [Stage.WARM, 1]),
            ({Stage.WARM: 1, Stage.MAIN: 2}, {Stage.WARM: 1}),
            ({Stage.MAIN}, {Stage.WARM}),
        ),
        *(({1: Best(1, 0.5), 2: Best(2, 0.5)}, {1: Best(0, 0.0), 2: Best(0, 0.0)}), ([Phase("b")], [Phase("a")])),
        *((float("inf"), 0.0), ({0: float("inf"), 1: 0.5}, {}), (3.5e12, 0.5), (1.5e9, 0.5)),
    ],
    ids=repr,
)
def test_values_come_back_where_the_script_has_their_class(later: Any, now: Any) -> None:
    assert mark_of(now).is_of(now)
    assert not mark_of(now).is_of(later)
    again = as_before(plain_of(later), now)
    assert again == later
    assert type(again) is type(later)


@pytest.mark.parametrize("number", [numpy.float32(0.1), numpy.uint8(250), numpy.bool_(True), numpy.str_("ab")])
def test_numbers_of_numpy_keep_their_type_wherever_they_are(number: Any) -> None:
    for value in (number, [number], {number: number}):
        again = as_before(plain_of(value), None)
        assert repr(again) == repr(value)


def test_an_array_comes_back_where_there_is_none_yet() -> None:
    again = as_before(plain_of({1: numpy.ones(2, dtype=numpy.float32)}), {})[1]
    assert isinstance(again, numpy.ndarray)
    assert again.dtype == numpy.float32


def test_a_time_within_a_collection_costs_nothing_else() -> None:
    saved = plain_of({0: (3, time.time()), 1: [4, 0.5]})
    today = time.time() + 1000.25
    assert as_before(saved, {0: (0, today), 1: [0, 0.0]}) == {0: (3, today), 1: [4, 0.5]}
    assert as_before(saved, {})[0][0] == 3


def test_weights_within_a_collection_cost_nothing_else() -> None:
    one, two = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(1))
    saved = plain_of({one: 0.5, two: 1.5, "best": (3, one)})
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(1))
    there = {first: 0.0, second: 0.0, "best": (0, first)}
    assert as_before(saved, there) is there
    assert list(there.values()) == [0.5, 1.5, (3, first)]
    assert there[second] == 1.5


def test_ids_of_weights_are_those_of_today() -> None:
    one, today = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    saved = plain_of({id(one): 0.5}, {id(one)})
    assert as_before(saved, {id(today): 0.0}) == {id(today): 0.5}


@pytest.mark.parametrize(
    ("later", "now"),
    [
        *((Best(1, 2.0), None), (Phase("b"), Best(0, 0.0)), ({1: [Stage.MAIN]}, {1: []}), (Level(1), None)),
        *(((3, nn.Parameter(torch.zeros(1))), None), ({nn.Parameter(torch.zeros(1)): 1}, {})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_whose_parts_are_not_there_changes_nothing(later: Any, now: Any) -> None:
    before = repr(now)
    assert as_before(plain_of(later), now) is CANNOT
    assert repr(now) == before


@pytest.mark.parametrize(
    "value", [nn.Parameter(torch.zeros(1)), time.time(), [time.time()]], ids=["weight", "time", "list of times"]
)
def test_weights_and_times_are_no_state(value: Any) -> None:
    assert plain_of(value) is NO_STATE


def test_a_tensor_that_points_into_the_model_is_not_copied() -> None:
    model = nn.Linear(2, 2)
    assert plain_of(model.weight.detach()[0], {model.weight.untyped_storage().data_ptr()}) is NO_STATE
