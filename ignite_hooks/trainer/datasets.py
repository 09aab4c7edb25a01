"""Data to begin with: nothing is downloaded, and nothing that is read from a file becomes code."""

from __future__ import annotations

import functools
import gzip
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from ignite_hooks.errors import SettingError
from ignite_hooks.text import did_you_mean

Task = Literal["classification", "multilabel", "regression", "detection", "segmentation"]
Images = NDArray[np.uint8]


@dataclass
class Data:
    """What a data set offers to a trainer.

    Args:
        train: Data for training; every item is a pair of an input and a target, or a mapping with the target among
            its ``labels``, ``label``, ``targets``, ``target`` or ``y``.
        val: Data for evaluation during the training, if any.
        test: Data for evaluation at the end, if any.
        task: The task; the default loss and metrics depend on it. By default the first targets tell it.
        num_classes: Number of classes, labels or numbers to predict.
        shape: The shape of an input: channels, height and width of an image.
        class_names: Their names.
        collate: A function that makes a batch of items; torch's default.
    """

    train: Any
    val: Any = None
    test: Any = None
    task: Task | None = None
    num_classes: int | None = None
    shape: Sequence[int] | None = None
    class_names: Sequence[str] | None = None
    collate: Callable[[list[Any]], Any] = default_collate

    def facts(self) -> dict[str, Any]:
        """Return what models, losses and metrics may ask for by name."""
        known: dict[str, Any] = {"num_classes": self.num_classes, "class_names": self.class_names}
        if self.shape is not None:
            shape = [int(size) for size in self.shape]
            known |= {"in_features": math.prod(shape)}
            known |= {"in_channels": shape[0], "image_size": shape[1:]} if len(shape) == 3 else {}
        return {name: value for name, value in known.items() if value is not None}


def as_data(given: Any) -> Data:
    """Convert what a user's function returned to Data: a mapping, a pair or triple, or one data set to train on.

    Example:
        >>> as_data({"train": [1, 2], "val": [3]}).val
        [3]
    """
    if isinstance(given, Data):
        return given
    if isinstance(given, Mapping):
        known = Data.__dataclass_fields__
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
                raise ValueError(f"the mapping has {name!r}, which no data set has{hint}")
        if "train" not in given:
            raise ValueError("the mapping has no 'train'")
        return Data(**given)
    if isinstance(given, tuple) and 1 <= len(given) <= 3:
        return Data(*given)
    if hasattr(given, "__len__") or hasattr(given, "__iter__"):
        return Data(given)
    raise ValueError(f"a data set is needed, or Data, a mapping or a pair of them, not {type(given).__name__}")


# -- handwritten digits --------------------------------------------------------------------------------------------

DIGITS = [str(digit) for digit in range(10)]
VAL, TEST = 297, 300
"""How many of the 1,797 digits are kept for validation and for the test."""


class _Digits:
    """Images of digits from 0 to 1, with their classes."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels


@functools.cache
def _digits() -> dict[str, _Digits]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("the digits come with scikit-learn: pip install 'ignite-hooks[demo]'") from None
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(found.target, dtype=torch.int64)
    # The same split for every seed: results can be compared, and no test digit is ever trained on.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    parts = {"test": order[:TEST], "val": order[TEST : TEST + VAL], "train": order[TEST + VAL :]}
    return {name: _Digits(images[part], labels[part]) for name, part in parts.items()}


def digits() -> Data:
    """Load handwritten digits of 8 x 8 pixels from scikit-learn: 1,200 to train, 297 to validate, 300 to test."""
    parts: dict[str, Any] = {name: TensorDataset(part.images, part.labels) for name, part in _digits().items()}
    return Data(**parts, num_classes=10, shape=(1, 8, 8), class_names=DIGITS)


CELL = 20
"""A canvas is made of cells of this size, of which each holds one digit at most: none covers another."""
LARGER = 2
"""How many pixels of a canvas the side of a pixel of a digit takes."""
INK = 0.25
"""From this darkness on a pixel belongs to the digit."""


def digits_detection(
    size: Annotated[int, Ge(CELL)] = 60,
    count: Annotated[int, Ge(10)] = 1000,
    most: Annotated[int, Ge(1)] = 4,
    seed: Annotated[int, Ge(0)] = 0,
) -> Data:
    """Place real digits on canvases, with the exact box of each; the test uses digits that no other part has.

    Args:
        size: Height and width of a canvas.
        count: Number of canvases for training; validation and test have a fifth each.
        most: Largest number of digits on a canvas.
        seed: Seed of the places of the digits.
    """
    parts: dict[str, Any] = {name: _Boxed(part) for name, part in _canvases(size, count, most, seed).items()}
    return Data(
        **parts,
        task="detection",
        num_classes=11,
        shape=(1, size, size),
        class_names=["background", *DIGITS],
        collate=_with_lists,
    )


def digits_segmentation(
    size: Annotated[int, Ge(CELL)] = 60,
    count: Annotated[int, Ge(10)] = 1000,
    most: Annotated[int, Ge(1)] = 4,
    seed: Annotated[int, Ge(0)] = 0,
) -> Data:
    """Place real digits on canvases, with the class of every pixel: 0 is the background, digits count from 1.

    Args:
        size: Height and width of a canvas.
        count: Number of canvases for training; validation and test have a fifth each.
        most: Largest number of digits on a canvas.
        seed: Seed of the places of the digits.
    """
    parts: dict[str, Any] = {
        name: TensorDataset(torch.stack([c.image for c in part]), torch.stack([c.mask for c in part]))
        for name, part in _canvases(size, count, most, seed).items()
    }
    return Data(
        **parts,
        task="segmentation",
        num_classes=11,
        shape=(1, size, size),
        class_names=["background", *DIGITS],
    )


@dataclass
class _Canvas:
    image: Tensor
    mask: Tensor
    boxes: Tensor
    labels: Tensor


def _canvases(size: int, count: int, most: int, seed: int) -> dict[str, list[_Canvas]]:
    parts = {}
    for number, (name, digits) in enumerate(sorted(_digits().items())):
        random = np.random.default_rng([seed, number])
        some = count if name == "train" else count // 5
        parts[name] = [_canvas(digits, size, most, random) for _ in range(some)]
    return parts


def _canvas(digits: _Digits, size: int, most: int, random: np.random.Generator) -> _Canvas:
    image = torch.zeros(1, size, size)
    mask = torch.zeros(size, size, dtype=torch.int64)
    cells = [(row, column) for row in range(size // CELL) for column in range(size // CELL)]
    chosen = random.permutation(len(cells))[: random.integers(1, most + 1)]
    boxes, labels = [], []
    for cell in chosen:
        which = int(random.integers(len(digits.images)))
        digit, label = digits.images[which, 0], int(digits.labels[which]) + 1
        large = digit.repeat_interleave(LARGER, 0).repeat_interleave(LARGER, 1)
        side = len(large)
        top, left = (int(at) * CELL + int(random.integers(CELL - side + 1)) for at in cells[cell])
        image[0, top : top + side, left : left + side] = large
        ink = large >= INK
        mask[top : top + side, left : left + side][ink] = label
        rows, columns = (ink.any(dim=other).nonzero().flatten() for other in (1, 0))
        corners = columns[0] + left, rows[0] + top, columns[-1] + left + 1, rows[-1] + top + 1
        boxes.append([float(corner) for corner in corners])
        labels.append(label)
    noise = torch.from_numpy(random.normal(0, 0.05, image.shape).astype(np.float32))
    return _Canvas((image + noise).clamp(0, 1), mask, torch.tensor(boxes), torch.tensor(labels))


class _Boxed(Dataset[Any]):
    """Canvases with their boxes as the detectors of torchvision take them."""

    def __init__(self, canvases: list[_Canvas]) -> None:
        self.canvases = canvases

    def __len__(self) -> int:
        return len(self.canvases)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, Tensor]]:
        canvas = self.canvases[index]
        return canvas.image, {"boxes": canvas.boxes, "labels": canvas.labels}


def _with_lists(items: list[Any]) -> tuple[Tensor, list[Any]]:
    """Batch images as one tensor and targets as a list: images have different numbers of boxes."""
    return torch.stack([image for image, _ in items]), [target for _, target in items]


# -- known data from a folder --------------------------------------------------------------------------------------


class Pictures(Dataset[Any]):
    """Images of integers, N x C x H x W, which items normalise to values around 1.

    Args:
        images: All of them.
        labels: Their classes.
        mean: By channel, of values from 0 to 1.
        std: The same.
        flip: Whether to mirror one in two images, at random.
        shift: Largest number of pixels by which an image is moved, at random.
    """

    def __init__(
        self,
        images: Images,
        labels: NDArray[np.int64],
        mean: Sequence[float],
        std: Sequence[float],
        flip: bool = False,
        shift: int = 0,
    ) -> None:
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
        self.flip, self.shift = flip, shift

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = (self.images[index] / 255 - self.mean) / self.std
        if self.shift:
            down, right = torch.randint(2 * self.shift + 1, (2,)).tolist()
            height, width = image.shape[1:]
            image = torch.nn.functional.pad(image, [self.shift] * 4)[:, down : down + height, right : right + width]
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(2)
        return image, self.labels[index]


CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR10_FILES = [f"data_batch_{number}.bin" for number in range(1, 6)]
RECORD = 1 + 3 * 32 * 32


def cifar10(root: Path = Path("data"), val: Annotated[int, Ge(0)] = 5000, augment: bool = True) -> Data:
    """Load CIFAR-10 from the files of its binary version: 50,000 small colour images for training, 10,000 for the test.

    The version for Python is a pickle, which can run anything when it is opened, and is not read.

    Args:
        root: The folder with ``data_batch_1.bin`` and the others, or the one with ``cifar-10-batches-bin``.
        val: Number of the last training images that are kept for validation; a tenth at most.
        augment: Whether to mirror training images and move them a little.
    """
    folder = _folder(root, "cifar-10-batches-bin", [*CIFAR10_FILES, "test_batch.bin"], _HOW_CIFAR10)
    images, labels = _cifar_records([folder / name for name in CIFAR10_FILES])
    tested = _cifar_records([folder / "test_batch.bin"])
    scale = (CIFAR10_MEAN, CIFAR10_STD)
    return _split(images, labels, tested, val, scale, CIFAR10, {"flip": True, "shift": 4} if augment else {})


_HOW_CIFAR10 = (
    "put the files of 'CIFAR-10 binary version (suitable for C programs)', cifar-10-binary.tar.gz from "
    "https://www.cs.toronto.edu/~kriz/cifar.html, there"
)


def _cifar_records(paths: Sequence[Path]) -> tuple[Images, NDArray[np.int64]]:
    parts = []
    for path in paths:
        content = np.frombuffer(path.read_bytes(), np.uint8)
        if not len(content) or len(content) % RECORD:
            raise SettingError("root", f"{path} is damaged: a whole number of records of {RECORD} bytes is needed")
        parts.append(content.reshape(-1, RECORD))
    records = np.concatenate(parts)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise SettingError("root", f"{paths[0].parent} holds no CIFAR-10: there are classes up to {labels.max()}")
    return records[:, 1:].reshape(-1, 3, 32, 32).copy(), labels


MNIST_FILES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
_HOW_MNIST = "put its four files, as train-images-idx3-ubyte.gz, there, packed or not"


def mnist(root: Path = Path("data"), val: Annotated[int, Ge(0)] = 5000, augment: bool = False) -> Data:
    """Load MNIST from its four files, gzipped or not: 60,000 handwritten digits for training, 10,000 for the test.

    Args:
        root: The folder with the files, or the one with a folder ``mnist``, ``MNIST`` or ``MNIST/raw``.
        val: Number of the last training images that are kept for validation; a tenth at most.
        augment: Whether to move training images a little.
    """
    folder = _folder(root, ("mnist", "MNIST", "MNIST/raw"), MNIST_FILES, _HOW_MNIST)
    images, labels, test_images, test_labels = (_idx(_gzipped_or_not(folder / name)) for name in MNIST_FILES)
    for some, theirs in ((images, labels), (test_images, test_labels)):
        if some.ndim != 3 or theirs.ndim != 1 or len(some) != len(theirs) or theirs.max() > 9:
            raise SettingError("root", f"{folder} holds no MNIST: arrays of {some.shape} and {theirs.shape}")
    tested = test_images[:, None], test_labels.astype(np.int64)
    scale = ((0.1307,), (0.3081,))
    moved = {"shift": 2} if augment else {}
    return _split(images[:, None], labels.astype(np.int64), tested, val, scale, DIGITS, moved)


def _idx(path: Path) -> Images:
    """Read an array in the IDX format: two zeros, type, dimensions, sizes, values."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            head = file.read(4)
            if head[:3] != b"\0\0\x08" or not 1 <= head[3] <= 3:
                raise SettingError("root", f"{path} is no IDX file of bytes")
            shape = [int.from_bytes(file.read(4), "big") for _ in range(head[3])]
            # One byte more than expected: a gzipped file can be of any size.
            content = file.read(math.prod(shape) + 1)
    except (OSError, EOFError) as error:
        raise SettingError("root", f"{path} cannot be read: {error}") from None
    if len(content) != math.prod(shape) or not content:
        raise SettingError("root", f"{path} is damaged: {' x '.join(map(str, shape))} bytes are needed")
    return np.frombuffer(content, np.uint8).reshape(shape).copy()


def _gzipped_or_not(path: Path) -> Path:
    return path if path.exists() else path.with_name(f"{path.name}.gz")


def _folder(root: Path, below: str | Sequence[str], names: Sequence[str], how: str) -> Path:
    """Return the folder that has all of the files: the root itself, or one below it."""
    root = Path(root)
    places = [root, *(root / name for name in ([below] if isinstance(below, str) else below))]
    for place in places:
        missing = [name for name in names if not _gzipped_or_not(place / name).exists()]
        if not missing:
            return place
        if len(missing) < len(names):
            raise SettingError("root", f"{place.absolute()} has no {missing[0]}: {how}")
    raise SettingError("root", f"there is nothing of it in {root.absolute()}: {how}")


def _split(
    images: Images,
    labels: NDArray[np.int64],
    tested: tuple[Images, NDArray[np.int64]],
    val: int,
    scale: tuple[Sequence[float], Sequence[float]],
    names: Sequence[str],
    moved: Mapping[str, Any],
) -> Data:
    kept = min(val, len(images) // 10)
    first = len(images) - kept
    return Data(
        Pictures(images[:first], labels[:first], *scale, **moved),
        Pictures(images[first:], labels[first:], *scale) if kept else None,
        Pictures(*tested, *scale),
        num_classes=10,
        shape=images.shape[1:],
        class_names=names,
    )
