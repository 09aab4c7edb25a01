"""`position_format.py`: a file may hold anything, and what cannot be a position is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import CheckpointError
from ignite_hooks.checkpoint.data.position_format import check_position
from tests.checkpoint.data.test_position import EXACT, Shelf, Taker, script

PROGRESS = {"iteration": 7, "epoch": 1, "epoch_length": 5}


@pytest.fixture(scope="module")
def position() -> dict[str, Any]:
    shelf = Shelf()
    script(EXACT["shuffled"], [], Taker(shelf, 7)).run()
    return dict(shelf.content["data"])


def test_a_position_is_valid_as_it_was_saved(position: dict[str, Any]) -> None:
    check_position(position, PROGRESS, Path("last.pth"))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("kind", 3),
        ("at", "nowhere"),
        ("done", -1),
        ("drawn", 8),
        ("made", {"random": 1}),
        ("seed", "x"),
        ("epochs", []),
    ],
)
def test_an_entry_that_makes_no_sense_is_named(entry: str, value: Any, position: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=rf"last.pth: invalid data position \({entry}\)"):
        check_position({**position, entry: value}, PROGRESS, Path("last.pth"))


@pytest.mark.parametrize("entry", ["seed", "own", "unkept"])
def test_a_file_of_an_earlier_version_may_lack_newer_entries(entry: str, position: dict[str, Any]) -> None:
    check_position({name: value for name, value in position.items() if name != entry}, PROGRESS, Path("last.pth"))
