"""The command ``send``: its lines, and the code it ends with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ignite_hooks.registry import WRITERS
from ignite_hooks.writers.trackers.spool import Spool
from tests.cli.tools import Ask
from tests.writers.trackers.test_resend import Shelf, scalars, spool_in


@pytest.fixture(autouse=True)
def _shelf() -> Iterator[None]:
    """Register a tracker that keeps everything."""
    Shelf.got, Shelf.ended, Shelf.down = [], [], False
    WRITERS.register(Shelf)
    yield
    del WRITERS._classes["Shelf"]


def test_records_of_every_folder_are_sent(ask: Ask, tmp_path: Path) -> None:
    one, other = (spool_in(tmp_path / name, scalars(1), scalars(2)) for name in ("one", "other"))
    code, out, err = ask("send", str(tmp_path / "one"), str(tmp_path / "other"))
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"{one.path}: 2 records sent to Shelf", f"{other.path}: 2 records sent to Shelf"]
    assert [record.step for record in Shelf.got] == [1, 2, 1, 2]


def test_a_folder_without_records_is_no_failure(ask: Ask, tmp_path: Path) -> None:
    assert ask("send", str(tmp_path)) == (0, f"{tmp_path}: nothing waits to be sent\n", "")


def test_a_missing_folder_leaves_the_others_to_be_sent(ask: Ask, tmp_path: Path) -> None:
    spool = spool_in(tmp_path / "run", scalars(1), scalars(2))
    code, out, err = ask("send", str(tmp_path / "nowhere"), str(tmp_path / "run"))
    assert (code, err) == (1, f"{tmp_path}/nowhere: there is no such folder\n")
    assert out == f"{spool.path}: 2 records sent to Shelf\n"


def test_what_cannot_be_sent_is_one_line_and_kept(ask: Ask, tmp_path: Path) -> None:
    Shelf.down = True
    waiting = spool_in(tmp_path / "run", scalars(1))
    foreign = spool_in(tmp_path / "foreign", scalars(1), writer="MemoryWriter")
    code, out, err = ask("send", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"{foreign.path}: ValueError: it is for MemoryWriter, which cannot send records later",
        f"{waiting.path}: ConnectionError: the shelf is full",
    ]
    for spool in (waiting, foreign):
        assert [record.step for record in Spool(spool.path)] == [1]


def test_a_single_record_is_counted_in_the_singular(ask: Ask, tmp_path: Path) -> None:
    spool = spool_in(tmp_path, scalars(1))
    assert ask("send", str(tmp_path)) == (0, f"{spool.path}: 1 record sent to Shelf\n", "")
