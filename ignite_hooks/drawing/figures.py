"""Images with truth and prediction to one picture, a function for each kind of picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ignite_hooks.drawing import masks as masking
from ignite_hooks.drawing.boxes import FOUND_LEGEND, Boxes, BoxStyle, detection
from ignite_hooks.drawing.heatmaps import heat, heat_over
from ignite_hooks.drawing.images import Picture, as_array, resized, scale_of
from ignite_hooks.drawing.layout import MARK_WIDTH, Tile, fitted, full_rows, sheet
from ignite_hooks.drawing.samples import are_labels
from ignite_hooks.drawing.theme import PAPER, RIGHT, SMALLEST_SIDE, WRONG, font, name_of, readable

NO_ANSWER = "not a number"
MAX_HEADS = 8
MAX_ATTENTION_IMAGES = 4


def classification(
    images: Sequence[Picture],
    truth: Any = None,
    prediction: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    score_thr: float = 0.0,
    title: str = "",
    note: str = "",
) -> Picture:
    """Draw images with the predicted class, its probability and the true class; blue if they agree, orange if not.

    Args:
        images: The pictures.
        truth: Class of each, or its one-hot row, or a row of zeros and ones for its labels; numbers that are not whole
            are shown as they are.
        prediction: Logits or probabilities N x C, for a single class N or N x 1; or classes as whole numbers.
        class_names: Names of the classes.
        score_thr: A prediction with a lower probability gets a question mark.
        title: Line above the picture.
        note: Fainter line below the title.
    """
    if truth is not None and are_labels(as_array(truth)):
        return _labels(images, as_array(truth) > 0, prediction, class_names, title, note)
    true = None if truth is None else _answers(truth, len(images))
    answers, sure = None, None
    if prediction is not None:
        array = as_array(prediction)
        # A truth that is not whole is a number, not a class; so is its prediction.
        are_numbers = true is not None and true.dtype.kind == "f" and array.size == len(array)
        answers, sure = (_answers(array, len(images)), None) if are_numbers else decided(array, len(images))
    tiles = []
    for index, picture in enumerate(images):
        picture = resized(picture)
        caption, colour = [], None
        if answers is not None:
            text, probability = _named(answers[index], class_names), ""
            is_nan = sure is not None and math.isnan(sure[index])
            if is_nan:
                text = NO_ANSWER
            elif sure is not None:
                probability = f"{'' if sure[index] >= score_thr else '?'} ({sure[index]:.2f})"
            room = max(picture.shape[1], SMALLEST_SIDE) - MARK_WIDTH - font().getlength(probability)
            caption.append(fitted(text, max(room, 0)) + probability)
        if true is not None:
            caption.append(f"true: {_named(true[index], class_names)}")
            if answers is not None and answers.dtype.kind in "iu" and true.dtype.kind in "iu":
                colour = RIGHT if answers[index] == true[index] and not is_nan else WRONG
        tiles.append(Tile(picture, caption, colour))
    seen = {tile.colour for tile in tiles}
    legend = [(name, colour) for name, colour in (("right", RIGHT), ("wrong", WRONG)) if colour in seen]
    return sheet(tiles, title=title, note=note, legend=legend)


def _labels(
    images: Sequence[Picture],
    true: NDArray[np.bool_],
    prediction: Any,
    class_names: Sequence[str] | None,
    title: str,
    note: str,
) -> Picture:
    """Draw images with all their predicted and true labels; blue if all agree."""
    if len(true) < len(images):
        raise ValueError(f"{len(images)} images have labels of the shape {true.shape}: each needs a row")
    found = None if prediction is None else _chosen(as_array(prediction), true.shape[1])

    def words(row: NDArray[np.bool_]) -> str:
        return ", ".join(_named(index, class_names) for index in np.flatnonzero(row)) or "none"

    tiles = []
    for index, picture in enumerate(images):
        picture = resized(picture)
        room = max(picture.shape[1], SMALLEST_SIDE) - MARK_WIDTH
        caption = [] if found is None else [fitted(words(found[index]), room)]
        agree = found is not None and bool((found[index] == true[index]).all())
        colour = None if found is None else RIGHT if agree else WRONG
        tiles.append(Tile(picture, [*caption, fitted(f"true: {words(true[index])}", room)], colour))
    seen = {tile.colour for tile in tiles}
    legend = [(name, colour) for name, colour in (("right", RIGHT), ("wrong", WRONG)) if colour in seen]
    return sheet(tiles, title=title, note=note, legend=legend)


def _chosen(scores: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return which labels are predicted: logits above 0, or probabilities above a half."""
    if scores.ndim != 2 or scores.shape[1] != count:
        raise ValueError(f"{count} labels have predictions of the shape {scores.shape}: each needs a score")
    threshold = 0.5 if _are_probabilities(scores.astype(np.float64)) else 0.0
    return np.asarray(scores > threshold)


def decided(prediction: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Return the class of each image with its probability; numbers that are not scores are returned as they are.

    The probability is NaN if a score is NaN.

    Example:
        >>> decided(np.array([[0.2, 0.8], [0.9, 0.1]]), 2)
        (array([1, 0]), array([0.8, 0.9]))
    """
    scores = probabilities_of(prediction)
    if len(prediction) < count:
        raise ValueError(f"{count} images have {len(prediction)} predictions")
    if scores is None:
        return _answers(prediction, count), None
    has_nan = np.isnan(prediction.reshape(len(prediction), -1)).any(1)
    return scores.argmax(1), np.where(has_nan, np.nan, scores.max(1))


def probabilities_of(prediction: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return probabilities N x C for logits or probabilities; None for classes or other numbers.

    Example:
        >>> probabilities_of(np.array([[0.0, 0.0]])).tolist(), probabilities_of(np.array([0.0])).tolist()
        ([[0.5, 0.5]], [[0.5, 0.5]])
    """
    array = prediction.astype(np.float64)
    if prediction.dtype.kind != "f" or array.ndim not in (1, 2):
        return None
    array = np.nan_to_num(array, nan=0.0, posinf=1e30, neginf=-1e30)
    if array.ndim == 1 or array.shape[1] == 1:
        one = array.reshape(-1)
        of_one = (
            one if _are_probabilities(one) and np.any((one > 0) & (one < 1)) else 1 / (1 + np.exp(-one.clip(-60, 60)))
        )
        return np.stack([1 - of_one, of_one], 1)
    if _are_probabilities(array) and np.allclose(array.sum(1), 1, atol=1e-2):
        return array
    powers = np.exp(array - array.max(1, keepdims=True))
    found: NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
    return found


def _are_probabilities(array: NDArray[np.float64]) -> bool:
    return bool(array.size) and bool((array >= -1e-4).all() and (array <= 1 + 1e-4).all())


def _answers(values: Any, count: int) -> NDArray[Any]:
    """Return one answer for each image: a class or a number."""
    array = as_array(values)
    if array.ndim == 0 or len(array) < count:
        raise ValueError(f"{count} images have answers of the shape {array.shape}: each needs one")
    if array.ndim == 2 and array.shape[1] > 1:
        return np.asarray(array.argmax(1))
    array = array.reshape(len(array), -1)
    if array.shape[1] != 1:
        raise ValueError(f"an answer is a class or a row of classes, not {array.shape[1:]}: use another hook for masks")
    array = array[:, 0]
    whole = array.dtype.kind != "f" or (np.isfinite(array).all() and np.array_equal(array, np.round(array)))
    return array.astype(np.int64) if whole else array


def _named(answer: Any, class_names: Sequence[str] | None) -> str:
    if isinstance(answer, (float, np.floating)):
        return f"{answer:.4g}"
    return readable(name_of(int(answer), class_names), f"class {int(answer)}")


def said(prediction: Any, count: int, class_names: Sequence[str] | None = None) -> list[str]:
    """Return the predicted class of each image with its probability, as text.

    Example:
        >>> said(np.array([[0.25, 0.75]]), 1, ["cat", "dog"])
        ['dog (0.75)']
    """
    answers, sure = decided(as_array(prediction), count)
    names = [_named(answer, class_names) for answer in answers[:count]]
    if sure is None:
        return names
    return [
        NO_ANSWER if math.isnan(share) else f"{name} ({share:.2f})" for name, share in zip(names, sure, strict=False)
    ]


def detections(
    images: Sequence[Picture],
    truth: Sequence[Any] | None = None,
    prediction: Sequence[Any] | None = None,
    *,
    score_thr: float = 0.3,
    at_iou: float = 0.5,
    style: BoxStyle | None = None,
    title: str = "",
    note: str = "",
) -> Picture:
    """Draw images with their boxes: truth on the left, prediction on the right.

    Args:
        images: The pictures; boxes are in their pixels.
        truth: Boxes of each image, in any form that ``Boxes.read`` knows; None to omit them.
        prediction: Predicted boxes of each image; None to omit them.
        score_thr: Predictions with a lower score are not drawn.
        at_iou: Minimum intersection over union of a box that counts as found.
        style: Names, colours, thickness.
        title: Line above the picture.
        note: Fainter line below the title.
    """
    style = style or BoxStyle()
    tiles = []
    for index, picture in enumerate(images):
        true = None if truth is None else Boxes.read(truth[index], truth=True)
        found = None if prediction is None else Boxes.read(prediction[index]).above(score_thr)
        sides, words = detection(picture, true, found, style=style, at_iou=at_iou)
        tiles.append(Tile(beside(sides), [words] if words else []))
    both = truth is not None and prediction is not None
    told_apart = both and style.palette is None and style.box_colour is None
    columns = full_rows(len(tiles), round(math.sqrt(len(tiles) / 2))) if both else None
    note = note or (f"left: truth, right: prediction from a score of {score_thr:g}" if both else "")
    return sheet(tiles, title=title, note=note, columns=columns, legend=FOUND_LEGEND if told_apart else ())


def segmentations(
    images: Sequence[Picture],
    truth: Sequence[Any] | None = None,
    prediction: Sequence[Any] | None = None,
    *,
    class_names: Sequence[str] | None = None,
    palette: Sequence[Any] | None = None,
    opacity: float = 0.5,
    show_edge: bool = True,
    ignore_index: int | None = 255,
    title: str = "",
    note: str = "",
) -> Picture:
    """Draw images with their masks: image, truth, prediction, and their difference.

    Args:
        images: The pictures.
        truth: Mask of each image, in any form that ``as_mask`` knows; None to omit it.
        prediction: Predicted mask of each image; None to omit it.
        class_names: Names of the classes.
        palette: Colours of the classes.
        opacity: Opacity of the colours over the image.
        show_edge: Whether to draw the edges of regions.
        ignore_index: Class that is ignored.
        title: Line above the picture.
        note: Fainter line below the title.
    """
    tiles, seen = [], []
    for index, picture in enumerate(images):
        row, pair = [picture], []
        for given in (truth, prediction):
            if given is not None:
                mask = masking.as_mask(given[index], ignore_index=ignore_index)
                pair.append(mask)
                row.append(
                    masking.overlay(
                        picture, mask, palette=palette, opacity=opacity, show_edge=show_edge, ignore_index=ignore_index
                    )
                )
        seen += pair
        caption = []
        if len(pair) == 2:
            row.append(masking.difference(pair[0], pair[1], ignore_index))
            caption = [f"{masking.agreement(pair[0], pair[1], ignore_index):.1%} of the pixels are right"]
            if (pair[0] == ignore_index).all():
                caption = ["every pixel is ignored"]
        scale = scale_of(picture, largest=320)
        tiles.append(Tile(beside([resized(part, scale) for part in row]), caption))
    shown = ["image"] + ["truth"] * (truth is not None) + ["prediction"] * (prediction is not None)
    both = truth is not None and prediction is not None
    note = note or f"{', '.join([*shown, *(['difference'] if both else [])])}, from left to right"
    legend = masking.legend_of(seen, class_names, palette, ignore_index)
    legend += [("different", WRONG)] if both else []
    columns = 1 if len(tiles) <= 4 else 2
    return sheet(tiles, title=title, note=note, columns=columns, legend=legend)


def heats(
    images: Sequence[Picture],
    maps: Any,
    *,
    captions: Sequence[str] = (),
    title: str = "",
    note: str = "",
) -> Picture:
    """Draw images, each beside a grey copy under its heat map.

    Args:
        images: The pictures.
        maps: N x H x W.
        captions: Line for each image.
        title: Line above the picture.
        note: Fainter line below the title.
    """
    tiles = []
    for index, (picture, values) in enumerate(zip(images, as_array(maps), strict=True)):
        picture = resized(picture)
        over = heat_over(picture, fitted_map(values, picture))
        tiles.append(Tile(beside([picture, over]), [captions[index]] if captions else []))
    columns = full_rows(len(tiles), round(math.sqrt(len(tiles) / 2)))
    return sheet(tiles, title=title, note=note, columns=columns)


def features(maps: Any, channels: Sequence[int], *, title: str = "", note: str = "") -> Picture:
    """Draw channels of one layer, K x H x W, each in its own range, with its index in the layer."""
    planes = zip(as_array(maps), channels, strict=True)
    tiles = [Tile(resized(heat(plane)), [f"channel {channel}"]) for plane, channel in planes]
    return sheet(tiles, title=title, note=note)


def attentions(
    images: Sequence[Picture] | None, maps: Mapping[str, Any], through: Any = None, *, title: str = "", note: str = ""
) -> Picture:
    """Draw the roll-out through all layers, and the attention of each head of the last layer.

    If the tokens are patches of a square grid, maps lie over the images: the attention of a class token in front, else
    the mean over all tokens. Other tokens give matrices: queries downwards, keys to the right.

    Args:
        images: The pictures; None for matrices.
        maps: N x heads x queries x keys by the name of the layer.
        through: Roll-out, N x queries x keys; None to omit it.
        title: Line above the picture.
        note: Fainter line below the title.
    """
    if not maps:
        return sheet([], title=title, note="the model has no attention that could be seen")
    name, last = list(maps.items())[-1]
    weights = as_array(last).astype(np.float32)
    heads = min(weights.shape[1], MAX_HEADS)
    rolled = None if through is None else as_array(through).astype(np.float32)
    shown = min(len(weights), MAX_ATTENTION_IMAGES, len(images) if images is not None else 1)
    tiles = []
    for index in range(shown):
        parts = [] if rolled is None else [("roll-out", rolled[index])]
        parts += [(f"head {head + 1}", weights[index, head]) for head in range(heads)]
        picture = _small(images[index]) if images is not None else None
        planes = [(caption, patches_seen(part)) for caption, part in parts]
        if picture is not None and all(plane is not None for _, plane in planes):
            tiles.append(Tile(picture, ["image"]))
            for caption, plane in planes:
                tiles.append(Tile(heat_over(picture, fitted_map(plane, picture)), [caption]))
        else:
            tiles += [Tile(_small(heat(part, 0.0)), [caption]) for caption, part in parts]
    per_image = len(tiles) // max(1, shown)
    note = note or f"{name}, {heads} of {weights.shape[1]} heads"
    return sheet(tiles, title=title, note=note, columns=min(per_image, 10) or None)


def patches_seen(weights: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return the attention on each patch of a square grid, or None if the tokens are not such patches."""
    keys = weights.shape[1]
    for extra in (1, 0):
        side = math.isqrt(keys - extra)
        if side > 1 and side * side == keys - extra:
            row = weights[0, extra:] if extra else weights.mean(0)
            return np.asarray(row.reshape(side, side))
    return None


def fitted_map(values: Any, picture: Picture) -> NDArray[np.float32]:
    """Return a map enlarged smoothly to the size of a picture."""
    from PIL import Image

    array = np.asarray(values, np.float32)
    if array.shape == picture.shape[:2]:
        return array
    size = picture.shape[1], picture.shape[0]
    return np.asarray(Image.fromarray(array).resize(size, Image.Resampling.BILINEAR), np.float32)


def beside(pictures: Sequence[Picture], gap: int = 4) -> Picture:
    """Return pictures of one height in a row."""
    if len(pictures) == 1:
        return pictures[0]
    height = max(picture.shape[0] for picture in pictures)
    width = sum(picture.shape[1] for picture in pictures) + gap * (len(pictures) - 1)
    row = np.full((height, width, 3), PAPER, np.uint8)
    x = 0
    for picture in pictures:
        row[: picture.shape[0], x : x + picture.shape[1]] = picture
        x += picture.shape[1] + gap
    return row


def _small(picture: Picture) -> Picture:
    return resized(picture, scale_of(picture, 96, 160))
