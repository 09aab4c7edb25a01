"""Which checkpoints a tracker gets, and files that stay until they are sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ignite_hooks.checkpoint.uploads import FOLDER, Uploads, forget_sent, kept_for_sending
from ignite_hooks.store.manifest import Entry


def entry(name: str, content: int, iteration: int = 1) -> Entry:
    return Entry(name, 10, f"xxh3_128:{content:032x}", 1, iteration)


def test_the_best_goes_when_it_is_found_and_the_last_one_from_time_to_time() -> None:
    now = [0.0]
    uploads = Uploads(every=60.0, clock=lambda: now[0])
    best, last = entry("best.pth", 1), entry("last.pth", 2)
    assert [name for name, _ in uploads.due({"best": best, "last": last})] == ["best"]
    assert list(uploads.due({"best": best, "last": last})) == []
    now[0] = 60.0
    assert [name for name, _ in uploads.due({"best": entry("other.pth", 3), "last": last})] == ["best", "last"]
    now[0] = 119.0
    newer = entry("last.pth", 4)
    assert list(uploads.due({"last": newer})) == []
    assert list(uploads.due({"last": newer}, at_end=True)) == [("last", newer)]
    assert list(uploads.due({"last": newer}, at_end=True)) == []


def test_what_waits_keeps_its_content_and_only_the_newest_waits(tmp_path: Path) -> None:
    path = tmp_path / "last.pth"
    path.write_text("one")
    first = kept_for_sending(tmp_path, path, "last", 1)
    other = kept_for_sending(tmp_path, path, "last good", 1)
    path.unlink()
    path.write_text("two")
    assert first.read_text() == "one"
    second = kept_for_sending(tmp_path, path, "last", 2)
    assert second.read_text() == "two"
    assert {one.name for one in (tmp_path / FOLDER).iterdir()} == {second.name, other.name}


def test_a_disk_without_second_names_gives_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "last.pth"
    path.write_text("one")
    assert kept_for_sending(tmp_path, path, "last", 1) == path


def test_files_stay_as_long_as_records_wait(tmp_path: Path) -> None:
    path = tmp_path / "last.pth"
    path.write_text("one")
    kept = kept_for_sending(tmp_path, path, "last", 1)
    (tmp_path / "clearml.spool").touch()
    forget_sent(tmp_path, "clearml")
    assert kept.exists()
    (tmp_path / "clearml.spool").unlink()
    forget_sent(tmp_path, "clearml")
    assert not (tmp_path / FOLDER).exists()
    forget_sent(tmp_path, "clearml")
