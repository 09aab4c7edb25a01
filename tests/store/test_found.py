"""`found.py`: checkpoints of ours that no manifest lists."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import attach_hooks
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore, commit
from ignite_hooks.store.found import find_unlisted
from ignite_hooks.testing import tiny_run


def trained(folder: Path, epochs: int, **options: Any) -> Any:
    run = tiny_run()
    hook = {"type": "CheckpointHook", "max_keep_ckpts": 1, "save_best": False}
    runner = attach_hooks(run.trainer, [hook], work_dir=folder, **run.services, **options)
    run.trainer.run(run.data, max_epochs=epochs)
    runner.detach()
    return runner


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with the files of a run, without its manifest."""
    trained(tmp_path / "before", 2)
    (tmp_path / "copied").mkdir()
    for path in (tmp_path / "before").glob("*.pth"):
        shutil.copy(path, tmp_path / "copied")
    return tmp_path / "copied"


def test_files_copied_without_a_manifest_are_resumed_from_and_stay(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = (copied / "last.pth").read_bytes()
    with caplog.at_level(logging.INFO):
        runner = trained(copied, 5, resume="auto")
    assert runner.resumed_from is not None
    assert "no manifest lists epoch_2.pth, last.pth: verified, and listed as found" in caplog.text
    names = {"epoch_2.pth", "epoch_5.pth", "last.pth", "last.pth.found-1"}
    assert {path.name for path in copied.glob("*.pth*")} == names
    assert (copied / "last.pth.found-1").read_bytes() == before
    assert "last.pth was found here: it stays as last.pth.found-1, and the run has saved its own" in caplog.text
    kinds = {entry.name: entry.kind for entry in FolderStore(copied).entries()}
    assert kinds == {"epoch_2.pth": "found", "epoch_5.pth": "periodic", "last.pth": "last"}


def test_a_found_file_that_cannot_be_linked_is_renamed(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no links here")

    before = (copied / "last.pth").read_bytes()
    monkeypatch.setattr(os, "link", refuse)
    trained(copied, 5, resume="auto")
    assert (copied / "last.pth.found-1").read_bytes() == before


def test_a_save_that_fails_leaves_a_found_file_in_its_place(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (copied / "last.pth").read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "broken")

    with FolderStore(copied) as store:
        monkeypatch.setattr(commit, "publish", fail)
        with pytest.raises(CheckpointError):
            store.save("last.pth", {}, kind="last", epoch=9, iteration=9)
    assert (copied / "last.pth").read_bytes() == before
    assert {entry.name: entry.kind for entry in FolderStore(copied).entries()}["last.pth"] == "found"


def test_a_new_run_moves_them_aside_with_its_own(copied: Path) -> None:
    trained(copied, 2)
    assert {path.name for path in (copied / "earlier-1").glob("*.pth")} == {"epoch_2.pth", "last.pth"}
    assert not list(copied.glob("*.not-ours-*"))


def test_a_reader_finds_them_and_lists_nothing(copied: Path) -> None:
    assert FolderStore(copied).newest() is not None
    assert not (copied / "manifest.json").exists()


def test_a_damaged_copy_is_not_found(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray((copied / "last.pth").read_bytes())
    place = data.index(b"archive/data/0") + 200
    data[place] ^= 1
    (copied / "last.pth").write_bytes(data)
    assert [entry.name for entry in find_unlisted(copied, ())] == ["epoch_2.pth"]
    assert "last.pth is not listed: the checksum of archive/data/0 in it is wrong" in caplog.text


@pytest.mark.parametrize("what", ["text", "torch", "weights", "link", "listed"])
def test_what_is_not_ours_is_not_found(what: str, copied: Path, tmp_path: Path) -> None:
    (copied / "epoch_2.pth").unlink()
    path = copied / "last.pth"
    if what == "text":
        path.write_text("mine")
    elif what == "link":
        path.rename(tmp_path / "x.pth")
        path.symlink_to(tmp_path / "x.pth")
    elif what != "listed":
        state = torch.load(path, weights_only=True)
        torch.save(state if what == "torch" else state["state_dict"], path)
    assert find_unlisted(copied, {"last.pth"} if what == "listed" else ()) == []
