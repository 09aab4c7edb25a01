"""Images in folders: what they become, and what is said of those that cannot be used."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ignite_hooks.errors import SettingError
from ignite_hooks.trainer.image_folder import image_folder, read_image


def picture(path: Path, mode: str = "RGB", size: tuple[int, int] = (6, 4), colour: Any = None, **saving: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour if colour is not None else 0).save(path, **saving)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for part in ("train", "val"):
        picture(tmp_path / "data" / part / "cat" / "1.png", colour=(255, 0, 0))
        picture(tmp_path / "data" / part / "dog" / "1.jpg", size=(40, 30))
    return tmp_path / "data"


def test_folders_become_classes_of_one_size(root: Path) -> None:
    data = image_folder(root, size=(8, 10))
    assert (data.num_classes, data.class_names, data.shape, data.test) == (2, ["cat", "dog"], (3, 8, 10), None)
    assert [len(data.train), len(data.val)] == [2, 2]
    image, label = data.train[0]
    assert (image.shape, image.dtype, label) == ((3, 8, 10), torch.float32, 0)
    assert image[:, 0, 0].tolist() == [1, 0, 0]
    assert data.train[1][1] == 1


def test_shades_of_grey_have_one_channel(root: Path) -> None:
    assert image_folder(root, size=8, channels=1).train[0][0].shape == (1, 8, 8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_kind_of_pixel_becomes_colours(mode: str, tmp_path: Path) -> None:
    path = picture(tmp_path / ("image.jpg" if mode == "CMYK" else "image.png"), mode)
    assert read_image(path, (5, 7), 3).shape == (3, 5, 7)


def test_a_photo_stands_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    path = tmp_path / "photo.jpg"
    Image.fromarray(pixels).save(path, exif=exif)
    image = read_image(path, (16, 8), 3)
    assert image[:, 2].mean() > 0.9
    assert image[:, -3].mean() < 0.1


def huge_png() -> bytes:
    """Return a few bytes that claim to be an image of 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def large_png(path: Path) -> None:
    picture(path, "1", (9000, 9000))


Spoil = Callable[[Path], Any]
FAULTS: dict[str, tuple[Spoil, str]] = {
    "no training": (lambda root: (root / "train").rename(root / "trains"), "has no folder 'train'"),
    "an empty class": (lambda root: (root / "train" / "bird").mkdir(), "train/bird is empty"),
    "a class only in validation": (
        lambda root: (root / "val" / "dogg").mkdir(),
        "val/dogg: 'train' has no class of this name, did you mean 'dog'?",
    ),
    "an image beside the classes": (lambda root: picture(root / "val" / "1.png"), "val/1.png lies beside the folders"),
    "text": (lambda root: (root / "train/cat/2.png").write_text("hello"), "train/cat/2.png is no image that can"),
    "an empty file": (lambda root: (root / "train/cat/2.png").touch(), "train/cat/2.png is no image that can"),
    "a folder in a class": (lambda root: (root / "train/cat/more").mkdir(), "train/cat/more is no file"),
    "a link to nowhere": (
        lambda root: (root / "train/cat/2.png").symlink_to("none.png"),
        "train/cat/2.png is a link that leads nowhere",
    ),
    "a link to itself": (
        lambda root: (root / "train/cat/2.png").symlink_to("2.png"),
        "train/cat/2.png is a link that leads nowhere",
    ),
    "a link that leaves": (
        lambda root: (root / "train/cat/2.png").symlink_to(picture(root.parent / "secret.png")),
        "train/cat/2.png is a link that leads out of",
    ),
    "a class that leaves": (
        lambda root: (root / "train/fox").symlink_to(picture(root.parent / "fox" / "1.png").parent),
        "train/fox is a link that leads out of",
    ),
    "a part that leaves": (
        lambda root: (root / "test").symlink_to(picture(root.parent / "x/cat/1.png").parent.parent),
        "test is no folder of",
    ),
    "a bomb": (lambda root: (root / "train/cat/2.png").write_bytes(huge_png()), "2.png is larger than 64 megapixels"),
    "a large image": (lambda root: large_png(root / "train/cat/2.png"), "2.png has 9000 x 9000 pixels: scale it down"),
    "16 bits": (
        lambda root: picture(root / "train/cat/2.png", "I;16"),
        "2.png has pixels of the kind I;16: convert it to 8 bits",
    ),
    "another format": (lambda root: picture(root / "train/cat/2.gif"), "2.gif is no image that can be read"),
    "an animation": (
        lambda root: picture(
            root / "train/cat/2.png", save_all=True, append_images=[Image.new("RGB", (6, 4), (9, 9, 9))]
        ),
        "2.png is an animation of 2 images",
    ),
    "an empty part": (lambda root: (root / "test").mkdir(), "test is empty"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_used_is_said_with_its_file(fault: str, root: Path) -> None:
    spoil, said = FAULTS[fault]
    spoil(root)
    with pytest.raises(SettingError) as caught:
        image_folder(root)
    assert said in caught.value.message
    assert caught.value.setting == "root"


def test_several_files_are_named_and_the_others_counted(root: Path) -> None:
    for i in range(5):
        (root / "train/cat" / f"broken{i}.png").touch()
    with pytest.raises(SettingError, match=r"broken0.*broken1.*broken2.*and 2 more"):
        image_folder(root)


def test_links_within_the_root_and_litter_are_fine(root: Path) -> None:
    (root / "train/dog/2.png").symlink_to("../cat/1.png")
    for name in (".DS_Store", "Thumbs.db"):
        (root / "train" / "cat" / name).touch()
        (root / name).touch()
    assert len(image_folder(root).train) == 3


def test_an_image_that_is_cut_off_is_named_when_it_is_read(root: Path) -> None:
    path = root / "train/cat/1.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:5000])
    data = image_folder(root)
    with pytest.raises(ValueError, match=r"train/cat/1\.png cannot be read: .*: replace or remove it"):
        data.train[0]
