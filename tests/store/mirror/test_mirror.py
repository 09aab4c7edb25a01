"""`mirror.py` and `replica.py`: checkpoints in a second home, in the order of their commits, whatever fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.store import FolderStore, Manifest
from ignite_hooks.store.manifest import FILE_NAME, LARGEST_MANIFEST, Entry
from ignite_hooks.store.mirror import mirror as module
from ignite_hooks.store.mirror.mirror import Mirror
from ignite_hooks.store.mirror.remote import MirrorError, Remote
from ignite_hooks.store.mirror.replica import Replica

RUN, OTHER = "ab" * 8, "cd" * 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    with FolderStore(tmp_path / "run") as opened:
        opened.run = RUN
        yield opened


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def save(store: FolderStore, number: int, name: str = "epoch_{}.pth") -> Entry:
    name = name.format(number)
    store.save(name, {"number": number}, kind="periodic", epoch=number, iteration=number)
    return store.entries()[-1]


def listed(there: Path) -> list[str]:
    return [entry.name for entry in Manifest.load(there).entries]


def mirror(store: FolderStore, there: Path, timeout: float = 30.0) -> Mirror:
    return Mirror(str(there), store.folder, store.folder, logging.getLogger("ignite_hooks"), timeout)


def replica(there: Path) -> Replica:
    return Replica(Remote(str(there)))


def test_what_is_committed_is_there_at_the_end(store: FolderStore, there: Path, tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "config.yaml", ".mlflow.run"):
        (store.folder / name).write_text("{}\n")
    copied = mirror(store, there)
    copied.begin(RUN, [])
    entries = [save(store, number) for number in (1, 2, 3)]
    for entry in entries:
        copied.committed(entry, lambda known: known[:-2])
    copied.finish(30)
    assert Manifest.load(there).entries == tuple(entries[1:])
    assert sorted(path.name for path in there.iterdir()) == [
        ".mlflow.run",
        "config.yaml",
        "epoch_2.pth",
        "epoch_3.pth",
        FILE_NAME,
        "metrics.jsonl",
    ]
    assert replica(there).fetch(entries[2], tmp_path / "back") is None
    assert store.load(tmp_path / "back") == {"number": 3}


def test_what_the_folder_holds_already_is_copied_first(store: FolderStore, there: Path) -> None:
    entries = [save(store, 1), save(store, 2)]
    copied = mirror(store, there)
    copied.begin(RUN, entries)
    copied.committed(save(store, 3), None)
    copied.finish(30)
    assert listed(there) == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]


def test_files_of_another_run_move_aside(store: FolderStore, there: Path) -> None:
    store.run = OTHER
    first = replica(there)
    assert first.begin(OTHER) is None
    assert first.copy(save(store, 1), store.folder)
    store.run = RUN
    second = replica(there)
    assert second.begin(RUN) == "earlier-1"
    assert second.copy(save(store, 2), store.folder)
    assert listed(there) == ["epoch_2.pth"]
    assert listed(there / "earlier-1") == ["epoch_1.pth"]
    assert (there / "earlier-1" / "epoch_1.pth").exists()


def test_files_from_before_ids_stay_where_they_are(store: FolderStore, there: Path) -> None:
    store.run = ""
    replica(there).copy(save(store, 1), store.folder)
    assert replica(there).begin(RUN) is None
    assert listed(there) == ["epoch_1.pth"]


def test_what_is_gone_before_its_turn_is_passed_over(store: FolderStore, there: Path) -> None:
    entry = save(store, 1)
    store.retire(lambda entries: entries)
    assert not replica(there).copy(entry, store.folder)
    assert listed(there) == []


def test_a_name_that_was_saved_again_is_not_copied_under_the_old_entry(store: FolderStore, there: Path) -> None:
    old, new = save(store, 1, "last.pth"), save(store, 2, "last.pth")
    copy = replica(there)
    assert not copy.copy(old, store.folder)
    assert copy.copy(new, store.folder)
    assert Manifest.load(there).entries == (new,)


@pytest.mark.parametrize("steps", range(1, 8))
def test_whatever_step_is_the_last_something_verifies(
    steps: int, store: FolderStore, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = save(store, 1, "last.pth")
    copy = replica(there)
    copy.copy(first, store.folder)
    second = save(store, 2, "last.pth")
    run, done = Remote._run, 0

    def until(self: Remote, method: str, *args: Any, size: int = 0) -> Any:
        nonlocal done
        done += 1
        if done > steps:
            raise MirrorError("cut")
        return run(self, method, *args, size=size)

    with monkeypatch.context() as cut:
        cut.setattr(Remote, "_run", until)
        try:
            copy.copy(second, store.folder)
        except MirrorError:
            pass  # the last step of this life
    reader = replica(there)
    usable = [
        entry for number, entry in enumerate(reader.candidates()) if reader.fetch(entry, tmp_path / str(number)) is None
    ]
    assert usable
    assert usable[0] in (first, second)
    assert copy.copy(second, store.folder)
    assert replica(there).candidates()[0] == second


@pytest.mark.parametrize("damage", [b"", b"torn", None], ids=["empty", "torn", "missing"])
def test_a_damaged_copy_is_refused(damage: bytes | None, store: FolderStore, there: Path, tmp_path: Path) -> None:
    entry = save(store, 1)
    replica(there).copy(entry, store.folder)
    if damage is None:
        (there / entry.name).unlink()
    else:
        (there / entry.name).write_bytes(damage)
    assert replica(there).fetch(entry, tmp_path / "back") is not None


def test_a_damaged_manifest_is_kept_and_everything_is_copied_again(
    store: FolderStore, there: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = save(store, 1)
    replica(there).copy(entry, store.folder)
    (there / FILE_NAME).write_text("{")
    copied = mirror(store, there)
    copied.begin(RUN, [entry])
    copied.finish(30)
    assert listed(there) == ["epoch_1.pth"]
    assert (there / "damaged-1" / FILE_NAME).read_text() == "{"
    assert "is now in damaged-1" in caplog.text


def test_a_store_that_fails_is_told_once_and_tried_again(
    store: FolderStore, there: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    failures = iter(range(5))
    act = Replica.copy

    def fail(self: Replica, entry: Entry, folder: Path) -> bool:
        if next(failures, None) is not None:
            raise MirrorError("there: EndpointConnectionError")
        return act(self, entry, folder)

    monkeypatch.setattr(Replica, "copy", fail)
    copied = mirror(store, there)
    copied.begin(RUN, [])
    copied.committed(save(store, 1), None)
    copied.finish(30)
    assert listed(there) == ["epoch_1.pth"]
    assert caplog.text.count("the training goes on") == 1
    assert caplog.text.count("is back") == 1


def test_the_end_waits_a_limited_time_and_names_what_is_missing(
    store: FolderStore, there: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    silent = threading.Event()
    monkeypatch.setattr(Replica, "copy", lambda *_: silent.wait())
    copied = mirror(store, there)
    try:
        copied.begin(RUN, [])
        copied.committed(save(store, 1), None)
        copied.committed(save(store, 2), None)
        copied.finish(0.05)
    finally:
        silent.set()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "lacks epoch_1.pth, epoch_2.pth" in line
    assert "a run that is resumed in" in line


def test_a_store_that_cannot_keep_up_is_told(
    store: FolderStore, there: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow = threading.Event()
    monkeypatch.setattr(Replica, "begin", lambda *_: slow.wait() and None)
    copied = mirror(store, there)
    copied.begin(RUN, [])
    for number in range(6):
        copied.committed(save(store, number), None)
    slow.set()
    copied.finish(30)
    assert caplog.text.count("is slow") == 1
    assert len(listed(there)) == 6


def test_files_that_this_machine_lacks_are_fetched(store: FolderStore, there: Path) -> None:
    there.mkdir()
    for name in ("metrics.jsonl", "wandb.spool", ".wandb.run", "config.yaml", "other.txt"):
        (there / name).write_text("there")
    (store.folder / "config.yaml").write_text("here")
    mirror(store, there).restore_files()
    found = {path.name: path.read_text() for path in store.folder.iterdir() if path.name != ".lock"}
    expected = {"metrics.jsonl": "there", "wandb.spool": "there", ".wandb.run": "there", "config.yaml": "here"}
    assert found == expected


def test_a_manifest_there_reads_like_one_here(store: FolderStore, there: Path) -> None:
    replica(there).copy(save(store, 1), store.folder)
    content = Remote(str(there)).read(FILE_NAME, most=LARGEST_MANIFEST)
    assert content is not None
    assert Manifest.decode(content, there) == Manifest.load(store.folder)
