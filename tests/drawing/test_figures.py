"""Compare each kind of picture with its reference; IGNITE_HOOKS_REFERENCES=1 stores new ones: view them then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ignite_hooks import drawing
from ignite_hooks.drawing import figures as sheets
from ignite_hooks.drawing import layout
from ignite_hooks.drawing.figures import decided, patches_seen, said
from ignite_hooks.drawing.images import Picture
from ignite_hooks.drawing.layout import as_pixels
from ignite_hooks.drawing.theme import RIGHT, WRONG

REFERENCES = Path(__file__).parent / "references"


def shapes(count: int, side: int = 48) -> list[Picture]:
    """Return images with a gradient and a bright disc each."""
    y, x = np.mgrid[:side, :side]
    found = []
    for index in range(count):
        image = np.stack([x * 3, y * 3, np.full_like(x, 60)], 2)
        image[(y - side / 2) ** 2 + (x - 14 - 6 * index) ** 2 < 90] = (240, 220, 200)
        found.append(image.astype(np.uint8))
    return found


def discs(count: int, side: int = 48) -> np.ndarray[Any, Any]:
    y, x = np.mgrid[:side, :side]
    return np.stack([((y - side / 2) ** 2 + (x - 14 - 6 * index) ** 2 < 90).astype(int) for index in range(count)])


def classification() -> Picture:
    scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    names = ["disc", "a name that is too long to stand there", "other"]
    return drawing.classification(
        shapes(3), [0, 0, 2], scores, class_names=names, score_thr=0.6, title="Classes", note="a note"
    )


def detection() -> Picture:
    truth = [
        {"boxes": [[4, 14, 25, 35]], "labels": [0]},
        {"boxes": [[10, 14, 31, 35], [30, 2, 46, 16]], "labels": [0, 1]},
    ]
    guess = [
        {"boxes": [[5, 13, 26, 34]], "labels": [0], "scores": [0.97]},
        {"boxes": [[0, 0, 20, 12], [1, 1, 5, 5]], "labels": [1, 1], "scores": [0.61, 0.2]},
    ]
    style = drawing.BoxStyle(class_names=["disc", "square"])
    return drawing.detections(shapes(2), truth, guess, style=style, title="Boxes")


def segmentation() -> Picture:
    truth = discs(2)
    truth[:, :4] = 255
    guess = np.roll(discs(2), 3, axis=2)
    return drawing.segmentations(shapes(2), truth, guess, class_names=["ground", "disc"], title="Masks")


def heat_maps() -> Picture:
    return drawing.heats(shapes(2), discs(2)[:, ::2, ::2], captions=["disc (0.93)", "disc (0.51)"], title="CAM")


def feature_maps() -> Picture:
    y, x = np.mgrid[:12, :12]
    return drawing.features(np.stack([x * y, np.sin(x), np.cos(y)]), [2, 0, 1], title="conv1")


def attention() -> Picture:
    weights = np.full((2, 2, 17, 17), 0.02)
    weights[:, 0, :, 6], weights[:, 1, :, 11] = 0.68, 0.68
    return drawing.attentions(shapes(2), {"block": weights}, weights.mean(1), title="Attention")


def attention_matrix() -> Picture:
    weights = np.tril(np.ones((1, 2, 11, 11)))
    return drawing.attentions(None, {"block": weights / weights.sum(-1, keepdims=True)}, title="Attention")


def learning_curves() -> Picture:
    steps = range(1, 60)
    history = {
        "loss": [(n, 1 / n) for n in steps],
        "val_loss": [(n, 1 / n + 0.1) for n in steps if n % 10 == 0],
        "val_accuracy": [(n, 1 - 1 / n) for n in steps if n % 10 == 0],
    }
    return as_pixels(drawing.curves(history, title="Curves", best={"val_accuracy": (50, 0.98)}))


def nothing() -> Picture:
    return drawing.sheet([], title="Nothing")


def confusion_matrix() -> Picture:
    counts = np.array([[41, 3, 0], [5, 12345, 2], [0, 0, 0]])
    return drawing.confusion(counts, ["cat", "a name that is too long to stand there", "other"], title="Confusion")


KINDS: list[Callable[[], Picture]] = [
    classification,
    confusion_matrix,
    detection,
    segmentation,
    heat_maps,
    feature_maps,
    attention,
    attention_matrix,
    learning_curves,
    nothing,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_picture_matches_its_reference(kind: Callable[[], Picture]) -> None:
    picture, file = kind(), REFERENCES / f"{kind.__name__}.png"
    if os.environ.get("IGNITE_HOOKS_REFERENCES"):
        drawing.save(picture, file, smallest=True)
    reference = np.asarray(Image.open(file).convert("RGB")).astype(int)
    assert picture.shape == reference.shape
    difference = np.abs(picture.astype(int) - reference)
    # Other versions of FreeType place the edges of letters slightly differently.
    assert difference.mean() < 2
    assert (difference.max(axis=2) > 64).mean() < 0.02


def test_the_comparison_detects_changed_colours_and_shifts() -> None:
    reference = np.asarray(Image.open(REFERENCES / "classification.png").convert("RGB")).astype(int)
    for other in (np.roll(reference, 4, axis=1), reference[:, :, ::-1]):
        difference = np.abs(other - reference)
        assert difference.mean() >= 2 or (difference.max(axis=2) > 64).mean() >= 0.02


EMPTY: list[tuple[str, Callable[[], Picture]]] = [
    ("no images", lambda: drawing.classification([])),
    ("nothing known", lambda: drawing.classification(shapes(2))),
    ("truth alone", lambda: drawing.classification(shapes(2), [1, 0])),
    ("prediction alone", lambda: drawing.classification(shapes(2), None, [[0.1, 0.9], [np.nan, 1.0]])),
    ("numbers", lambda: drawing.classification(shapes(2), [0.5, 1.25], [1, 2])),
    ("one-hot", lambda: drawing.classification(shapes(2), [[0, 1], [1, 0]], [0.2, 3.0])),
    ("no boxes", lambda: drawing.detections(shapes(1), [np.zeros((0, 4))], [np.zeros((0, 4))])),
    ("boxes of nothing", lambda: drawing.detections(shapes(2), None, None)),
    ("true boxes alone", lambda: drawing.detections(shapes(1), [np.array([[1, 1, 9, 9]])], None)),
    ("an empty mask", lambda: drawing.segmentations(shapes(1), np.zeros((1, 48, 48)), np.zeros((1, 48, 48)))),
    ("all ignored", lambda: drawing.segmentations(shapes(1), np.full((1, 48, 48), 255), None)),
    ("no classes", lambda: drawing.confusion(np.zeros((0, 0)))),
    ("no samples", lambda: drawing.confusion(np.full((2, 2), np.nan))),
    ("many classes", lambda: drawing.confusion(np.eye(60), [f"class {number}" for number in range(60)])),
    ("no maps", lambda: drawing.heats([], np.zeros((0, 4, 4)))),
    ("a map that is not a number", lambda: drawing.heats(shapes(1), np.full((1, 4, 4), np.nan))),
    ("no channels", lambda: drawing.features(np.zeros((0, 4, 4)), [])),
    ("no attention", lambda: drawing.attentions(shapes(1), {})),
]


@pytest.mark.parametrize("draw", [pytest.param(draw, id=name) for name, draw in EMPTY])
def test_every_empty_case_gives_a_picture(draw: Callable[[], Picture]) -> None:
    picture = draw()
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    assert picture.dtype == np.uint8


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: drawing.classification(shapes(2), [1]), "2 images have answers of the shape"),
        (lambda: drawing.classification(shapes(2), None, [[0.1, 0.9]]), "2 images have 1 predictions"),
        (lambda: drawing.classification(shapes(1), np.zeros((1, 4, 4))), "use another hook for masks"),
        (lambda: drawing.confusion(np.zeros((2, 3))), "a square of classes"),
        (lambda: drawing.segmentations(shapes(1), np.zeros((1, 5, 5))), "mask of 5 x 5 does not fit"),
    ],
)
def test_mismatched_inputs_raise_a_clear_error(draw: Callable[[], Picture], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize(
    ("prediction", "classes", "sure"),
    [
        ([[0.25, 0.75]], [1], [0.75]),
        ([[0.0, np.log(3.0)]], [1], [0.75]),
        ([np.log(3.0)], [1], [0.75]),
        ([[0.25]], [0], [0.75]),
        ([2], [2], None),
        ([[np.inf, 0.0]], [0], [1.0]),
    ],
)
def test_classes_and_probabilities_come_from_logits_and_from_probabilities(
    prediction: Any, classes: list[int], sure: list[float] | None
) -> None:
    said, how_sure = decided(np.array(prediction), 1)
    assert said.tolist() == classes
    assert (None if how_sure is None else how_sure.tolist()) == (None if sure is None else pytest.approx(sure))


def captions_of(draw: Callable[[], Picture], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the captions of a sheet with the colours of their frames."""
    seen: list[Any] = []

    def sheet(tiles: Any, **more: Any) -> Picture:
        seen.extend((list(tile.caption), tile.colour) for tile in tiles)
        return layout.sheet(tiles, **more)

    monkeypatch.setattr(sheets, "sheet", sheet)
    draw()
    return seen


def test_a_prediction_that_is_not_a_number_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [[np.nan, np.nan], [0.0, np.nan], [np.log(9.0), 0.0]]
    assert captions_of(lambda: drawing.classification(shapes(3), [0, 0, 0], scores), monkeypatch) == [
        (["not a number", "true: 0"], WRONG),
        (["not a number", "true: 0"], WRONG),
        (["0 (0.90)", "true: 0"], RIGHT),
    ]
    assert said(np.array(scores), 3, ["cat", "dog"]) == ["not a number", "not a number", "cat (0.90)"]


@pytest.mark.parametrize(
    "scores", [[[2.0, -1, -1], [3, 3, -1], [-1, -1, -1]], [[0.9, 0.2, 0], [0.6, 0.7, 0.1], [0, 0, 0.4]]]
)
def test_all_labels_of_a_sample_are_named(scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.array([[1.0, 0, 0], [1, 0, 1], [0, 0, 0]])
    names = ["a", "b", "c"]
    captions = captions_of(lambda: drawing.classification(shapes(3), truth, scores, class_names=names), monkeypatch)
    assert captions == [(["a", "true: a"], RIGHT), (["a, b", "true: a, c"], WRONG), (["none", "true: none"], RIGHT)]
    alone = captions_of(lambda: drawing.classification(shapes(3), truth, class_names=names), monkeypatch)
    assert alone[1] == (["true: a, c"], None)


@pytest.mark.parametrize("given", [[2.25, -0.5], [[2.25], [-0.5]]])
def test_numbers_are_compared_with_numbers(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    captions = captions_of(lambda: drawing.classification(shapes(2), [2.5, 0.0], given), monkeypatch)
    assert captions == [(["2.25", "true: 2.5"], None), (["-0.5", "true: 0"], None)]


def test_a_picture_without_counted_pixels_claims_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored, guess = np.full((1, 48, 48), 255), np.zeros((1, 48, 48))
    captions = captions_of(lambda: drawing.segmentations(shapes(1), ignored, guess), monkeypatch)
    assert captions == [(["every pixel is ignored"], None)]


@pytest.mark.parametrize(("tokens", "side"), [(16, 4), (17, 4), (50, 7), (18, None), (2, None)])
def test_tokens_that_form_a_square_are_patches(tokens: int, side: int | None) -> None:
    seen = patches_seen(np.zeros((tokens, tokens), np.float32))
    assert (None if seen is None else seen.shape) == (None if side is None else (side, side))
