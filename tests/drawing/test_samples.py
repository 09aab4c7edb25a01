from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ignite_hooks.drawing.samples import as_samples, copy_of, prediction_of, ranked, read

X, Y = torch.rand(2, 3, 8, 8), torch.tensor([1, 0])
SCORES = torch.rand(2, 5)
ARRAY = np.array([1, 0])
TABLES = [torch.rand(4, 6), torch.rand(0, 6)]
FOUND = [SimpleNamespace(bboxes=torch.rand(n, 4)) for n in (1, 3)]
BOXES = [{"boxes": torch.rand(1, 4), "labels": torch.tensor([n])} for n in range(2)]


@pytest.mark.parametrize(
    ("batch", "outputs", "truth", "prediction"),
    [
        ((X, Y), 0.5, Y, None),
        ((X, Y), torch.tensor(0.5), Y, None),
        ([X, Y], (SCORES, Y), Y, SCORES),
        ((X, Y), SCORES, Y, SCORES),
        ((X, Y), {"y_pred": SCORES, "loss": 0.1}, Y, SCORES),
        ((X, Y), {"logits": SCORES, "y": Y}, Y, SCORES),
        ({"image": X, "label": Y}, {"loss": 0.1}, Y, None),
        ({"pixel_values": X, "labels": Y, "id": "a"}, None, Y, None),
        (X, None, None, None),
        ((X, Y, "more"), None, Y, None),
        ((list(X), BOXES), BOXES, BOXES, BOXES),
        ((list(X), BOXES), (BOXES, BOXES), BOXES, BOXES),
        ([(X[0], BOXES[0]), (X[1], BOXES[1])], None, BOXES, None),
        ((X.numpy(), ARRAY), None, ARRAY, None),
        ((X, Y), (0.5, 0.9), Y, None),
        ((X, Y), (torch.tensor(0.5), torch.tensor(0.9)), Y, None),
        ((X, Y), ({"logits": SCORES}, Y), Y, None),
        ((X, BOXES), TABLES, BOXES, TABLES),
        ((X, BOXES), FOUND, BOXES, FOUND),
    ],
)
def test_samples_are_found_in_the_usual_places(batch: Any, outputs: Any, truth: Any, prediction: Any) -> None:
    found = read(batch, outputs)
    assert len(found) == 2
    assert found.truth is truth or (isinstance(truth, list) and found.truth == truth)
    assert found.prediction is prediction


@pytest.mark.parametrize("outputs", [(0.5, 0.9, 0.1), (torch.rand(3, 5), torch.zeros(3), torch.tensor(0.5))])
def test_three_outputs_are_not_predictions_of_three_images(outputs: Any) -> None:
    assert read((torch.rand(3, 3, 8, 8), torch.zeros(3)), outputs).prediction is None


@pytest.mark.parametrize("batch", [None, 7, "text", {}, {"caption": ["a"]}, []])
def test_a_batch_without_images_raises_a_clear_error(batch: Any) -> None:
    with pytest.raises(ValueError, match=r"no images in a batch of .*: set extract to a function"):
        read(batch)


def test_vectors_are_reported_as_nothing_to_draw() -> None:
    assert read((torch.rand(8, 4), Y)).problem == "a batch of (8, 4) holds no images"
    assert read((X, Y)).problem == ""


@pytest.mark.parametrize("given", [None, {"target": 1}, {"images": X, "masks": X}, X])
def test_the_error_of_extract_says_what_to_return(given: Any) -> None:
    with pytest.raises(ValueError, match="extract must return a mapping of images, target, prediction, inputs, not"):
        as_samples(given)


@pytest.mark.parametrize("output", [SCORES, {"logits": SCORES}, (SCORES, torch.rand(7)), [torch.tensor(1.0), SCORES]])
def test_predictions_are_found_in_outputs_of_models(output: Any) -> None:
    assert prediction_of(output, 2) is SCORES


def test_outputs_without_prediction_raise_a_clear_error() -> None:
    with pytest.raises(ValueError, match=r"no prediction for 2 images in the output of the model: an array of \(3,\)"):
        prediction_of(torch.rand(3), 2)


@pytest.mark.parametrize("chosen", [2, [0, 1], torch.tensor([0, 1])])
@pytest.mark.parametrize("value", [torch.arange(3.0), np.arange(3.0), [torch.tensor(0.0), torch.tensor(1.0)]])
def test_copies_share_no_memory(value: Any, chosen: Any) -> None:
    value = copy.deepcopy(value)
    found = copy_of(value, chosen)
    assert [float(part) for part in found] == [0.0, 1.0]
    if isinstance(value, list):
        value[0].fill_(9.0)
    else:
        value[0] = 9.0
    assert [float(part) for part in found] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("prediction", "truth", "by", "expected"),
    [
        (torch.tensor([[0.0, 9.0], [9.0, 0.0]]), torch.tensor([1, 1]), "worst", [1, 0]),
        (torch.tensor([[0.0, 9.0], [9.0, 0.0]]), torch.tensor([[1, 0], [1, 0]]), "worst", [0, 1]),
        (torch.tensor([[0.0, 9.0], [1.0, 0.0]]), None, "uncertain", [1, 0]),
        (torch.tensor([[0.0, float("nan")], [9.0, 0.0]]), torch.tensor([0, 0]), "worst", [0, 1]),
        (torch.tensor([[0.0, 9.0], [9.0, 0.0]]), None, "worst", 2),
        (torch.tensor([0, 1]), torch.tensor([1, 1]), "worst", 2),
        (BOXES, BOXES, "uncertain", 2),
        (None, None, "first", 2),
        (torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]]), torch.tensor([0, -100, 0]), "worst", [2, 0]),
        (torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]]), torch.tensor([0, 255, 0]), "worst", [2, 0]),
        (torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 1, 1]), "worst", 2),
        (torch.tensor([3.0, -1.0, 0.5]), torch.tensor([1.0, 1.0, 0.0]), "worst", [1, 2]),
        (torch.tensor([[3.0], [-1.0], [0.5]]), torch.tensor([[1.0], [1.0], [0.0]]), "worst", [1, 2]),
        (torch.tensor([0.9, 0.4, 0.1]), None, "uncertain", [1, 0]),
        (torch.tensor([[0.3, 0.7, 0.0], [0.31, 0.35, 0.34]]), torch.tensor([0, 0]), "worst", [0, 1]),
        (torch.tensor([[0.60, 0.40], [0.58, 0.42]]), torch.tensor([0.5, 1.5]), "worst", 2),
    ],
)
def test_worst_or_most_uncertain_samples_come_first_if_known(
    prediction: Any, truth: Any, by: str, expected: Any
) -> None:
    found = ranked(prediction, truth, by, 2)
    assert (found.tolist() if isinstance(found, torch.Tensor) else found) == expected


def test_the_worst_labels_come_first() -> None:
    scores = torch.tensor([[9.0, 9.0], [9.0, -9.0], [0.0, 0.0]])
    truth = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    assert ranked(scores, truth, "worst", 3).tolist() == [1, 2, 0]  # type: ignore[union-attr]
