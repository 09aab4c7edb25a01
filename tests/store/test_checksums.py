"""`checksums.py`: checksums that say by which algorithm they were made."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
import xxhash

from ignite_hooks.store import FolderStore
from ignite_hooks.store.checksums import PIECE, checksum_of, digits_of
from ignite_hooks.store.manifest import FILE_NAME

FIRST_FORMAT = Path(__file__).parent / "format_1"
"""A file and a sharded checkpoint, with the manifest of the first format, whose checksums were sha256."""


@pytest.fixture
def first_format(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIRST_FORMAT, tmp_path / "work"))


@pytest.mark.parametrize("size", [0, 5, PIECE, PIECE + 1])
def test_a_file_has_the_checksum_of_its_bytes(size: int, tmp_path: Path) -> None:
    data = bytes(index % 251 for index in range(1000)) * (size // 1000 + 1)
    (tmp_path / "a").write_bytes(data[:size])
    with (tmp_path / "a").open("rb") as file:
        assert checksum_of(file) == f"xxh3_128:{xxhash.xxh3_128_hexdigest(data[:size])}"
        file.seek(0)
        assert checksum_of(file, "sha256") == f"sha256:{hashlib.sha256(data[:size]).hexdigest()}"


def test_checkpoints_of_the_first_format_are_verified_and_read(first_format: Path) -> None:
    store = FolderStore(first_format)
    assert [(entry.name, store.verify(entry)) for entry in store.entries()] == [("epoch_1.pth", None), ("last", None)]
    assert store.load(first_format / "epoch_1.pth")["state_dict"]["weight"].tolist() == [0, 1, 2, 3]
    assert store.load(first_format / "last") == {"number": 20}


@pytest.mark.parametrize("name", ["epoch_1.pth", "last/state.pth"])
def test_a_flipped_bit_in_the_first_format_is_noticed(name: str, first_format: Path) -> None:
    path = first_format / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    store = FolderStore(first_format)
    reasons = [store.verify(entry) or "" for entry in store.entries()]
    assert [reason.endswith("wrong checksum") for reason in reasons] == [name == "epoch_1.pth", name != "epoch_1.pth"]


def test_a_run_goes_on_in_a_folder_of_the_first_format(first_format: Path) -> None:
    with FolderStore(first_format) as store:
        store.save("epoch_3.pth", {"weight": torch.ones(2)}, kind="periodic", epoch=3, iteration=30)
    written = json.loads((first_format / FILE_NAME).read_text())
    assert written["format"] == 2
    marks = [entry["checksum"].partition(":")[0] for entry in written["entries"]]
    assert marks == ["sha256", "sha256", "xxh3_128"]
    assert all(FolderStore(first_format).verify(entry) is None for entry in FolderStore(first_format).entries())


def test_only_a_name_with_a_hash_has_the_sha256_of_its_file(tmp_path: Path) -> None:
    with FolderStore(tmp_path) as store:
        paths = [
            store.save(name, {"weight": torch.ones(2)}, kind="published", epoch=1, iteration=1)
            for name in ("slim-{hash}.pth", "plain.pth")
        ]
        hashed, plain = store.entries()
    assert hashed.checksum == f"sha256:{hashlib.sha256(paths[0].read_bytes()).hexdigest()}"
    assert paths[0].stem == f"slim-{digits_of(hashed.checksum)[:8]}"
    assert plain.checksum.startswith("xxh3_128:")
