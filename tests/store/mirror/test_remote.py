"""`remote.py`: a folder behind a URL, whose every operation ends, with an error that shows no secret."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.store.mirror.remote import MOST_STUCK, MirrorError, Remote, hidden, why_no_mirror


@pytest.fixture(params=["memory", "folder"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    return Remote(f"memory://{tmp_path}" if request.param == "memory" else str(tmp_path / "there"))


def test_a_file_comes_back_as_it_was_put(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    remote.put("x/a.pth", str(tmp_path / "a"), 3)
    assert remote.fetch("x/a.pth", str(tmp_path / "b"), 3)
    assert (tmp_path / "b").read_bytes() == b"abc"
    assert remote.names() == ["x"]


def test_what_is_not_there_is_no_error(remote: Remote, tmp_path: Path) -> None:
    assert remote.read("a", most=10) is None
    assert not remote.fetch("a", str(tmp_path / "b"), 1)
    assert remote.names() == []
    remote.remove("a")
    remote.move("a", "b/a", 1)


def test_a_file_is_replaced_moved_and_removed(remote: Remote) -> None:
    remote.write("a", b"old")
    remote.write("a", b"new")
    remote.move("a", "earlier-1/a", 3)
    assert (remote.read("a", most=10), remote.read("earlier-1/a", most=10)) == (None, b"new")
    remote.remove("earlier-1/a")
    assert remote.read("earlier-1/a", most=10) is None


def test_nothing_longer_than_expected_is_read(remote: Remote) -> None:
    remote.write("a", b"x" * 100)
    with pytest.raises(MirrorError, match="a: 100 bytes, expected 99 at most"):
        remote.read("a", most=99)


def test_an_operation_that_never_ends_is_left_at_its_deadline(tmp_path: Path) -> None:
    remote, silent = Remote(str(tmp_path), quick=0.01), threading.Event()

    def wait(*_: Any) -> None:
        silent.wait()

    remote._files.info = wait
    try:
        for _ in range(MOST_STUCK):
            with pytest.raises(MirrorError, match="no answer within"):
                remote.read("a", most=1)
        with pytest.raises(MirrorError, match="earlier operations have not ended"):
            remote.read("a", most=1)
    finally:
        silent.set()


def test_an_error_of_any_kind_is_one_line_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET_KEY", "wJalrXUtnFEMI")
    remote = Remote(str(tmp_path))

    def refuse(*_: Any) -> None:
        raise ValueError("sig=wJalrXUtnFEMI refused at http://me:word@host/\nand more")

    remote._files.info = refuse
    with pytest.raises(MirrorError) as caught:
        remote.read("a", most=1)
    text = str(caught.value)
    assert "ValueError" in text
    assert not any(secret in text for secret in ("wJalr", "word@", "\n", "and more"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://x", None),
        ("folder/of/another/disk", None),
        (" ", "give a URL"),
        ("nonsense://x", "nonsense://x cannot be reached: Protocol not known: nonsense"),
        ("nonsense://me:word@host/x", "nonsense://\\*\\*\\*@host"),
    ],
)
def test_a_url_that_nothing_reads_is_known_before_the_run(url: str, words: str | None) -> None:
    problem = why_no_mirror(url)
    assert (problem is None) == (words is None)
    if words is not None and problem is not None:
        assert re.search(words, problem)


def test_s3_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.get_filesystem_class", missing)
    assert why_no_mirror("s3://bucket/run") == "s3://bucket/run cannot be reached: pip install 'ignite-hooks[remote]'"


def test_credentials_in_a_url_are_hidden() -> None:
    assert hidden("ftp://me:word@host/run") == "ftp://***@host/run"


def test_importing_what_reads_a_url_draws_no_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    monkeypatch.setattr("fsspec.get_filesystem_class", lambda _: random.random())
    before = random.getstate()
    assert why_no_mirror("s3://bucket/run") is None
    assert random.getstate() == before
