from __future__ import annotations

import base64
import io
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from PIL import Image

from ignite_hooks.measure.worst import PICTURE, Worst, judged, seen, thumbnail

LOGITS = torch.tensor([[5.0, 0.0], [0.0, 5.0], [1.0, 0.0], [0.0, 1.0]])


def table(batches: list[Any], k: int = 2) -> list[list[Any]]:
    engine = Engine(lambda engine, batch: (batch["logits"], batch["y"]))
    Worst(k).attach(engine, "worst")
    engine.run(batches)
    rows: list[list[Any]] = engine.state.metrics["worst"].content["rows"]
    return rows


def test_the_samples_with_the_greatest_loss_are_kept_over_all_batches() -> None:
    texts = ["a", "b", "c", "d"]
    batches = [
        {"logits": LOGITS[:2], "y": torch.tensor([0, 0]), "text": texts[:2]},
        {"logits": LOGITS[2:], "y": torch.tensor([1, 1]), "text": texts[2:]},
    ]
    rows = table(batches)
    assert [(row[0], row[2], row[3]) for row in rows] == [("b", 0, 1), ("c", 1, 0)]
    assert rows[0][1] == pytest.approx(5.0067, abs=1e-3)
    assert rows == table(batches[::-1])


def test_a_picture_is_a_small_png() -> None:
    image = torch.linspace(-3, 7, 3 * 100 * 50).reshape(3, 100, 50)
    found = Image.open(io.BytesIO(base64.b64decode(thumbnail(image).removeprefix(PICTURE))))
    assert found.size == (32, 64)
    assert seen((torch.zeros(2, 1, 8, 8), torch.zeros(2)), 1).startswith(PICTURE)
    assert seen((torch.zeros(2, 5), torch.zeros(2)), 1) == ""


def test_of_pixels_the_mean_counts_and_nan_is_worst() -> None:
    logits = torch.zeros(2, 3, 4, 4)
    logits[1] = float("nan")
    losses, true, _, _ = judged(logits, torch.ones(2, 4, 4, dtype=torch.long), probabilities=False)
    assert losses[1] > losses[0]
    assert true.tolist() == [1, 1]
    with pytest.raises(ValueError, match="the worst samples are those of classes"):
        judged(torch.zeros(4), torch.zeros(4), probabilities=False)
    with pytest.raises(ValueError, match="k: a number of samples"):
        Worst(0)
