"""The formats of checkpoints: every file that an earlier version has written is read for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.errors import CheckpointError

FORMAT = 2
"""The format of the checkpoints that are written; it grows when an earlier version could not read them."""


def upgraded(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a checkpoint in the format of this version.

    Args:
        state: What a file holds, whoever has written it.
        path: The file, for messages.

    Raises:
        CheckpointError: If a later version of this package has written the file.
    """
    meta = state.get("meta")
    found = meta.get("format", 1) if isinstance(meta, Mapping) else FORMAT
    if type(found) is not int or found < 1:
        raise CheckpointError(f"{path}: meta.format is {found!r}, expected a number from 1 to {FORMAT}")
    if found > FORMAT:
        raise CheckpointError(
            f"{path} has format {found}, and this version of ignite_hooks reads formats 1 to {FORMAT}: "
            "install the version that saved it, or a later one"
        )
    for step in STEPS[found - 1 :]:
        state = step(state)
    return state


def _from_1(state: dict[str, Any]) -> dict[str, Any]:
    """Format 2 counts the data in samples too; before, a position may lack entries that came later."""
    state = {**state}
    if "data" in state:
        state["data"] = _counted(state["data"])
    if isinstance(state.get("ranks"), list):
        state["ranks"] = [
            {**each, "data": _counted(each["data"])} if isinstance(each, dict) and "data" in each else each
            for each in state["ranks"]
        ]
    return state


def _counted(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    return {**data, "counts": None, "skipped": 0} if data.keys() >= _POSITION_1 else None


_POSITION_1 = {"kind", "length", "workers", "at", "done", "drawn", "made", "first", "over", "sized", "generators"} | {
    "epochs",
    "again",
    "doubt",
}
"""The entries of a complete position in format 1. Without one of them, a run continues approximately."""

STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_from_1,)
"""Each turns a checkpoint of one format into the next."""
