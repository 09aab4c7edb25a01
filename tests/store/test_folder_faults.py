"""`folder.py` with damaged files and manifests."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import Entry, FolderStore
from ignite_hooks.store.manifest import FILE_NAME
from tests.store.conftest import number_of_newest, overwrite

pytestmark = pytest.mark.faults

MakeState = Callable[[int], dict[str, Any]]


def flip(data: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def zero(data: bytes, draw: random.Random) -> bytes:
    start = draw.choice([place for place in range(len(data)) if data[place]])
    return data[:start] + bytes(min(64, len(data) - start)) + data[start + 64 :]


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def empty(data: bytes, draw: random.Random) -> bytes:
    return b""


def append(data: bytes, draw: random.Random) -> bytes:
    return data + draw.randbytes(draw.randrange(1, 64))


def swap(data: bytes, draw: random.Random) -> bytes:
    middle = draw.randrange(1, len(data))
    return data[middle:] + data[:middle]


def missing(data: bytes, draw: random.Random) -> None:
    return None


DAMAGES = [flip, zero, cut, empty, append, swap, missing]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_never_accepted(
    two_saved: Path,
    damage: Callable[[bytes, random.Random], bytes | None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    path = two_saved / "last.pth"
    data = path.read_bytes()
    for _ in range(20):
        damaged = damage(data, draw)
        path.unlink(missing_ok=True)
        if damaged is not None:
            path.write_bytes(damaged)
        with FolderStore(two_saved) as store:
            with pytest.raises(CheckpointError, match=r"cannot load .*last\.pth"):
                store.load(path)
            caplog.clear()
            assert store.newest() == two_saved / "epoch_1.pth"
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "last.pth" in caplog.text


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_never_makes_a_wrong_state_acceptable(
    two_saved: Path, tmp_path: Path, damage: Callable[[bytes, random.Random], bytes | None]
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    (two_saved / "epoch_1.pth").write_bytes(flip((two_saved / "epoch_1.pth").read_bytes(), draw))
    honest = FolderStore(two_saved).entries()
    data = (two_saved / FILE_NAME).read_bytes()
    for trial in range(10):
        folder = tmp_path / f"trial_{trial}"
        shutil.copytree(two_saved, folder)
        damaged = damage(data, draw)
        (folder / FILE_NAME).unlink()
        if damaged is not None:
            (folder / FILE_NAME).write_bytes(damaged)
        with FolderStore(folder) as store:
            assert store.entries() in ([], honest)
            if damaged is None:
                assert store.newest() is None
            elif store.entries():
                assert number_of_newest(store) == 20
            else:
                with pytest.raises(CheckpointError, match="manifest was damaged"):
                    store.newest()


def test_if_all_are_bad_the_error_names_each(two_saved: Path) -> None:
    (two_saved / "epoch_1.pth").unlink()
    (two_saved / "last.pth").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"last\.pth: 1 bytes instead of \d+; epoch_1\.pth: missing"):
        FolderStore(two_saved).newest()


def test_a_checksum_alone_finds_a_flipped_bit_in_the_weights(store: FolderStore) -> None:
    state = {"state_dict": {"weight": torch.zeros(10_000)}}
    path = store.save("a.pth", state, kind="last", epoch=0, iteration=1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert torch.load(path, weights_only=True)["state_dict"]["weight"].count_nonzero() == 1
    assert store.verify(store.entries()[0]) == "wrong checksum"


def test_an_entry_never_saved_is_missing(store: FolderStore) -> None:
    assert store.verify(Entry("a.pth", 1, "xxh3_128:" + "0" * 32, 0, 0)) == "missing"


def test_a_new_run_continues_after_a_damaged_manifest(two_saved: Path, make_state: MakeState) -> None:
    (two_saved / FILE_NAME).write_text("damaged")
    with FolderStore(two_saved) as store:
        overwrite(store, make_state)
        assert number_of_newest(store) == 30
        assert store.load(two_saved / "last.pth.not-ours-1")["number"] == 20


def test_a_file_can_be_named_although_the_manifest_is_damaged(
    two_saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (two_saved / FILE_NAME).write_text("damaged")
    assert FolderStore(two_saved).load(two_saved / "last.pth")["number"] == 20
    assert "last.pth cannot be verified" in caplog.text
