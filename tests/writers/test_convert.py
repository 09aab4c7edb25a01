"""Numbers, pictures and configurations in the forms that backends take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.writers.convert import as_picture, binned, plain


def test_a_histogram_counts_finite_values() -> None:
    counts, edges = binned(torch.tensor([0.0, 0.0, 1.0, torch.inf]), bins=2)
    assert (counts, edges) == ([2, 1], [0.0, 0.5, 1.0])
    assert sum(binned(torch.tensor([torch.nan]))[0]) == 0


def test_a_plain_configuration_has_only_names_numbers_and_texts(tmp_path: Path) -> None:
    """W&B accepts neither objects nor numbers as names, and would drop the whole configuration."""
    assert plain({"net": {"path": tmp_path, 3: (1, None)}, "lr": 0.1, "on": True, "device": torch.device("cpu")}) == {
        "net": {"path": str(tmp_path), "3": [1, None]},
        "lr": 0.1,
        "on": True,
        "device": "cpu",
    }


@pytest.mark.parametrize(
    ("image", "shape", "largest"),
    [
        (numpy.full((4, 6), 0.5), (4, 6, 3), 128),
        (numpy.full((4, 6, 1), 255), (4, 6, 3), 255),
        (numpy.full((4, 6, 4), 1.0), (4, 6, 4), 255),
        (numpy.full((4, 6, 3), 300), (4, 6, 3), 255),
        (numpy.full((4, 6, 3), numpy.nan), (4, 6, 3), 0),
        (torch.ones(3, 4, 6), (4, 6, 3), 255),
        (torch.ones(4, 6, 3), (4, 6, 3), 255),
    ],
)
def test_pictures_of_all_kinds_become_bytes(image: Any, shape: tuple[int, ...], largest: int) -> None:
    made = as_picture(image)
    assert (made.shape, made.dtype, made.max()) == (shape, numpy.uint8, largest)


def test_an_array_that_is_no_picture_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"height x width x channels.*not \(2, 3, 4, 5\)$"):
        as_picture(numpy.zeros((2, 3, 4, 5)))
