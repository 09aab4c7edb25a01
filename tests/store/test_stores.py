"""What every store does, `memory.py` and `folder.py` alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore, Kind, MemoryStore, Store

MakeState = Callable[[int], dict[str, Any]]


@pytest.fixture(params=["folder", "memory"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "checkpoints")
    with store:
        yield store


def save(store: Store, make_state: MakeState, iteration: int, kind: Kind = "periodic") -> Path:
    name = f"{kind}_{iteration}.pth"
    return store.save(name, make_state(iteration), kind=kind, epoch=0, iteration=iteration)


def iterations(store: Store) -> list[int]:
    return [entry.iteration for entry in store.entries()]


def test_a_state_comes_back(any_store: Store, make_state: MakeState) -> None:
    path = save(any_store, make_state, 7)
    loaded = any_store.load(path)
    assert loaded["number"] == 7
    assert torch.equal(loaded["state_dict"]["weight"], torch.full((64,), 7.0))


def test_what_is_loaded_is_a_copy(any_store: Store, make_state: MakeState) -> None:
    state = make_state(1)
    path = any_store.save("a.pth", state, kind="manual", epoch=0, iteration=0)
    state["state_dict"]["weight"].zero_()
    any_store.load(path)["state_dict"]["weight"].zero_()
    assert any_store.load(path)["state_dict"]["weight"][0] == 1


def test_an_entry_says_what_was_saved(any_store: Store, make_state: MakeState) -> None:
    metrics = {"acc": torch.tensor(0.5), "loss": math.nan}
    any_store.save("a.pth", make_state(1), kind="best", epoch=3, iteration=30, metrics=metrics)
    (entry,) = any_store.entries()
    assert (entry.name, entry.kind, entry.epoch, entry.iteration) == ("a.pth", "best", 3, 30)
    assert entry.metrics["acc"] == 0.5
    assert math.isnan(entry.metrics["loss"])
    assert any_store.verify(entry) is None


def test_a_name_saved_again_is_replaced(any_store: Store, make_state: MakeState) -> None:
    for number in 1, 2:
        path = any_store.save("last.pth", make_state(number), kind="last", epoch=0, iteration=number)
    assert iterations(any_store) == [2]
    assert any_store.load(path)["number"] == 2


def test_a_state_that_is_not_plain_is_refused_and_nothing_changes(any_store: Store, make_state: MakeState) -> None:
    save(any_store, make_state, 1)
    with pytest.raises(CheckpointError, match=r"^hook\.lambda: cannot be saved: function"):
        any_store.save("b.pth", {"hook": {"lambda": lambda: 1}}, kind="best", epoch=0, iteration=2)
    assert iterations(any_store) == [1]


@pytest.mark.parametrize("name", ["../evil.pth", "/evil.pth", "a/b.pth", ".lock", "manifest.json", ""])
def test_a_name_that_leaves_the_store_is_refused(any_store: Store, make_state: MakeState, name: str) -> None:
    with pytest.raises(CheckpointError, match="is not a name for a checkpoint"):
        any_store.save(name, make_state(1), kind="manual", epoch=0, iteration=1)


def test_newest_of_an_empty_store_is_none(any_store: Store) -> None:
    assert any_store.newest() is None


def test_newest_goes_by_iteration_not_by_time(any_store: Store, make_state: MakeState) -> None:
    for iteration in 30, 10, 20:
        save(any_store, make_state, iteration)
    newest = any_store.newest()
    assert newest is not None
    assert newest.name == "periodic_30.pth"


@pytest.mark.parametrize(
    ("kinds", "preferred"),
    [
        (["best", "periodic"], "periodic"),
        (["periodic", "best"], "periodic"),
        (["last", "periodic", "best"], "last"),
        (["best", "exception"], "exception"),
        (["manual", "exception"], "manual"),
    ],
)
def test_at_one_iteration_newest_prefers_what_is_meant_for_resuming(
    any_store: Store, make_state: MakeState, kinds: list[Kind], preferred: str
) -> None:
    for kind in kinds:
        save(any_store, make_state, 10, kind)
    newest = any_store.newest()
    assert newest is not None
    assert newest.name == f"{preferred}_10.pth"


def test_delete_removes_only_what_is_listed(any_store: Store, make_state: MakeState) -> None:
    for iteration in 10, 20:
        save(any_store, make_state, iteration)
    first = any_store.entries()[0]
    any_store.delete([first])
    any_store.delete([first])
    assert iterations(any_store) == [20]
    with pytest.raises(CheckpointError):
        any_store.load(Path("periodic_10.pth"))


def test_prune_keeps_the_newest_and_the_protected(any_store: Store, make_state: MakeState) -> None:
    for iteration in 10, 20, 30, 40:
        save(any_store, make_state, iteration)
    gone = any_store.prune(2, protected=["periodic_10.pth"])
    assert [entry.iteration for entry in gone] == [20]
    assert iterations(any_store) == [10, 30, 40]


def test_prune_never_removes_what_was_just_saved(any_store: Store, make_state: MakeState) -> None:
    for iteration in 90, 100, 60:
        save(any_store, make_state, iteration)
    any_store.prune(1)
    assert iterations(any_store) == [100, 60]


def test_loading_a_missing_name_is_an_error(any_store: Store) -> None:
    with pytest.raises(CheckpointError, match="cannot load"):
        any_store.load(Path("nothing.pth"))


def test_closing_twice_is_fine(any_store: Store) -> None:
    any_store.close()
    any_store.close()
