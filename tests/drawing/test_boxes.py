from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ignite_hooks.drawing.boxes import (
    Boxes,
    BoxStyle,
    detection,
    draw_boxes,
    iou,
    label_of,
    label_overlap,
    label_place,
    match,
)
from ignite_hooks.drawing.figures import detections
from ignite_hooks.drawing.theme import MISSED, RIGHT, TEXT_SIZE, WRONG, font

CORNERS = [[1.0, 2.0, 30.0, 40.0], [5.0, 5.0, 9.0, 9.0]]


@pytest.mark.parametrize(
    "given",
    [
        {"boxes": torch.tensor(CORNERS), "labels": torch.tensor([3, 1]), "scores": torch.tensor([0.5, 0.25])},
        {"bboxes": np.array(CORNERS), "labels": [3, 1], "scores": [0.5, 0.25]},
        {"bboxes": np.array([[*row, s] for row, s in zip(CORNERS, [0.5, 0.25], strict=True)]), "labels": [3, 1]},
        SimpleNamespace(bboxes=torch.tensor(CORNERS), labels=torch.tensor([3, 1]), scores=torch.tensor([0.5, 0.25])),
        SimpleNamespace(pred_instances=SimpleNamespace(bboxes=CORNERS, labels=[3, 1], scores=[0.5, 0.25])),
        np.array([[*CORNERS[0], 0.5, 3], [*CORNERS[1], 0.25, 1]]),
        Boxes(np.array(CORNERS), np.array([3, 1]), np.array([0.5, 0.25])),
    ],
    ids=["torchvision", "mmdet mapping", "score as a column", "mmdet object", "mmdet sample", "array of 6", "boxes"],
)
def test_boxes_are_read_in_every_usual_form(given: Any) -> None:
    boxes = Boxes.read(given)
    assert boxes.corners.tolist() == CORNERS
    assert boxes.labels.tolist() == [3, 1]
    assert boxes.scores is not None
    assert boxes.scores.tolist() == [0.5, 0.25]


def test_truth_of_a_sample_with_both_is_read_on_request() -> None:
    """Predictions in the samples of the batch, as MMDetection stores them."""
    sample = SimpleNamespace(
        gt_instances=SimpleNamespace(bboxes=CORNERS, labels=[3, 1]),
        pred_instances=SimpleNamespace(bboxes=CORNERS[:1], labels=[3], scores=[0.5]),
    )
    assert len(Boxes.read(sample)) == 1
    assert len(Boxes.read(sample, truth=True)) == 2
    one_missed = detections([np.zeros((60, 60, 3), np.uint8)], [sample], [sample])
    assert (one_missed == MISSED).all(-1).sum() > 200, "not only in the legend"


@pytest.mark.parametrize("empty", [[], torch.zeros(0, 4), {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0)}])
def test_empty_boxes_are_valid(empty: Any) -> None:
    assert len(Boxes.read(empty)) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": [1]}, "no boxes in 'labels': 'boxes' or 'bboxes' is needed, or an array of N x 4"),
        (7, "no boxes in 'int'"),
        (np.zeros((2, 3)), "N x 4, 5 or 6"),
        ({"boxes": np.zeros((2, 3))}, "as N x 4, not \\(2, 3\\)"),
        ({"boxes": np.zeros((2, 4)), "labels": [1]}, "2 boxes have 1 labels"),
        ({"boxes": np.zeros((1, 4)), "labels": [1], "scores": [0.1, 0.2]}, "1 boxes have 2 scores"),
    ],
)
def test_invalid_boxes_raise_a_clear_error(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Boxes.read(given)


def test_boxes_that_are_not_finite_are_dropped() -> None:
    found = Boxes.read({"boxes": [[0, 0, float("nan"), 1], [0, 0, 1, 1]], "labels": [1, 2], "scores": [0.1, 0.2]})
    assert found.labels.tolist() == [2]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([0, 0, 2, 2], [0, 0, 2, 2], 1.0),
        ([0, 0, 2, 2], [1, 1, 3, 3], 1 / 7),
        ([0, 0, 2, 2], [2, 2, 3, 3], 0.0),
        ([0, 0, 0, 0], [0, 0, 0, 0], 0.0),
        ([2, 2, 0, 0], [0, 0, 2, 2], 0.0),
    ],
)
def test_intersection_over_union(one: list[float], other: list[float], expected: float) -> None:
    assert iou(np.array([one], float), np.array([other], float))[0, 0] == pytest.approx(expected)


def test_each_true_box_matches_the_best_score_of_its_class() -> None:
    truth = Boxes.read({"boxes": [[0, 0, 10, 10], [50, 50, 60, 60]], "labels": [1, 2]})
    guess = Boxes.read(
        {
            "boxes": [[0, 0, 10, 9], [0, 0, 10, 10], [50, 50, 60, 60], [0, 0, 3, 3]],
            "labels": [1, 1, 3, 1],
            "scores": [0.4, 0.9, 0.99, 0.1],
        }
    )
    found = match(truth, guess)
    assert found.truth.tolist() == [1, -1], "the second is of another class"
    assert found.prediction.tolist() == [-1, 0, -1, -1]
    assert match(truth, guess, at_iou=0.95).truth.tolist() == [1, -1]


def test_empty_boxes_can_be_matched() -> None:
    none, one = Boxes.read([]), Boxes.read([[0, 0, 5, 5]])
    assert match(none, one).prediction.tolist() == [-1]
    assert match(one, none).truth.tolist() == [-1]
    assert match(none, none).truth.tolist() == []


def colours_of(picture: np.ndarray[Any, Any]) -> set[tuple[int, ...]]:
    return {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}


def test_matched_missed_and_false_boxes_differ_in_colour() -> None:
    truth = Boxes.read({"boxes": [[10, 20, 60, 80], [120, 20, 180, 80]], "labels": [1, 1]})
    guess = Boxes.read({"boxes": [[12, 21, 61, 82], [20, 120, 90, 180]], "labels": [1, 1], "scores": [0.9, 0.8]})
    (left, right), words = detection(np.zeros((200, 200, 3), np.uint8), truth, guess)
    assert {RIGHT, MISSED} <= colours_of(left)
    assert {RIGHT, WRONG} <= colours_of(right)
    assert WRONG not in colours_of(left)
    assert words == "1 matched, 1 missed, 1 false"


def test_labels_stay_inside_the_picture_and_apart_from_each_other() -> None:
    seed = 3
    print("seed", seed)
    draw = np.random.default_rng(seed)
    for _ in range(200):
        wide, high = (int(v) for v in draw.integers(40, 300, 2))
        taken: list[tuple[int, int, int, int]] = []
        for _ in range(3):
            left, top = draw.uniform(-20, wide), draw.uniform(-20, high)
            box = (max(0, left), max(0, top), min(wide - 1, left + 50), min(high - 1, top + 50))
            place = label_place(box, (35, 15), (wide, high), taken)
            assert 0 <= place[0] < place[2] <= wide
            assert 0 <= place[1] < place[3] <= high
            taken.append(place)
    alone = label_place((10, 30, 60, 70), (35, 15), (200, 200), [])
    second = label_place((10, 30, 60, 70), (35, 15), (200, 200), [alone])
    assert second[1] >= alone[3] or second[0] >= alone[2], "the second label goes elsewhere"


def test_without_free_place_a_label_overlaps_others_least() -> None:
    taken = [(0, 0, 100, 40), (0, 40, 100, 58), (0, 62, 100, 100)]
    place = label_place((10, 40, 60, 70), (30, 15), (100, 100), taken)
    hidden = [label_overlap(place, taken) for place in ((10, 25, 40, 40), place)]
    assert hidden[1] < hidden[0]


@pytest.mark.parametrize("wide", [20, 34, 60, 224, 600])
def test_a_label_is_shortened_to_fit_and_keeps_its_score(wide: int) -> None:
    style = BoxStyle(class_names=["a bicycle with a name that goes on and on " * 3])
    boxes = Boxes.read({"boxes": [[0, 0, 10, 10]], "labels": [0], "scores": [0.87]})
    text = label_of(boxes, 0, style, wide)
    assert font(text, TEXT_SIZE - 2).getlength(text) <= wide - 6
    assert text.endswith("0.87") or wide < 34
    assert wide < 100 or text.startswith("a bic")
    whole = label_of(boxes, 0, BoxStyle(class_names=["dog"]), 224)
    assert whole == "dog 0.87"


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (20, 20)])
def test_boxes_in_tiny_pictures_and_far_outside_can_be_drawn(size: tuple[int, int]) -> None:
    boxes = Boxes.read({"boxes": [[-500, -500, 900, 900], [400, 400, 500, 500], [5, 5, 1, 1]], "labels": [0, 1, 2]})
    picture = np.zeros((*size, 3), np.uint8)
    drawn = draw_boxes(picture, boxes, style=BoxStyle(class_names=["a", "b"], text_colour="red", thickness=3))
    assert drawn.shape == picture.shape
    assert not picture.any(), "the picture given stays as it was"
