"""`retention.py`: which files may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.checkpoint.retention import DropFailures, KeepBest, KeepLast, Replace, retired_by, to_delete
from ignite_hooks.store import Entry, Kind
from tests.properties import tried


def entry(iteration: int, kind: Kind = "periodic") -> Entry:
    return Entry(f"{kind}_{iteration}.pth", 1, "xxh3_128:" + "0" * 32, 0, iteration, {}, kind)


def named(name: str, iteration: int, epoch: int, kind: Kind = "periodic") -> Entry:
    return Entry(name, 1, "xxh3_128:" + "0" * 32, epoch, iteration, {}, kind)


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
    assert [gone.iteration for gone in to_delete(entries, [KeepLast(keep)], names)] == deleted


@pytest.mark.parametrize("kind", ["best", "last", "manual", "exception", "published"])
def test_other_kinds_neither_count_nor_go(kind: Kind) -> None:
    entries = [entry(5, kind), entry(10), entry(20), entry(99, kind)]
    assert KeepLast(1).to_delete(entries) == [entry(10)]
    assert KeepLast(2).to_delete(entries) == []


def test_less_than_minus_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="count is -2"):
        KeepLast(-2)


MIXTURES = st.lists(
    st.builds(entry, st.integers(0, 99), st.sampled_from(["periodic", "best", "last", "manual", "exception"])),
    max_size=12,
    unique_by=lambda each: each.iteration,
)


@tried(300)
@given(entries=MIXTURES, keep=st.integers(0, 7), chosen=st.sets(st.integers(0, 11), max_size=3))
def test_any_mixture_keeps_the_rules(entries: list[Entry], keep: int, chosen: set[int]) -> None:
    protected = {each.name for number, each in enumerate(entries) if number in chosen}
    gone = to_delete(entries, [KeepLast(keep)], protected)
    stays = [each for each in entries if each not in gone and each.kind == "periodic"]
    newest = sorted((each.iteration for each in entries if each.kind == "periodic"), reverse=True)[:keep]
    assert all(each.kind == "periodic" and each.name not in protected for each in gone)
    assert {each.iteration for each in stays if each.name not in protected} <= set(newest)
    assert set(newest) <= {each.iteration for each in stays}


def test_only_names_of_the_template_count() -> None:
    entries = [named("epoch_1.pth", 10, 1), named("iter_20.pth", 20, 2), named("epoch_3", 30, 3), entry(40)]
    assert KeepLast(1, "epoch_{}.pth").to_delete(entries) == entries[:1]
    assert KeepLast(0, "epoch_{}.pth").to_delete(entries) == [entries[0], entries[2]]
    assert KeepLast(0, "iter_{}.pth", by_epoch=False).to_delete(entries) == [entries[1]]


@pytest.mark.parametrize(
    ("kept", "dropped", "gone"),
    [
        ([30], [], [10, 20]),
        ([10, 30], [], [20]),
        ([10, 20, 30], [], []),
        ([30, 50], [20], [20]),
        ([30], [40], [10, 20, 40]),
    ],
    ids=["stale", "one of two", "none", "the best is not there yet", "dropped and further"],
)
def test_best_files_that_no_ranking_holds_go(kept: list[int], dropped: list[int], gone: list[int]) -> None:
    def name(iteration: int) -> str:
        return f"best_acc_iter_{iteration}.pth"

    best = [named(name(iteration), iteration, 1, "best") for iteration in (10, 20, 30, 40)]
    others = [named("best_acc_x_iter_9.pth", 9, 1, "best"), named("best_acc_iter_8.pth", 8, 1, "manual")]
    rule = KeepBest("acc", frozenset(map(name, kept)), 35, frozenset(map(name, dropped)))
    assert [entry.iteration for entry in rule.to_delete([*best, *others])] == gone


def test_a_file_replaces_those_of_its_kind_or_name() -> None:
    failures = [entry(10, "exception"), entry(20), entry(15, "exception")]
    assert Replace("exception").to_delete(failures) == failures[:1]
    names = ("last-01234567.pth", "best-01234567.pth", "last-more-01234567.pth", "last-76543210.pth")
    published = [named(name, 10, 1, "published") for name in names]
    assert Replace("published", "last-{hash}.pth").to_delete(published) == published[:1]


def test_failures_that_the_run_has_passed_go() -> None:
    entries = [entry(10, "exception"), entry(20, "exception"), entry(30, "exception"), entry(20)]
    assert DropFailures().to_delete(entries) == entries[:2]
    assert DropFailures(10).to_delete(entries) == entries[:1]


def test_several_rules_delete_what_any_deletes_but_nothing_protected() -> None:
    entries = [entry(10, "exception"), entry(20), entry(30), entry(40)]
    rules = [KeepLast(1), DropFailures()]
    assert to_delete(entries, rules) == [entries[1], entries[2], entries[0]]
    retire = retired_by(rules, {entries[2].name})
    assert retire is not None
    assert retire(entries) == [entries[1], entries[0]]
    assert retired_by([]) is None
