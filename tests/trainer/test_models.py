"""The models that come along learn what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import BaseTrainer
from ignite_hooks.trainer.models import CNN, MLP, DetectionLoss, Detector, Segmenter, ViT, boxes_of


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (32, 32), (9, 13)], ids=str)
def test_classifiers_take_the_size_they_are_made_for(size: tuple[int, int]) -> None:
    height, width = size
    images = torch.zeros(2, 3, height, width)
    models = [CNN(5), MLP(5, 3 * height * width), ViT(5, size, patch_size=1, depth=1)]
    assert [tuple(model(images).shape) for model in models] == [(2, 5)] * 3


@pytest.mark.parametrize("size", [(60, 60), (33, 47)], ids=str)
def test_a_segmenter_gives_as_many_pixels_as_it_gets(size: tuple[int, int]) -> None:
    assert Segmenter(4, in_channels=1)(torch.zeros(2, 1, *size)).shape == (2, 4, *size)


def test_a_detector_finds_the_boxes_of_its_map() -> None:
    found = torch.full((1, 2 + 4, 10, 10), -9.0)
    # The place at row 3, column 5 has its centre at (22, 14), and says: 8 to every side, of class 2.
    found[0, 1, 3, 5] = 9.0
    found[0, -4:, 3, 5] = torch.log(torch.tensor(8 / 4))
    (boxes,) = Detector(num_classes=3)._boxes(found)
    assert boxes["labels"].tolist() == [2]
    assert boxes["boxes"].tolist() == [pytest.approx([14, 6, 30, 22])]
    assert boxes_of(found[:, -4:]).shape == (1, 4, 10, 10)
    target = {"boxes": torch.tensor([[14.0, 6, 30, 22]]), "labels": torch.tensor([2])}
    right = DetectionLoss()(found, [target])
    wrong = DetectionLoss()(found, [{**target, "labels": torch.tensor([1])}])
    assert right < 0.01 < wrong


def test_a_batch_without_any_box_has_a_loss_too() -> None:
    nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    loss = DetectionLoss()(Detector(3, 1)(torch.rand(2, 1, 20, 20)), [nothing, nothing])
    assert torch.isfinite(loss)
    loss.backward()


LEARNED: dict[str, tuple[dict[str, Any], str, float]] = {
    "mlp": ({"model": "mlp", "dataset": "digits", "training": {"epochs": 6, "batch_size": 64}}, "test_accuracy", 0.9),
    "vit": (
        {"model": {"type": "vit", "patch_size": 4, "depth": 2}, "dataset": "digits", "training": {"epochs": 5}},
        "test_accuracy",
        0.8,
    ),
    "detector": (
        {
            "model": "detector",
            "dataset": {"type": "digits_detection", "count": 200, "size": 32, "most": 2},
            "training": {"epochs": 5, "batch_size": 16, "clip_grad": 10},
        },
        "test_map",
        0.5,
    ),
    "segmenter": (
        {
            "model": {"type": "segmenter", "channels": [16, 32]},
            "dataset": {"type": "digits_segmentation", "count": 600, "size": 20, "most": 1},
            "training": {"epochs": 6, "batch_size": 32},
        },
        "test_miou",
        0.2,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("sections", "metric", "least"), LEARNED.values(), ids=LEARNED)
def test_it_learns(sections: dict[str, Any], metric: str, least: float, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    training = {"optimizer": {"type": "AdamW", "lr": 0.004}, "seed": 0, **sections["training"]}
    trainer = BaseTrainer({**sections, "training": training, "hooks": []}, work_dir=tmp_path)
    assert trainer.train()[metric] > least
