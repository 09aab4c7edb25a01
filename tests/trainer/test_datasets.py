"""The data that comes along: exact, the same every time, and read from files of which nothing becomes code."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ignite_hooks.trainer import datasets
from ignite_hooks.trainer.datasets import cifar10, digits, digits_detection, digits_segmentation, mnist
from tests.trainer.tools import write_cifar10


def test_the_split_is_fixed_and_its_parts_are_disjoint() -> None:
    pytest.importorskip("sklearn")
    data = digits()
    assert [len(part) for part in (data.train, data.val, data.test)] == [1200, 297, 300]
    assert data.test[0][1] == digits().test[0][1]
    whole = torch.cat([part.tensors[0] for part in (data.train, data.val, data.test)])
    assert whole.shape == (1797, 1, 8, 8)
    assert whole.min() == 0
    assert whole.max() == 1


def test_boxes_hug_their_digits_and_masks_cover_the_same_ink() -> None:
    pytest.importorskip("sklearn")
    boxed, masked = digits_detection(count=20, seed=3), digits_segmentation(count=20, seed=3)
    for (image, target), (same, mask) in zip(boxed.train, masked.train, strict=True):
        assert torch.equal(image, same)
        assert 1 <= len(target["boxes"]) <= 4
        seen = torch.zeros_like(mask)
        for box, label in zip(target["boxes"].int().tolist(), target["labels"].tolist(), strict=True):
            left, top, right, bottom = box
            inside = mask[top:bottom, left:right]
            assert set(inside.unique().tolist()) <= {0, label}
            # Every side of the box touches ink.
            assert all(bool(side.any()) for side in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
            seen[top:bottom, left:right] = inside
        assert torch.equal(seen, mask), "all ink is in a box"


def test_canvases_are_the_same_for_the_same_seed() -> None:
    pytest.importorskip("sklearn")
    one, same, other = (digits_detection(count=10, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.train[5][0], same.train[5][0])
    assert not torch.equal(one.train[5][0], other.train[5][0])


def test_cifar10_is_read_from_its_binary_files(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin", records=20)
    data = cifar10(root=tmp_path, augment=False)
    assert [len(part) for part in (data.train, data.val, data.test)] == [90, 10, 20]
    image, label = data.train[7]
    record = np.frombuffer((tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").read_bytes(), np.uint8)[7 * 3073 :]
    assert label == record[0] == 7
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (datasets.CIFAR10_MEAN, datasets.CIFAR10_STD))
    colour = std * image + mean
    assert (colour * 255).round()[2, 0, 1] == record[1 + 2 * 1024 + 1]


def test_a_pickle_in_place_of_cifar10_is_never_opened(tmp_path: Path) -> None:
    opened = tmp_path / "opened"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (opened,)

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ("data_batch_1", "test_batch"):
        (folder / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=r"root: there is nothing of it in .*binary version"):
        cifar10(root=folder)
    assert not opened.exists()


@pytest.mark.parametrize("content", [b"", b"x" * 3072, b"x" * 3073], ids=["empty", "cut", "of too many classes"])
def test_a_damaged_file_of_cifar10_is_reported(content: bytes, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data")
    (tmp_path / "data" / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"root: .*(damaged|holds no CIFAR-10)"):
        cifar10(root=tmp_path / "data")


def write_mnist(folder: Path, packed: bool, count: int = 30) -> None:
    folder.mkdir(parents=True)
    opened: Any = gzip.open if packed else open
    for name in datasets.MNIST_FILES:
        shape = [count, 28, 28] if "images" in name else [count]
        values = np.arange(np.prod(shape), dtype=np.int64) % (256 if "images" in name else 10)
        head = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
        with opened(folder / (f"{name}.gz" if packed else name), "wb") as file:
            file.write(head + values.astype(np.uint8).tobytes())


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "not packed"])
def test_mnist_is_read_from_its_four_files(packed: bool, tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", packed)
    data = mnist(root=tmp_path)
    assert [len(part) for part in (data.train, data.val, data.test)] == [27, 3, 30]
    assert data.train[3][1] == 3
    assert data.train[0][0].shape == (1, 28, 28)


def test_a_cut_file_of_mnist_is_reported(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", packed=False)
    path = tmp_path / "mnist" / datasets.MNIST_FILES[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"is damaged: 30 x 28 x 28 bytes are needed"):
        mnist(root=tmp_path)


def test_augmented_images_are_the_same_for_the_same_random_numbers(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data")
    data = cifar10(root=tmp_path / "data")
    torch.manual_seed(0)
    one = [data.train[3][0] for _ in range(4)]
    torch.manual_seed(0)
    assert all(torch.equal(image, data.train[3][0]) for image in one)
    assert not torch.equal(one[0], one[1])
    assert torch.equal(data.val[0][0], data.val[0][0])
