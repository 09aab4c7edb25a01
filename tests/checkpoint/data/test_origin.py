"""`origin.py`: positions and the iterators they are counted from."""

from __future__ import annotations

from typing import Any

from ignite_hooks.checkpoint.data.origin import DataPosition


def test_a_position_is_counted_from_its_iterator() -> None:
    made: Any = {"random": {}}
    saved = {"drawn": 3, "made": made, "first": None, "sized": True, "generators": {"a": 1}, "epochs": {}}
    position = DataPosition(10, 1, saved, {"python": 1})
    origin = position.origin("data")
    assert (origin.data, origin.iteration, origin.rng, origin.sized) == ("data", 7, made, True)
    assert position.rng == {"random": {"python": 1}, "generators": {"a": 1}, "epochs": {}, "own": {}}
