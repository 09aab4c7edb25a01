"""Boxes: read them in the usual forms, match predictions to the truth, draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ignite_hooks.drawing.images import Picture, as_array, resized, scale_of
from ignite_hooks.drawing.layout import fitted
from ignite_hooks.drawing.theme import (
    MISSED,
    RIGHT,
    TEXT_SIZE,
    WRONG,
    Colour,
    as_colour,
    colour_of,
    font,
    ink_on,
    name_of,
    readable,
)
from ignite_hooks.text import shown

BOX_NAMES = ("boxes", "bboxes")
INSIDE = ("pred_instances", "gt_instances")
LABEL_SIZE = TEXT_SIZE - 2


@dataclass(frozen=True)
class Boxes:
    """The boxes of one image as corners (left, top, right, bottom), with their classes and scores.

    Example:
        >>> Boxes.read({"boxes": [[0, 0, 10, 10]], "labels": [2], "scores": [0.9]}).above(0.95)
        Boxes(0)
    """

    corners: NDArray[np.float64]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.corners)

    def __repr__(self) -> str:
        return f"Boxes({len(self)})"

    @classmethod
    def read(cls, given: Any, *, truth: bool = False) -> Boxes:
        """Read boxes in one of the usual forms.

        These are that of torchvision (``boxes, labels, scores``), that of MMDetection (``bboxes``, also as attributes
        and in ``pred_instances``), and an array of 4, 5 (with score) or 6 (with score and class) columns. If there
        are both ``pred_instances`` and ``gt_instances``, the former are read, or with ``truth`` the latter.
        """
        if isinstance(given, cls):
            return given
        for name in reversed(INSIDE) if truth else INSIDE:
            inner = _part(given, name)
            if inner is not None:
                return cls.read(inner)
        corners = next((part for name in BOX_NAMES if (part := _part(given, name)) is not None), None)
        if corners is None:
            if isinstance(given, Mapping) or not (hasattr(given, "shape") or isinstance(given, (list, tuple))):
                has = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
                raise ValueError(f"no boxes in {shown(has)}: 'boxes' or 'bboxes' is needed, or an array of N x 4")
            table = as_array(given).astype(np.float64)
            table = table.reshape(0, 4) if table.size == 0 else table
            if table.ndim != 2 or table.shape[1] not in (4, 5, 6):
                raise ValueError(f"boxes are an array of N x 4, 5 or 6 (score, class), not {table.shape}")
            labels = table[:, 5] if table.shape[1] == 6 else np.zeros(len(table))
            return cls._checked(table[:, :4], labels, table[:, 4] if table.shape[1] > 4 else None)
        corners = getattr(corners, "tensor", corners)
        corners = as_array(corners).astype(np.float64)
        labels, scores = _part(given, "labels"), _part(given, "scores")
        if scores is None and corners.ndim == 2 and corners.shape[1] == 5:
            corners, scores = corners[:, :4], corners[:, 4]
        return cls._checked(corners, labels, scores)

    @classmethod
    def _checked(cls, corners: NDArray[Any], labels: Any, scores: Any) -> Boxes:
        corners = corners.reshape(0, 4) if corners.size == 0 else corners
        if corners.ndim != 2 or corners.shape[1] != 4:
            raise ValueError(f"boxes have 4 corners each, as N x 4, not {corners.shape}")
        count = len(corners)
        read_labels = np.zeros(count, np.int64) if labels is None else as_array(labels).astype(np.int64).reshape(-1)
        read_scores = None if scores is None else as_array(scores).astype(np.float64).reshape(-1)
        for name, found in (("labels", read_labels), ("scores", read_scores)):
            if found is not None and len(found) != count:
                raise ValueError(f"{count} boxes have {len(found)} {name}: each needs one")
        # A box with a corner that is not finite cannot be drawn and matches nothing.
        good = np.isfinite(corners).all(axis=1)
        return cls(corners[good], read_labels[good], None if read_scores is None else read_scores[good])

    def above(self, score: float) -> Boxes:
        """Return the boxes of at least this score; all of them if they have no scores."""
        if self.scores is None:
            return self
        kept = self.scores >= score
        return Boxes(self.corners[kept], self.labels[kept], self.scores[kept])


def _part(thing: Any, name: str) -> Any:
    if isinstance(thing, Mapping):
        return thing.get(name)
    # The attributes of a tensor are never its boxes.
    return None if hasattr(thing, "dtype") else getattr(thing, name, None)


def iou(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the intersection over union of every box with every other: N x 4 and M x 4 give N x M.

    Example:
        >>> iou(np.array([[0.0, 0, 2, 2]]), np.array([[0.0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6]])).round(2).tolist()
        [[1.0, 0.33, 0.0]]
    """
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    areas = [np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1) for boxes in (one, other)]
    union = areas[0][:, None] + areas[1][None, :] - common
    found: NDArray[np.float64] = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return found


@dataclass(frozen=True)
class Matches:
    """The pairs of boxes: ``truth[i]`` is the prediction that found the i-th true box, or -1, and vice versa."""

    truth: NDArray[np.int64]
    prediction: NDArray[np.int64]


def match(truth: Boxes, prediction: Boxes, at_iou: float = 0.5) -> Matches:
    """Match each prediction, best score first, to the unmatched true box of its class that it overlaps most.

    Example:
        >>> truth = Boxes.read({"boxes": [[0, 0, 10, 10], [20, 0, 30, 10]], "labels": [1, 1]})
        >>> guess = Boxes.read({"boxes": [[0, 0, 10, 9], [0, 0, 10, 10]], "labels": [1, 1], "scores": [0.5, 0.9]})
        >>> matches = match(truth, guess)
        >>> matches.truth.tolist(), matches.prediction.tolist()
        ([1, -1], [-1, 0])
    """
    found = Matches(np.full(len(truth), -1, np.int64), np.full(len(prediction), -1, np.int64))
    overlap = iou(prediction.corners, truth.corners)
    overlap[prediction.labels[:, None] != truth.labels[None, :]] = 0
    scores = np.zeros(len(prediction)) if prediction.scores is None else np.nan_to_num(prediction.scores)
    for guess in np.argsort(-scores, kind="stable"):
        free = np.where(found.truth < 0, overlap[guess], 0)
        best = int(free.argmax()) if len(free) else -1
        if best >= 0 and free[best] >= at_iou and free[best] > 0:
            found.truth[best], found.prediction[guess] = guess, best
    return found


@dataclass(frozen=True)
class BoxStyle:
    """The style of boxes.

    Args:
        class_names: Names of the classes.
        palette: Colours of the classes; None to colour boxes by whether they match.
        box_colour: One colour for all boxes.
        text_colour: Colour of the labels; None for the one that is easiest to read.
        thickness: Thickness of the lines, in pixels.
    """

    class_names: Sequence[str] | None = None
    palette: Sequence[Any] | None = None
    box_colour: Any = None
    text_colour: Any = None
    thickness: int = 2

    def colour(self, label: int, otherwise: Colour) -> Colour:
        """Return the colour of a box of a class."""
        if self.box_colour is not None:
            return as_colour(self.box_colour)
        return otherwise if self.palette is None else colour_of(label, self.palette)


def draw_boxes(
    picture: Picture,
    boxes: Boxes,
    *,
    style: BoxStyle | None = None,
    colours: Sequence[Colour] | None = None,
    dashed: Sequence[bool] | None = None,
) -> Picture:
    """Draw boxes on a copy of a picture, each with its class and score in a label within the picture.

    Args:
        picture: Height x width x 3.
        boxes: Boxes in pixels of the picture.
        style: Names, colours, thickness.
        colours: Colour of each box; by default that of its class.
        dashed: Whether each box has dashed lines.
    """
    from PIL import Image, ImageDraw

    style = style or BoxStyle()
    height, width = picture.shape[:2]
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    labels: list[tuple[tuple[float, float, float, float], str, Colour]] = []
    for index, (corners, label) in enumerate(zip(boxes.corners, boxes.labels, strict=True)):
        colour = colours[index] if colours is not None else style.colour(int(label), colour_of(int(label)))
        left, right = sorted(np.clip(corners[[0, 2]], 0, width - 1).tolist())
        top, bottom = sorted(np.clip(corners[[1, 3]], 0, height - 1).tolist())
        _rectangle(draw, (left, top, right, bottom), colour, style.thickness, dashed is not None and dashed[index])
        room = max(right - left, width / 2, min(width, 100))
        labels.append(((left, top, right, bottom), label_of(boxes, index, style, room), colour))
    taken: list[Area] = []
    for box, text, colour in labels:
        face = font(text, LABEL_SIZE)
        place = label_place(box, (int(face.getlength(text)) + 6, LABEL_SIZE + 4), (width, height), taken)
        taken.append(place)
        draw.rectangle((place[0], place[1], place[2] - 1, place[3] - 1), colour)
        ink = ink_on(colour) if style.text_colour is None else as_colour(style.text_colour)
        draw.text((place[0] + 3, place[1] + 1), text, ink, face)
    return np.asarray(image)


Area = tuple[int, int, int, int]


def label_place(
    box: tuple[float, float, float, float], size: tuple[int, int], inside: tuple[int, int], taken: Sequence[Area]
) -> Area:
    """Return the place of a label: above its box, in it or below it, in the picture, clear of other labels if possible.

    Example:
        >>> label_place((10, 40, 60, 80), (30, 15), (100, 100), [])
        (10, 25, 40, 40)
        >>> label_place((90, 5, 99, 80), (30, 15), (100, 100), [])
        (70, 5, 100, 20)
    """
    (left, top, right, bottom), (wide, high) = box, size
    below, beside = round(bottom) + 1, round(right) + 1 - wide
    wanted = [(round(left), round(top) - high), (round(left), round(top)), (beside, round(top) - high)]
    wanted += [(round(left), below), (beside, round(top)), (round(left), below - high), (beside, below - high)]
    places: list[Area] = []
    for x, y in wanted:
        x = max(0, min(x, inside[0] - wide))
        if 0 <= y <= inside[1] - high:
            places.append((x, y, x + wide, y + high))
    y = max(0, min(round(top), inside[1] - high))
    x = max(0, min(round(left), inside[0] - wide))
    places.append((x, y, x + wide, y + high))
    free = (place for place in places if not label_overlap(place, taken))
    return next(free, None) or min(places, key=lambda place: label_overlap(place, taken))


def label_overlap(place: Area, taken: Sequence[Area]) -> int:
    """Return the number of pixels of other labels that a label hides."""
    return sum(
        (min(place[2], other[2]) - max(place[0], other[0])) * (min(place[3], other[3]) - max(place[1], other[1]))
        for other in taken
        if place[0] < other[2] and other[0] < place[2] and place[1] < other[3] and other[1] < place[3]
    )


def label_of(boxes: Boxes, index: int, style: BoxStyle, room: float) -> str:
    """Return the name and the score of a box; shorten a name that is too wide, so that the score stays legible."""
    label = int(boxes.labels[index])
    name = readable(name_of(label, style.class_names), str(label))
    score = "" if boxes.scores is None else f" {boxes.scores[index]:.2f}"
    face = font(name + score, LABEL_SIZE)
    if face.getlength(name + score) <= room - 6:
        return name + score
    name = fitted(name, room - 6 - face.getlength(score), LABEL_SIZE)
    return fitted((name + score).strip(), room - 6, LABEL_SIZE)


def _rectangle(
    draw: Any, place: tuple[float, float, float, float], colour: Colour, thickness: int, dashed: bool
) -> None:
    left, top, right, bottom = (round(side) for side in place)
    if not dashed:
        draw.rectangle((left, top, right, bottom), outline=colour, width=thickness)
        return
    dash = 4 + 2 * thickness
    for x in range(left, right + 1, 2 * dash):
        end = min(x + dash, right)
        draw.rectangle((x, top, end, top + thickness - 1), colour)
        draw.rectangle((x, bottom - thickness + 1, end, bottom), colour)
    for y in range(top, bottom + 1, 2 * dash):
        end = min(y + dash, bottom)
        draw.rectangle((left, y, left + thickness - 1, end), colour)
        draw.rectangle((right - thickness + 1, y, right, end), colour)


FOUND_LEGEND: tuple[tuple[str, Colour], ...] = (("matched", RIGHT), ("false", WRONG), ("missed", MISSED))


def detection(
    picture: Picture,
    truth: Boxes | None,
    prediction: Boxes | None,
    *,
    style: BoxStyle | None = None,
    at_iou: float = 0.5,
) -> tuple[list[Picture], str]:
    """Draw the truth and the prediction on two pictures, and return them with a sentence that compares the two.

    Matched boxes are blue, false ones orange, and missed ones yellow and dashed, unless the style has colours.
    """
    style = style or BoxStyle()
    scale = scale_of(picture, smallest=200)
    picture = resized(picture, scale)
    truth = None if truth is None else Boxes(truth.corners * scale, truth.labels, truth.scores)
    prediction = None if prediction is None else Boxes(prediction.corners * scale, prediction.labels, prediction.scores)
    if truth is None or prediction is None:
        only = truth if prediction is None else prediction
        return [draw_boxes(picture, only, style=style) if only is not None else picture], ""
    found = match(truth, prediction, at_iou)
    sides = []
    for boxes, matched, otherwise in ((truth, found.truth, MISSED), (prediction, found.prediction, WRONG)):
        colours = [
            style.colour(int(label), RIGHT if other >= 0 else otherwise)
            for label, other in zip(boxes.labels, matched, strict=True)
        ]
        dashed = [bool(other < 0) and boxes is truth for other in matched]
        sides.append(draw_boxes(picture, boxes, style=style, colours=colours, dashed=dashed))
    hits, false = int((found.prediction >= 0).sum()), int((found.prediction < 0).sum())
    return sides, f"{hits} matched, {int((found.truth < 0).sum())} missed, {false} false"
