"""The entries of a position in the data as a checkpoint holds them: when they are valid, and when they are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.checkpoint.data.loader_parts import is_stream, keeps_its_position, order_of
from ignite_hooks.checkpoint.data.rest_of_epoch import are_counts
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.loader_workers import is_loader

VALID: Mapping[str, Callable[[Any], bool]] = {
    "kind": lambda value: isinstance(value, str) and value != "",
    "length": lambda value: value is None or _is_count(value),
    "workers": lambda value: _is_count(value),
    "at": lambda value: isinstance(value, str) and value in ("run", "epoch", "iteration"),
    "done": lambda value: _is_count(value),
    "drawn": lambda value: _is_count(value),
    "counts": lambda value: are_counts(value),
    "skipped": lambda value: _is_count(value),
    "made": lambda value: value is None or _is_rng_state(value),
    "first": lambda value: value is None or _is_rng_state(value),
    "over": lambda value: isinstance(value, bool),
    "sized": lambda value: isinstance(value, bool),
    "generators": lambda value: isinstance(value, dict),
    "epochs": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "again": lambda value: isinstance(value, bool),
    "doubt": lambda value: value is None or isinstance(value, str),
}
"""The entries of a position in a checkpoint, and when each is valid: a file may hold anything."""

NEWER: Mapping[str, Callable[[Any], bool]] = {
    "own": lambda value: isinstance(value, dict) and all(isinstance(states, dict) for states in value.values()),
    "unkept": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "order": lambda value: isinstance(value, str),
    "switched": lambda value: isinstance(value, bool),
    "untouched": lambda value: isinstance(value, bool),
    "still": lambda value: isinstance(value, bool),
    "seed": lambda value: value is None or _is_count(value),
}
"""Entries that older files do not have."""


def check_position(saved: Any, progress: Any, path: Path) -> None:
    """Raise `CheckpointError` for what cannot be a position in the data."""
    whole = isinstance(saved, dict) and isinstance(progress, dict)
    wrong = [name for name, fits in VALID.items() if name not in saved or not fits(saved[name])] if whole else ["data"]
    if not wrong:
        counts = [progress.get("iteration"), progress.get("epoch")]
        length = progress.get("epoch_length")
        if not all(map(_is_count, counts)) or not (length is None or _is_count(length)):
            wrong = ["trainer"]
        elif saved["drawn"] > progress["iteration"]:
            wrong = ["drawn"]
        else:
            wrong = [name for name, fits in NEWER.items() if name in saved and not fits(saved[name])]
    if wrong:
        raise CheckpointError(f"{path}: invalid data position ({', '.join(wrong)})")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_rng_state(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("random"), dict) or "used" not in value:
        return False
    known = all(word in value and VALID[word](value[word]) for word in ("generators", "epochs"))
    return known and NEWER["own"](value.get("own", {}))


def doubts_about(saved: Mapping[str, Any], data: Any, *, recounted: bool = False) -> Iterator[str]:
    """Yield every reason why continuing with this data cannot be exact.

    Args:
        saved: The position in the checkpoint.
        data: The data of this run.
        recounted: Whether the rest of the epoch is counted in another way, in the order it had.
    """
    if saved["doubt"] is not None:
        yield saved["doubt"]
    if saved["kind"] != kind_of(data):
        yield f"the data was {_with_article(saved['kind'])} and is {_with_article(kind_of(data))}"
        return
    if length_of(data) is not None and saved["length"] != length_of(data):
        yield f"the data had {saved['length']} batches and has {length_of(data)}"
    before, now = saved.get("order"), order_of(data)
    if before and now and before != now and not recounted:
        yield f"{before} gave the order of the data, and {now} does now"
    workers = data.num_workers if is_loader(data) else 0
    if saved["workers"] != workers:
        yield f"the loader had {saved['workers']} workers and has {workers}"
    found = saved.get("loader") is not None and keeps_its_position(data)
    if saved["drawn"] and not found and (isinstance(data, Iterator) or length_of(data) is None or is_stream(data)):
        yield "its data is read again from the start, and may not give the same batches"
    if unkept := saved.get("unkept"):
        changes = f"{', '.join(unkept)} {'change' if len(unkept) > 1 else 'changes'} as the data is read"
        yield f"{changes}, and checkpoints do not hold it: give its class state_dict() and load_state_dict()"
    if saved["again"]:
        yield "workers that stay from epoch to epoch (persistent_workers) draw other random numbers"


def _with_article(kind: str) -> str:
    return kind if kind == "nothing" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def kind_of(data: object) -> str:
    """Return the kind of data, in a word."""
    if data is None:
        return "nothing"
    return "DataLoader" if is_loader(data) else "iterator" if isinstance(data, Iterator) else type(data).__name__


def length_of(data: Any) -> int | None:
    """Return the number of batches of data; None if it is unknown."""
    if is_stream(data) and data.num_workers > 1:
        # Torch assumes that one worker makes all batches, but each worker may yield a last one that is not full.
        return None
    try:
        return len(data) if hasattr(data, "__len__") else None
    except (TypeError, AttributeError):
        # A loader has the method whether or not its dataset has a length, or it has a dataset.
        return None
