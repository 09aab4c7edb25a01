"""Make the data of this folder: ``python make_data.py`` draws pictures and writes a table into ``data``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_wine

SHAPES = ("circle", "square", "triangle")
COUNTS = {"train": 60, "val": 20, "test": 20}
SIDE = 48


def picture(shapes: Sequence[str], random: np.random.Generator) -> Image.Image:
    """Draw shapes of random colours and sizes at random places."""
    image = Image.fromarray(random.integers(0, 60, (SIDE, SIDE, 3), np.uint8))
    draw = ImageDraw.Draw(image)
    for shape in shapes:
        size = int(random.integers(14, 22))
        x, y = (int(random.integers(1, SIDE - size)) for _ in range(2))
        colour = tuple(random.integers(120, 256, 3).tolist())
        box = (x, y, x + size, y + size)
        if shape == "circle":
            draw.ellipse(box, fill=colour)
        elif shape == "square":
            draw.rectangle(box, fill=colour)
        else:
            draw.polygon([(x, y + size), (x + size, y + size), (x + size / 2, y)], fill=colour)
    return image


def make_images(folder: Path, random: np.random.Generator) -> None:
    """Draw one shape in each picture, in a folder for each class."""
    for part, count in COUNTS.items():
        for shape in SHAPES:
            place = folder / part / shape
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                picture([shape], random).save(place / f"{number:03}.png")


def make_table(path: Path) -> None:
    """Write what was measured of 178 wines of three growers, from scikit-learn."""
    wine = load_wine()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*wine.feature_names, "grower"])
        for row, grower in zip(wine.data, wine.target, strict=True):
            writer.writerow([*row.tolist(), f"grower {grower + 1}"])


def main(folder: Path) -> None:
    """Make everything."""
    folder.mkdir(parents=True, exist_ok=True)
    make_images(folder / "shapes", np.random.default_rng(0))
    make_table(folder / "wine.csv")
    print(f"made {folder / 'shapes'} and {folder / 'wine.csv'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
