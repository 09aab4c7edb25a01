"""Draws one picture of every kind from small real data into docs/gallery: `make gallery`.

Handwritten digits of scikit-learn, and faces and coins of scikit-image; the models are small and trained here, so that
they make mistakes worth seeing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from skimage import data, filters, measure, segmentation
from sklearn.datasets import load_digits
from torch import Tensor, nn

from ignite_hooks import drawing
from ignite_hooks.writers.media import video_of

FOLDER = Path(__file__).parent.parent / "docs" / "gallery"
FACES = ("no face", "face")


class Patches(nn.Module):
    """A small vision transformer: patches of 5 x 5, with a class token in front."""

    def __init__(self, side: int = 25, patch: int = 5, width: int = 32) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, width, patch, patch)
        self.own = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 64, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Map N x 1 x 25 x 25 to N x 2."""
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.own.expand(len(images), -1, -1), tokens], 1) + self.place
        scores: Tensor = self.head(self.encoder(tokens)[:, 0])
        return scores


def cnn(classes: int) -> nn.Sequential:
    """Return a network of three convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )


def trained(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> Iterator[tuple[int, float]]:
    """Train, and yield the step and its loss."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(1, steps + 1):
        chosen = torch.randint(0, len(images), (64,))
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss.item()


def digits(effort: float) -> dict[str, Any]:
    """Draw what a classifier says of digits it has not seen, the worst first, and how it learnt."""
    bunch = load_digits()
    images = torch.tensor(bunch.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(bunch.target)
    model = cnn(10)
    history: dict[str, list[tuple[float, float]]] = {"loss": [], "val_loss": [], "val_accuracy": []}
    for step, loss in trained(model, images[:1000], labels[:1000], round(240 * effort)):
        history["loss"].append((step, loss))
        if step % 10 == 0:
            with torch.no_grad():
                scores = model(images[1000:])
            history["val_loss"].append((step, float(nn.functional.cross_entropy(scores, labels[1000:]))))
            history["val_accuracy"].append((step, float((scores.argmax(1) == labels[1000:]).float().mean())))
    with torch.no_grad():
        scores = model(images[1000:])
    worst = nn.functional.cross_entropy(scores, labels[1000:], reduction="none").argsort(descending=True)[:16]
    pictures = drawing.as_images(images[1000:][worst])
    counts = torch.bincount(labels[1000:] * 10 + scores.argmax(1), minlength=100).view(10, 10)
    best = max(history["val_accuracy"], key=lambda point: point[1])
    return {
        "classification": drawing.classification(
            pictures, labels[1000:][worst], scores[worst], title="Digits", note="the worst of 797"
        ),
        "confusion": drawing.confusion(counts, title="Digits"),
        "curves": drawing.curves(history, title="Digits", best={"val_accuracy": best}),
    }


def faces(effort: float) -> dict[str, Any]:
    """Draw what a network looks at to tell faces from other things."""
    images = torch.tensor(np.asarray(data.lfw_subset()), dtype=torch.float32)[:, None]
    images = (images - images.mean()) / images.std()
    labels = torch.tensor([1] * 100 + [0] * 100)
    model, transformer = cnn(2), Patches()
    for network, steps in ((model, 250), (transformer, 150)):
        list(trained(network, images, labels, round(steps * effort)))
    chosen = images[[1, 7, 12, 25, 33, 47, 61, 90]]
    pictures = drawing.as_images(chosen)
    found = drawing.feature_maps(model, chosen[:1])
    name, maps = next(iter(found.items()))
    channels = maps[0].abs().mean((1, 2)).argsort(descending=True)[:12].tolist()
    attention = drawing.attention_maps(transformer, chosen[:4])
    return {
        "grad_cam": drawing.heats(pictures, drawing.grad_cam(model, chosen, target=1), title="Grad-CAM of 'face'"),
        "layer_cam": drawing.heats(pictures, drawing.layer_cam(model, chosen, target=1), title="Layer-CAM of 'face'"),
        "gradient": drawing.heats(
            pictures, drawing.saliency(model, chosen, target=1, samples=16), title="SmoothGrad of 'face'"
        ),
        "feature_map": drawing.features(
            maps[0][channels], channels, title=f"Layer {name}", note="the most active channels"
        ),
        "attention": drawing.attentions(pictures, attention, drawing.rollout(attention), title="Attention"),
    }


def coins(effort: float) -> dict[str, Any]:
    """Draw coins: boxes of a crude detector, and masks of a small network that has seen the upper half."""
    image = data.coins()
    markers = np.where(image > 150, 2, np.where(image < 30, 1, 0))
    whole = ndimage.binary_fill_holes(segmentation.watershed(filters.sobel(image), markers) == 2)
    truth = _boxes(measure.label(whole), 300)
    guess = _boxes(measure.label(filters.gaussian(image, 2) * 255 > 150), 120)
    scores = [min(1.0, (box[2] - box[0]) * (box[3] - box[1]) / 1500) for box in guess]
    crops = [(0, 0), (150, 192)]
    pictures = [np.repeat(image[y : y + 150, x : x + 192, None], 3, 2) for y, x in crops]
    boxes = [_within(truth, crop) for crop in crops]
    found = [_within(guess, crop, scores) for crop in crops]
    style = drawing.BoxStyle(class_names=["coin"])
    detections = drawing.detections(pictures, boxes, found, style=style, title="Coins", score_thr=0.3)

    network = nn.Sequential(nn.Conv2d(1, 12, 9, padding=4), nn.ReLU(), nn.Conv2d(12, 2, 5, padding=2))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    pixels = torch.tensor(image / 255, dtype=torch.float32)[None, None]
    mask = torch.tensor(whole, dtype=torch.long)[None]
    for _ in range(round(60 * effort)):
        loss = nn.functional.cross_entropy(network(pixels[:, :, :150]), mask[:, :150])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits = network(pixels)[0]
    places = [(150, 0), (150, 192)]
    masks = drawing.segmentations(
        [np.repeat(image[y : y + 150, x : x + 192, None], 3, 2) for y, x in places],
        [mask[0, y : y + 150, x : x + 192] for y, x in places],
        [logits[:, y : y + 150, x : x + 192] for y, x in places],
        class_names=["background", "coin"],
        title="Coins",
    )
    return {"detection": detections, "segmentation": masks}


def _boxes(labelled: Any, least: int) -> list[tuple[float, ...]]:
    found = [region for region in measure.regionprops(labelled) if region.area >= least]
    return [(region.bbox[1], region.bbox[0], region.bbox[3], region.bbox[2]) for region in found]


def _within(boxes: list[tuple[float, ...]], crop: tuple[int, int], scores: list[float] | None = None) -> dict[str, Any]:
    """Return the boxes whose centre lies in a crop, in its pixels."""
    y, x = crop
    kept = [
        index
        for index, (left, top, right, bottom) in enumerate(boxes)
        if x <= (left + right) / 2 < x + 192 and y <= (top + bottom) / 2 < y + 150
    ]
    moved = [[boxes[i][0] - x, boxes[i][1] - y, boxes[i][2] - x, boxes[i][3] - y] for i in kept]
    found: dict[str, Any] = {"boxes": np.array(moved, float).reshape(-1, 4), "labels": np.zeros(len(kept), int)}
    return found if scores is None else {**found, "scores": np.array([scores[index] for index in kept])}


def spirals(effort: float) -> list[Any]:
    """Draw how the border between two spirals comes to its place, a frame for every few steps."""
    turn = torch.linspace(0.4, 3.2, 80)
    arms = [torch.stack([turn * (2 * turn + a).cos(), turn * (2 * turn + a).sin()], 1) for a in (0.0, torch.pi)]
    points = (torch.cat(arms) + 0.06 * torch.randn(160, 2)) / 3.4
    labels = torch.arange(2).repeat_interleave(80)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    across = torch.linspace(-1, 1, 160)
    places = torch.cartesian_prod(across.flip(0), across).flip(1)
    frames = []
    for step, _ in trained(model, points, labels, round(800 * effort)):
        if step % 20 == 0:
            with torch.no_grad():
                share = model(places).softmax(1)[:, 1].reshape(160, 160, 1)
            blue, red = torch.tensor([0.25, 0.47, 0.85]), torch.tensor([0.86, 0.36, 0.30])
            frame = 1 - 0.45 * (1 - (share * red + (1 - share) * blue))
            for (x, y), label in zip(points.clamp(-0.97, 0.97).tolist(), labels.tolist(), strict=True):
                row, column = round((1 - y) / 2 * 159), round((1 + x) / 2 * 159)
                frame[row - 1 : row + 2, column - 1 : column + 2] = (red if label else blue) * 0.8
            frames.append(frame)
    return frames


def main(folder: Path, effort: float = 1.0) -> None:
    """Draw everything, with models that are trained for this share of the usual time."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in (digits, faces, coins):
        torch.manual_seed(0)
        for name, picture in make(effort).items():
            path = folder / f"{name}.png"
            drawing.save(picture, path, smallest=True)
            print(f"{path}  {path.stat().st_size // 1024} KB")
    torch.manual_seed(0)
    film = folder / "video.gif"
    film.write_bytes(video_of(spirals(effort), fps=10).data)
    print(f"{film}  {film.stat().st_size // 1024} KB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument(
        "--effort", type=float, default=1.0, help="a share of the usual training: 0.05 shows that it runs"
    )
    torch.set_num_threads(1)
    given = parser.parse_args()
    main(given.folder, given.effort)
