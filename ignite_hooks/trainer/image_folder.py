"""Images in folders named after their classes; a file becomes pixels, and never code or a path outside the root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from ignite_hooks.errors import SettingError
from ignite_hooks.text import did_you_mean
from ignite_hooks.trainer.datasets import Data

FORMATS = ("BMP", "JPEG", "PNG", "PPM", "WEBP")
LITTER = ("Thumbs.db", "desktop.ini")
"""What file managers leave behind."""
MOST_PIXELS = 64_000_000
"""A small file can say that it is an image of any size; this many pixels take 192 MB."""
EIGHT_BITS = ("1", "CMYK", "L", "LA", "P", "PA", "RGB", "RGBA", "YCbCr")
"""The kinds of pixels that become colours without losing their range."""


def image_folder(
    root: Path,
    size: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(1)], Annotated[int, Ge(1)]] = 64,
    channels: Literal[1, 3] = 3,
) -> Data:
    """Read images from ``root/train/CLASS``, and from ``val`` and ``test`` beside it if they are there.

    Every file is opened at the start as far as its size; its pixels are read when it is needed. There is no
    augmentation.

    Args:
        root: The folder with ``train``.
        size: Side of the square to which every image is scaled, or height and width.
        channels: 3 for colours, 1 for shades of grey.
    """
    root = Path(root)
    if not (root / "train").is_dir():
        hint = "put the images of each class in a folder train/CLASS below it"
        raise SettingError("root", f"{root.absolute()} has no folder 'train': {hint}")
    problems: list[str] = []
    classes = [folder.name for folder in _folders(root / "train", root.resolve(), problems)]
    if not classes and not problems:
        problems.append(f"{root / 'train'} has no folders: make one for each class")
    parts = {
        name: _files(root / name, classes, root.resolve(), problems)
        for name in ("train", "val", "test")
        if os.path.lexists(root / name)
    }
    if problems:
        shown = "; ".join(problems[:3])
        raise SettingError("root", shown + (f"; and {len(problems) - 3} more" if len(problems) > 3 else ""))
    height, width = (size, size) if isinstance(size, int) else size
    data: dict[str, Any] = {
        name: ImageFiles(files, classes, (height, width), channels) for name, files in parts.items()
    }
    return Data(**data, num_classes=len(classes), shape=(channels, height, width), class_names=classes)


class ImageFiles:
    """Images that are read when they are asked for, each with the number of its class.

    Args:
        files: Paths, each with the number of a class.
        classes: Names of the classes.
        size: Height and width to which images are scaled.
        channels: 3 for colours, 1 for shades of grey.
    """

    def __init__(
        self, files: Sequence[tuple[Path, int]], classes: Sequence[str], size: tuple[int, int], channels: int
    ) -> None:
        self.files, self.classes, self.size, self.channels = list(files), list(classes), size, channels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        return read_image(path, self.size, self.channels), label


def read_image(path: Path, size: tuple[int, int], channels: int) -> Tensor:
    """Return an image as channels x height x width from 0 to 1; a ValueError names a file that cannot be read."""
    from PIL import Image, ImageOps

    height, width = size
    mode = "RGB" if channels == 3 else "L"
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError("it has become larger since the start")
            # A JPEG is decoded no larger than needed.
            image.draft(mode, (2 * width, 2 * height))
            # Cameras store how they were held.
            upright: Any = ImageOps.exif_transpose(image)
            if "transparency" in upright.info:
                upright = upright.convert("RGBA")
            pixels = np.asarray(upright.convert(mode).resize((width, height), Image.Resampling.BILINEAR), np.float32)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}: replace or remove it") from error
    return torch.from_numpy(pixels.reshape(height, width, channels) / 255).permute(2, 0, 1).contiguous()


def _entries(folder: Path, root: Path, problems: list[str]) -> Iterator[Path]:
    """Yield what is in a folder in the order of names, but nothing hidden, and nothing that leads out of the root."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in LITTER:
            continue
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            problems.append(f"{path} is a link that leads nowhere")
            continue
        if real.is_relative_to(root):
            yield path
        else:
            problems.append(f"{path} is a link that leads out of {root}: copy what it points to")


def _folders(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    return [path for path in _entries(folder, root, problems) if path.is_dir()]


def _files(part: Path, classes: Sequence[str], root: Path, problems: list[str]) -> list[tuple[Path, int]]:
    """Return the images of a part, each with the number of its class."""
    if not part.is_dir() or not part.resolve().is_relative_to(root):
        problems.append(f"{part} is no folder of {root}")
        return []
    found: list[tuple[Path, int]] = []
    for folder in _entries(part, root, problems):
        if not folder.is_dir():
            problems.append(f"{folder} lies beside the folders of classes: move it into one, or remove it")
        elif folder.name not in classes:
            hint = did_you_mean(folder.name, classes) or f"; there are {', '.join(classes)}"
            problems.append(f"{folder}: 'train' has no class of this name{hint}")
        else:
            files = list(_entries(folder, root, problems))
            found += [(file, classes.index(folder.name)) for file in files]
            if not files:
                problems.append(f"{folder} is empty: put images there, or remove it")
    problems += [f"{file} {reason}" for file, _ in found if (reason := _why_no_image(file))]
    if not found and not problems:
        problems.append(f"{part} is empty: put a folder for each class there, or remove it")
    return found


def _why_no_image(path: Path) -> str:
    """Return the reason why a file cannot be used, from its first bytes; an empty text if it can."""
    from PIL import Image

    if not path.is_file():
        return "is no file: images lie directly in the folder of their class"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # judged below
            with Image.open(path, formats=FORMATS) as image:
                width, height, mode = image.width, image.height, image.mode
                frames = getattr(image, "n_frames", 1)
    except Image.DecompressionBombError:
        return f"is larger than {MOST_PIXELS // 1_000_000} megapixels: scale it down"
    except (OSError, SyntaxError, ValueError):
        return f"is no image that can be read: {', '.join(FORMATS)} can"
    if width * height > MOST_PIXELS:
        return f"has {width} x {height} pixels: scale it down to {MOST_PIXELS // 1_000_000} megapixels"
    if mode not in EIGHT_BITS:
        return f"has pixels of the kind {mode}: convert it to 8 bits per channel"
    return f"is an animation of {frames} images: save one of them" if frames > 1 else ""
