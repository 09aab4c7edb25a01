"""`plain_values.py`: what is saved of a value comes back as it was; a change is seen wherever it is."""

from __future__ import annotations

import enum
import itertools
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from ignite_hooks.checkpoint.script.plain_values import (
    CANNOT,
    MOST_LEAVES,
    NO_STATE,
    as_before,
    log_size,
    mark_of,
    plain_of,
)


class Stage(enum.Enum):
    WARM = 1
    MAIN = 2


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
        *(object(), torch.zeros(2**23), [object()], [Stage.WARM], list(range(MOST_LEAVES + 1)), 1 << 4000),
        *(numpy.array([None]), numpy.zeros(2**22), "a" * 2**25, [defaultdict(int)], iter([1])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_not_kept(value: Any) -> None:
    assert plain_of(value) is CANNOT


@pytest.mark.parametrize(
    "value", [nn.Parameter(torch.zeros(1)), time.time(), [time.time()]], ids=["weight", "time", "list of times"]
)
def test_weights_and_times_are_no_state(value: Any) -> None:
    assert plain_of(value) is NO_STATE


def test_a_tensor_that_points_into_the_model_is_not_copied() -> None:
    model = nn.Linear(2, 2)
    assert plain_of(model.weight.detach()[0], {model.weight.untyped_storage().data_ptr()}) is NO_STATE


def test_a_tensor_is_changed_where_it_is_another_or_was_written_to() -> None:
    tensor = torch.zeros(2)
    mark = mark_of(tensor)
    assert mark.is_of(tensor)
    assert not mark.is_of(torch.zeros(2))
    tensor.add_(1)
    assert not mark.is_of(tensor)


def counts() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def one() -> None: ...


def two() -> None: ...


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({1: 2}, {1: 3}),
        ([[1], [2]], [[1], [3]]),
        ([1] * 200, [1] * 199 + [2]),
        ([torch.zeros(1)] * 99, [torch.ones(1)] * 99),
        ({str(number): torch.zeros(1) for number in range(99)}, {str(number): torch.ones(1) for number in range(99)}),
        (Counter(a=1), Counter(a=2)),
        ({1}, {2}),
        (numpy.float32(1), numpy.float32(2)),
        (numpy.array([None]), numpy.array([1], dtype=object)),
        (Stage.WARM, Stage.MAIN),
        (one, two),
        (itertools.count(1), itertools.count(2)),
        (1j, 2j),
        (b"a", b"b"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_change_is_seen(before: Any, after: Any) -> None:
    mark = mark_of(before)
    assert mark.is_of(before)
    assert not mark.is_of(after)


def test_an_iterator_has_changed_when_it_was_drawn_from() -> None:
    for iterator in (counts(), iter([1, 2])):
        mark = mark_of(iterator)
        assert mark.is_of(iterator)
        next(iterator)
        first = mark_of(iterator)
        assert not mark.is_of(iterator)
        next(iterator)
        assert not first.is_of(iterator)


def test_lists_that_may_be_logs_are_measured() -> None:
    assert log_size([0.5, [1, 2], (3,)]) == 4
    assert log_size({0: [1.0], 1: [2.0, 3.0]}) == 3
    assert [log_size(value) for value in ([torch.zeros(1)], (1,), {"a": 1}, {}, deque([1]), [object()])] == [None] * 6
