"""`marks.py`: a change of a value is seen wherever it is; logs and caches are told from what would be missed."""

from __future__ import annotations

import enum
import itertools
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from ignite_hooks.checkpoint.script.marks import is_missed, log_size, mark_of


class Stage(enum.Enum):
    WARM = 1
    MAIN = 2


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
        (array("d", [0]), array("d", [1])),
        (slice(1), slice(2)),
        (torch.Size([1]), torch.Size([2])),
        (torch.float32, torch.bfloat16),
        (numpy.ma.zeros(1), numpy.ma.ones(1)),
        (numpy.zeros(1, dtype=[("a", "i4")]), numpy.ones(1, dtype=[("a", "i4")])),
        (MappingProxyType({1: 2}), MappingProxyType({1: 3})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_change_is_seen(before: Any, after: Any) -> None:
    mark = mark_of(before)
    assert mark.is_of(before)
    assert not mark.is_of(after)


def test_an_iterator_has_changed_when_it_was_drawn_from() -> None:
    letters = [1, 2, 3]
    for iterator in (counts(), iter(letters), zip(letters, letters, strict=True), itertools.chain(letters, letters)):
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


def test_a_weight_is_changed_by_nothing_but_another_in_its_place() -> None:
    weight = nn.Parameter(torch.zeros(1))
    mark = mark_of([("weight", weight)])
    with torch.no_grad():
        weight.add_(1)
    assert mark.is_of([("weight", weight)])
    assert not mark.is_of([("weight", nn.Parameter(torch.ones(1)))])


def test_what_counts_in_entries_it_makes_is_no_cache() -> None:
    for empty, later, is_one_that_counts in (({}, {1: object()}, False), (None, defaultdict(object), True)):
        first = mark_of(empty if empty is not None else defaultdict(object))
        assert is_missed(later, first) is is_one_that_counts


def test_another_kind_of_value_than_at_the_start_is_judged() -> None:
    for before in (torch.zeros(1), b"a", iter([]), range(1), numpy.zeros(1)):
        assert is_missed({1: object()}, mark_of(before))
