"""`verify.py`: comparing files with the manifest, and reading them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.verify import describe_file, read_state, why_unusable_file


def nothing(path: Path) -> None:
    """Change nothing."""


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def one_bit_off(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (nothing, None),
        (shorter, "4 bytes instead of 5"),
        (one_bit_off, "wrong checksum"),
        (Path.unlink, "missing"),
        (a_link, "symbolic link"),
        (a_folder, "not a regular file"),
    ],
)
def test_a_file_matches_its_entry_or_there_is_a_reason(
    harm: Callable[[Path], Any], reason: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "state.pth"
    path.write_bytes(b"hello")
    part = describe_file(path)
    harm(path)
    found = why_unusable_file(path, part)
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("content", "reason"),
    [([1, 2], "holds a list, expected a dict"), ({"path": Path("a")}, "more than plain types and tensors")],
)
def test_only_a_plain_state_is_read(content: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save(content, path)
    with path.open("rb") as file, pytest.raises(CheckpointError, match=reason):
        read_state(file, path)
    torch.save({"a": 1}, path)
    with path.open("rb") as file:
        file.read(3)
        assert read_state(file, path) == {"a": 1}
