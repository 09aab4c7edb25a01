"""Helpers for tests of the trainer: a small configuration, and custom data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from ignite_hooks.trainer.datasets import Data


def blobs(count: int = 48, seed: int = 0) -> Data:
    """Return images of 4 x 4 whose brightest row is their class, which is learned at once."""
    random = torch.Generator().manual_seed(seed)

    def some(count: int) -> TensorDataset:
        labels = torch.randint(0, 4, (count,), generator=random)
        images = torch.rand(count, 1, 4, 4, generator=random) * 0.2
        images[torch.arange(count), 0, labels] += 1
        return TensorDataset(images, labels)

    return Data(some(count), some(16), some(16), num_classes=4, shape=(1, 4, 4))


def config(**sections: Any) -> dict[str, Any]:
    """Return a configuration that trains almost instantly."""
    training = {"epochs": 2, "batch_size": 16, "seed": 0, **sections.pop("training", {})}
    return {
        "model": {"type": "mlp", "hidden": [8]},
        "dataset": {"type": blobs},
        "training": training,
        "hooks": [],
        **sections,
    }


def write_cifar10(folder: Path, records: int = 20) -> None:
    """Write files in the binary format of CIFAR-10, with fewer images."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        content = random.integers(0, 256, (records, 3073), dtype=np.uint8)
        content[:, 0] = np.arange(records) % 10
        (folder / name).write_bytes(content.tobytes())
