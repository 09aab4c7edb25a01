"""What every store does, `memory.py` and `folder.py` alike."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import Entry, FolderStore, Kind, MemoryStore, Retire, Saving, Store
from tests.store.conftest import all_but_newest

MakeState = Callable[[int], dict[str, Any]]


@pytest.fixture(params=["folder", "memory"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "checkpoints")
    with store:
        yield store


def save(
    store: Store, make_state: MakeState, iteration: int, kind: Kind = "periodic", retire: Retire | None = None
) -> Path:
    name = f"{kind}_{iteration}.pth"
    return store.save(name, make_state(iteration), kind=kind, epoch=0, iteration=iteration, retire=retire)


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


def test_a_refused_state_changes_nothing(any_store: Store, make_state: MakeState) -> None:
    save(any_store, make_state, 1)
    with pytest.raises(CheckpointError, match=r"^hook\.lambda: cannot be saved: function"):
        any_store.save("b.pth", {"hook": {"lambda": lambda: 1}}, kind="best", epoch=0, iteration=2)
    assert iterations(any_store) == [1]


def begin(store: Store, make_state: MakeState, iteration: int, **more: Any) -> Saving:
    name = f"periodic_{iteration}.pth"
    return store.begin(name, make_state(iteration), kind="periodic", epoch=0, iteration=iteration, **more)


def test_a_state_whose_save_has_begun_comes_back(any_store: Store, make_state: MakeState) -> None:
    saving = begin(any_store, make_state, 7)
    path = saving.wait()
    assert (path, saving.wait(), saving.done()) == (saving.path, path, True)
    assert any_store.load(path)["state_dict"]["weight"].tolist() == [7] * 64
    assert any_store.verify(any_store.entries()[0]) is None


@pytest.mark.parametrize("steady", [True, False])
def test_a_state_may_change_once_it_is_copied(any_store: Store, make_state: MakeState, steady: bool) -> None:
    state = make_state(1)
    weight = state["state_dict"]["weight"]
    state["sparse"], state["slice"], state["list"] = torch.eye(2).to_sparse(), torch.ones(100)[:3], [1]
    saving = any_store.begin(
        "a.pth", state, kind="last", epoch=0, iteration=1, steady=[weight] if steady else [], metrics={"acc": 1}
    )
    state["list"].append(2)
    state["slice"].zero_()
    state["sparse"].values().zero_()
    if steady:
        saving.wait_copied()
    weight.zero_()
    loaded = any_store.load(saving.wait())
    assert loaded["state_dict"]["weight"].tolist() == [1] * 64
    assert (loaded["slice"].tolist(), loaded["list"]) == ([1, 1, 1], [1])
    assert loaded["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]


def test_a_refused_state_is_refused_when_the_save_begins(any_store: Store) -> None:
    with pytest.raises(CheckpointError, match=r"^hook\.lambda: cannot be saved: function"):
        any_store.begin("b.pth", {"hook": {"lambda": lambda: 1}}, kind="best", epoch=0, iteration=2)
    assert any_store.entries() == []


@pytest.mark.parametrize("way", ["save", "begin"])
def test_what_is_to_retire_is_chosen_from_all_and_goes(any_store: Store, make_state: MakeState, way: str) -> None:
    save(any_store, make_state, 1)
    save(any_store, make_state, 2)
    seen: list[list[int]] = []

    def retire(entries: list[Entry]) -> list[Entry]:
        seen.append([entry.iteration for entry in entries])
        return [entry for entry in entries if entry.iteration != 2]

    given: dict[str, Any] = {"kind": "periodic", "epoch": 0, "iteration": 3, "retire": retire}
    if way == "save":
        any_store.save("c.pth", make_state(3), **given)
    else:
        any_store.begin("c.pth", make_state(3), **given).wait()
    assert seen == [[1, 2, 3]]
    assert iterations(any_store) == [2, 3], "what was just saved never goes"


@pytest.mark.parametrize("way", ["save", "begin"])
def test_a_save_counts_although_nothing_could_retire(
    any_store: Store, make_state: MakeState, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(entries: list[Entry]) -> list[Entry]:
        raise RuntimeError("no idea")

    given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": 3, "retire": fail}
    if way == "save":
        any_store.save("c.pth", make_state(3), **given)
    else:
        any_store.begin("c.pth", make_state(3), **given).wait()
    assert iterations(any_store) == [3]
    assert "c.pth is saved, but what it replaces could not be deleted" in caplog.text
    assert "no idea" in caplog.text


def test_the_callback_runs_when_a_save_has_ended(any_store: Store, make_state: MakeState) -> None:
    told: list[int] = []
    begin(any_store, make_state, 1, done=lambda: told.append(1))
    any_store.close()
    assert told == [1]


def test_a_published_name_holds_the_hash_of_its_content(any_store: Store, make_state: MakeState) -> None:
    given: dict[str, Any] = {"kind": "published", "epoch": 0, "iteration": 1}
    paths = [
        any_store.save("net-{hash}.pth", make_state(1), **given),
        any_store.begin("net-{hash}.pth", make_state(1), **given).wait(),
        any_store.begin("net-{hash}.pth", make_state(2), **given).wait(),
    ]
    assert all(re.fullmatch(r"net-[0-9a-f]{8}\.pth", path.name) for path in paths)
    assert paths[0] == paths[1] != paths[2]
    assert any_store.load(paths[1])["number"] == 1
    assert [entry.name for entry in any_store.entries()] == [paths[0].name, paths[2].name]


@pytest.mark.parametrize("name", ["{hash}-{hash}.pth", "{size}.pth", "{hash.pth", "../{hash}", "x" * 193 + "{hash}"])
@pytest.mark.parametrize("way", ["save", "begin"])
def test_other_braces_are_refused(any_store: Store, make_state: MakeState, way: str, name: str) -> None:
    with pytest.raises(CheckpointError, match="is not a name for a checkpoint"):
        getattr(any_store, way)(name, make_state(1), kind="published", epoch=0, iteration=1)


def test_a_published_file_is_never_resumed_from(any_store: Store, make_state: MakeState) -> None:
    save(any_store, make_state, 50, "published")
    assert any_store.newest() is None
    for iteration in 10, 20:
        save(any_store, make_state, iteration)
    newest = any_store.newest()
    assert newest is not None
    assert newest.name == "periodic_20.pth"


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
        (["best", "exception"], "best"),
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


def test_only_listed_files_retire(any_store: Store, make_state: MakeState) -> None:
    for iteration in 10, 20:
        save(any_store, make_state, iteration)
    first = any_store.entries()[0]
    stranger = Entry("stranger.pth", 1, "xxh3_128:" + "0" * 32, 0, 0)
    for iteration in 30, 40:
        save(any_store, make_state, iteration, retire=lambda entries: [first, stranger, first])
    assert iterations(any_store) == [20, 30, 40]
    with pytest.raises(CheckpointError):
        any_store.load(Path("periodic_10.pth"))


def test_what_was_just_saved_never_retires(any_store: Store, make_state: MakeState) -> None:
    for iteration in 90, 100, 60:
        save(any_store, make_state, iteration, retire=all_but_newest(1) if iteration == 60 else None)
    assert iterations(any_store) == [100, 60]


def test_loading_a_missing_name_is_an_error(any_store: Store) -> None:
    with pytest.raises(CheckpointError, match="cannot load"):
        any_store.load(Path("nothing.pth"))


def test_closing_twice_is_fine(any_store: Store) -> None:
    any_store.close()
    any_store.close()
