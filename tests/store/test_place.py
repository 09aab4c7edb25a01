"""`place.py`: a folder that is taken away during a run, replaced by another, brought back, or deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore

MakeState = Callable[[int], dict[str, Any]]


@pytest.fixture
def save(store: FolderStore, make_state: MakeState) -> Callable[[int], Path]:
    def save(number: int) -> Path:
        given: dict[str, Any] = {"kind": "periodic", "epoch": 0, "iteration": number}
        return store.begin(f"epoch_{number}.pth", make_state(number), **given).wait()

    save(1)
    return save


def away(store: FolderStore) -> Path:
    """Take the folder away, as when its disk is unmounted."""
    return store.folder.rename(store.folder.with_name("elsewhere"))


def numbers(store: FolderStore) -> list[int]:
    return [entry.iteration for entry in store.entries() if store.verify(entry) is None]


def test_nothing_is_written_into_another_folder_of_the_name(
    store: FolderStore, save: Callable[[int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    real = away(store)
    store.folder.mkdir()
    for number in (2, 3):
        with pytest.raises(CheckpointError, match=r"cannot save epoch_\d.pth: another folder has this name now"):
            save(number)
    store.retire(lambda entries: entries)
    assert list(store.folder.iterdir()) == []
    store.folder.rmdir()
    real.rename(store.folder)
    save(4)
    assert numbers(store) == [1, 4]
    assert f"{store.folder} is back" in caplog.text


def test_the_same_folder_on_a_disk_mounted_again_is_known_by_its_lock(
    store: FolderStore, save: Callable[[int], Path]
) -> None:
    real = away(store)
    shutil.copytree(real, store.folder)
    save(2)
    assert numbers(store) == [1, 2]
    with pytest.raises(CheckpointError, match="in use"):
        FolderStore(store.folder).open()


def test_a_deleted_folder_is_made_again(
    store: FolderStore, save: Callable[[int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(store.folder)
    save(2)
    assert numbers(store) == [2]
    assert f"{store.folder} was deleted, and is made again" in caplog.text
    with pytest.raises(CheckpointError, match="in use"):
        FolderStore(store.folder).open()


def test_a_folder_that_is_gone_with_its_disk_is_not_made_again(
    store: FolderStore, save: Callable[[int], Path], tmp_path: Path
) -> None:
    real = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    tmp_path.mkdir()
    try:
        with pytest.raises(CheckpointError, match="the folder is gone"):
            save(2)
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.rmdir()
        real.rename(tmp_path)
    save(3)
    assert numbers(store) == [1, 3]


def test_a_loss_while_a_file_is_written_is_no_success(
    store: FolderStore, save: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ignite_hooks.store import folder

    original = folder.write_state

    def lose(*arguments: Any) -> Any:
        written = original(*arguments)
        away(store)
        store.folder.mkdir()
        return written

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_state", lose)
        with pytest.raises(CheckpointError, match="another folder has this name now"):
            save(2)
    assert list(store.folder.iterdir()) == []
    store.folder.rmdir()
    store.folder.with_name("elsewhere").rename(store.folder)
    save(3)
    assert numbers(store) == [1, 3]
    assert not list(store.folder.glob(".tmp-*"))
