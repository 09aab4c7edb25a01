"""A batch has as many samples as it has images, mappings or rows."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.measure.batches import batch_size


class Sample:
    """An object for each sample, as MMEngine has them."""


def image(height: int = 8, width: int = 8, channels: int = 3) -> torch.Tensor:
    return torch.zeros(channels, height, width)


IMAGES = [image(), image(9, 7), image(5, 5), image(), image()]


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(8, 3), 8),
        (numpy.zeros((8, 3)), 8),
        ([torch.zeros(8, 3, 32, 32), torch.zeros(8)], 8),
        ((torch.zeros(3, 3, 32, 32), torch.zeros(3)), 3),
        ({"image": torch.zeros(8, 3, 4, 4), "label": torch.zeros(8)}, 8),
        ([[torch.zeros(8, 3), torch.zeros(8, 3)], torch.zeros(8)], 8),
        ([[torch.zeros(4, 3, 32), torch.zeros(4, 3, 32)], torch.zeros(4)], 4),
        (IMAGES, 5),
        (tuple(IMAGES), 5),
        ([image(channels=1)] * 2, 2),
        ((IMAGES, [{"boxes": torch.zeros(7, 4)}] * 5), 5),
        ((tuple(IMAGES), tuple({"boxes": torch.zeros(n, 4)} for n in range(5))), 5),
        ((IMAGES, [torch.zeros(7, 4)] * 5), 5),
        ({"inputs": IMAGES, "data_samples": [Sample() for _ in range(5)]}, 5),
        ([{"image": image(), "label": 1}] * 5, 5),
        ([{"image": IMAGES}], 1),
        ({"id": ["a", "b"], "image": torch.zeros(2, 3)}, 2),
        ([], None),
        ({}, None),
        (None, None),
        ("text", None),
        (torch.tensor(1.0), None),
        (5, None),
    ],
)
def test_the_samples_of_a_batch_are_counted(batch: Any, size: int | None) -> None:
    assert batch_size(batch) == size
