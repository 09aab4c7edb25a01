"""A confusion matrix: rows are true classes, and the darker a cell, the larger its share of the row."""

from __future__ import annotations

import numpy as np

from ignite_hooks.drawing.confusion_matrix import CELL, confusion
from ignite_hooks.drawing.theme import BLUE, PAPER


def cells(counts: list[list[float]], names: list[str] | None = None) -> list[list[tuple[int, ...]]]:
    """Return the colour near the corner of each cell."""
    picture = confusion(counts, names)
    found = np.argwhere((picture == BLUE).all(2))
    down, right = found.min(0) - 1
    size = len(counts)
    return [[tuple(picture[down + CELL * r + 4, right + CELL * c + 4]) for c in range(size)] for r in range(size)]


def test_cells_show_the_share_of_the_true_class() -> None:
    found = cells([[5, 0], [20, 20]])
    half = tuple(round((one + other) / 2) for one, other in zip(PAPER, BLUE, strict=True))
    assert found[0] == [BLUE, PAPER]
    assert np.abs(np.array(found[1]) - half).max() <= 1


def test_names_give_the_picture_room() -> None:
    assert confusion(np.eye(2), ["a long name", "b"]).shape > confusion(np.eye(2)).shape
