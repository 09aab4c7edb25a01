"""`lock.py`: one run at a time writes in a folder."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore

MakeState = Callable[[int], dict[str, Any]]


def test_a_second_run_is_refused_with_the_owner_named(two_saved: Path) -> None:
    with FolderStore(two_saved):
        owner = f"process {os.getpid()} on {os.uname().nodename}"
        with pytest.raises(CheckpointError, match=f"is in use by {owner}"):
            FolderStore(two_saved).open()
        assert FolderStore(two_saved).newest() == two_saved / "last.pth"
    FolderStore(two_saved).open().close()


def test_a_store_that_was_forgotten_gives_the_lock_back(two_saved: Path) -> None:
    FolderStore(two_saved).open()
    gc.collect()
    FolderStore(two_saved).open().close()


def in_child(action: Callable[[], object]) -> int:
    """Fork, run the action and wait; return the process id once the action is done."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            os.write(writer, b"!")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"!"
    os.close(reader)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.faults
def test_the_lock_of_a_killed_run_is_free(two_saved: Path) -> None:
    child = in_child(FolderStore(two_saved).open)
    with pytest.raises(CheckpointError, match=f"process {child} on"):
        FolderStore(two_saved).open()
    kill(child)
    FolderStore(two_saved).open().close()


@pytest.mark.faults
def test_a_worker_that_outlives_its_run_holds_no_lock(two_saved: Path) -> None:
    store = FolderStore(two_saved).open()
    worker = in_child(lambda: None)
    try:
        with pytest.raises(CheckpointError, match="in use"):
            FolderStore(two_saved).open()
        store.close()
        FolderStore(two_saved).open().close()
    finally:
        kill(worker)


@pytest.mark.faults
def test_a_forked_worker_cannot_write(store: FolderStore, make_state: MakeState) -> None:
    def action() -> None:
        with pytest.raises(CheckpointError, match="not open"):
            store.save("a.pth", make_state(1), kind="last", epoch=0, iteration=0)

    kill(in_child(action))


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"pid": "x", "host": 1}'])
def test_a_lock_without_a_readable_owner_still_refuses(two_saved: Path, text: str) -> None:
    with FolderStore(two_saved):
        (two_saved / ".lock").write_text(text)
        with pytest.raises(CheckpointError, match="in use by another process"):
            FolderStore(two_saved).open()


def test_a_file_system_without_locks_is_a_warning(
    two_saved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with FolderStore(two_saved) as store:
        assert len(store.entries()) == 2
    assert "cannot be locked (Function not implemented)" in caplog.text


def test_the_lock_file_says_who_holds_it(store: FolderStore) -> None:
    owner = json.loads((store.folder / ".lock").read_text())
    assert len(owner.pop("token")) == 16
    assert owner == {"pid": os.getpid(), "host": os.uname().nodename}
