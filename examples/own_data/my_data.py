"""A data set of one's own: pictures with several shapes each, as mappings of an image and its labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from make_data import SHAPES, SIDE, picture


class ShapesInPicture(torch.utils.data.Dataset[dict[str, Any]]):
    """Pictures that are drawn when they are asked for, the same every time."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        random = np.random.default_rng([self.seed, index])
        there = random.random(len(SHAPES)) < 0.5
        image = np.asarray(picture([shape for shape, drawn in zip(SHAPES, there, strict=True) if drawn], random))
        return {
            "image": torch.from_numpy(image / np.float32(255)).permute(2, 0, 1),
            "labels": torch.from_numpy(there).float(),
        }


def shapes(count: int = 600) -> dict[str, Any]:
    """Return what a trainer needs to know.

    Args:
        count: Number of pictures to train on; validation has a fifth of it.
    """
    return {
        "train": ShapesInPicture(count, seed=0),
        "val": ShapesInPicture(count // 5, seed=1),
        "shape": (3, SIDE, SIDE),
        "class_names": SHAPES,
    }
