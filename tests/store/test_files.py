"""`files.py`: new files, and what may be opened."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
from pathlib import Path

import pytest
import xxhash

from ignite_hooks.store.files import (
    BLOCK,
    MOST_BLOCKS,
    PAGE,
    explain,
    new_file,
    open_regular,
    set_aside,
    temporary_path,
)


def test_a_new_file_knows_its_size_and_checksum(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as file:
        file.write(b"one")
        file.write(memoryview(b"two"))
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert (file.size, file.checksum) == (6, "xxh3_128:" + xxhash.xxh3_128_hexdigest(b"onetwo"))


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: original(descriptor, bytes(data)[:3]))
    with new_file(tmp_path / "a") as file:
        assert file.write(b"0123456789") == 10
    assert (tmp_path / "a").read_bytes() == b"0123456789"


@pytest.mark.parametrize("refusal", ["none", "flag", "first write", "short write"])
@pytest.mark.parametrize("rest", [0, 1, PAGE, 12_345])
def test_large_pieces_past_the_cache_are_the_same_bytes(
    rest: int, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, change = os.write, fcntl.fcntl
    past: list[bool] = []

    def flaky_write(descriptor: int, data: memoryview) -> int:
        past.append(bool(change(descriptor, fcntl.F_GETFL) & os.O_DIRECT))
        if refusal == "first write" and past[-1]:
            raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, data[: len(data) // 2 + 1] if refusal == "short write" and len(past) == 2 else data)

    def flaky_fcntl(descriptor: int, command: int, flags: int = 0) -> int:
        if refusal == "flag" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return change(descriptor, command, flags)

    monkeypatch.setattr(os, "write", flaky_write)
    monkeypatch.setattr(fcntl, "fcntl", flaky_fcntl)
    image = mmap.mmap(-1, 2 * BLOCK + rest)
    image[:] = random.Random(1).randbytes(len(image))
    with new_file(tmp_path / "a") as file:
        file.write(memoryview(image))
        file.write(b"end")
        file.write(bytes(BLOCK))
    expected = image[:] + b"end" + bytes(BLOCK)
    assert (tmp_path / "a").read_bytes() == expected
    assert (file.size, file.checksum) == (len(expected), "xxh3_128:" + xxhash.xxh3_128_hexdigest(expected))
    if refusal in ("flag", "first write"):
        assert not any(past[1:])


def test_a_large_file_is_written_from_a_few_blocks_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, at = os.write, list[int]()

    def noting_write(descriptor: int, data: memoryview) -> int:
        at.append(ctypes.addressof(ctypes.c_char.from_buffer(data)))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noting_write)
    content = random.Random(1).randbytes((2 * MOST_BLOCKS + 1) * BLOCK + 5)
    with new_file(tmp_path / "a") as file:
        for start in range(0, len(content), BLOCK - 3):
            file.write(content[start : start + BLOCK - 3])
    assert (tmp_path / "a").read_bytes() == content
    assert len(set(at[:MOST_BLOCKS])) == MOST_BLOCKS == len(set(at))
    assert at[MOST_BLOCKS : 2 * MOST_BLOCKS] == at[:MOST_BLOCKS]


def test_small_files_do_not_pass_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: pytest.fail("it was asked for"))
    with new_file(tmp_path / "a") as file:
        file.write(bytes(BLOCK - 1))
    assert (tmp_path / "a").stat().st_size == BLOCK - 1


def test_a_failed_write_is_not_forgotten_by_whoever_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    expected = pytest.raises(OSError, match="No space left")
    with expected, new_file(tmp_path / "a") as file, contextlib.suppress(OSError):
        file.write(b"data")


@pytest.mark.parametrize("present", ["file", "link"])
def test_a_new_file_never_opens_what_is_there(tmp_path: Path, present: str) -> None:
    (tmp_path / "victim").write_text("precious")
    path = tmp_path / "victim"
    if present == "link":
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError), new_file(path):
        pytest.fail("it was opened")
    assert (tmp_path / "victim").read_text() == "precious"


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in "folder", "pipe":
        with pytest.raises(OSError, match="is not a regular file"):
            open_regular(tmp_path / name)


def test_temporary_names_are_never_the_same(tmp_path: Path) -> None:
    assert len({temporary_path(tmp_path, "a") for _ in range(100)}) == 100


def test_setting_aside_overwrites_nothing(tmp_path: Path) -> None:
    for text in "one", "two":
        (tmp_path / "a").write_text(text)
        set_aside(tmp_path / "a", "old")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.old-1": "one",
        "a.old-2": "two",
    }


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EIO, "Input/output error", "/runs/a"), "Input/output error (/runs/a)"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error (/nowhere)"),
        (OSError(errno.ENOSPC, "x"), "disk full, needs 3.0 MB, an unknown amount free in /nowhere"),
        (RuntimeError("first\nsecond"), "RuntimeError: first"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_an_error_is_explained_in_one_line(error: Exception, words: str) -> None:
    assert explain(error, Path("/nowhere"), needed=3 * 1024 * 1024) == words
