"""`retention.py`: which files may go."""

from __future__ import annotations

import random

import pytest

from ignite_hooks.checkpoint.retention import to_delete
from ignite_hooks.store import Entry, Kind


def entry(iteration: int, kind: Kind = "periodic") -> Entry:
    return Entry(f"{kind}_{iteration}.pth", 1, "0" * 64, 0, iteration, {}, kind)


@pytest.mark.parametrize(
    ("iterations", "keep", "protected", "deleted"),
    [
        ([], 3, [], []),
        ([10, 20, 30], 3, [], []),
        ([10, 20, 30, 40], 3, [], [10]),
        ([10, 20, 30, 40], 1, [], [10, 20, 30]),
        ([10, 20, 30, 40], 0, [], [10, 20, 30, 40]),
        ([10, 20, 30, 40], -1, [], []),
        ([40, 10, 30, 20], 2, [], [10, 20]),
        ([10, 20, 30, 40], 2, [10], [20]),
        ([10, 20, 30, 40], 2, [40], [10, 20]),
        ([10, 20, 30, 40], 0, [10, 20, 30, 40], []),
    ],
)
def test_the_newest_periodic_ones_stay(
    iterations: list[int], keep: int, protected: list[int], deleted: list[int]
) -> None:
    entries = [entry(iteration) for iteration in iterations]
    names = {entry(iteration).name for iteration in protected}
    assert [gone.iteration for gone in to_delete(entries, keep, names)] == deleted


@pytest.mark.parametrize("kind", ["best", "last", "manual", "exception", "published"])
def test_other_kinds_neither_count_nor_go(kind: Kind) -> None:
    entries = [entry(5, kind), entry(10), entry(20), entry(99, kind)]
    assert to_delete(entries, 1) == [entry(10)]
    assert to_delete(entries, 2) == []


def test_less_than_minus_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="keep is -2"):
        to_delete([], -2)


def test_any_mixture_keeps_the_rules() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(300):
        kinds: list[Kind] = ["periodic", "periodic", "best", "last", "manual", "exception"]
        entries = [entry(iteration, draw.choice(kinds)) for iteration in draw.sample(range(99), 12)]
        keep = draw.randrange(8)
        protected = {each.name for each in draw.sample(entries, draw.randrange(4))}
        gone = to_delete(entries, keep, protected)
        stays = [each for each in entries if each not in gone and each.kind == "periodic"]
        newest = sorted((each.iteration for each in entries if each.kind == "periodic"), reverse=True)[:keep]
        assert all(each.kind == "periodic" and each.name not in protected for each in gone)
        assert {each.iteration for each in stays if each.name not in protected} <= set(newest)
        assert set(newest) <= {each.iteration for each in stays}
