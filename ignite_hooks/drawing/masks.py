"""Segmentation: index masks from the outputs of models, overlays, edges, differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ignite_hooks.drawing.images import Picture, as_array
from ignite_hooks.drawing.theme import WRONG, Colour, colour_of, name_of, readable

Mask = NDArray[np.int64]
IGNORED: Colour = (128, 128, 128)
AGREES: Colour = (235, 235, 235)


def as_mask(values: Any, *, ignore_index: int | None = None) -> Mask:
    """Return the class of each pixel, height x width, of an index mask, one-hot planes, or logits.

    Args:
        values: H x W or 1 x H x W of whole numbers or booleans; C x H x W of numbers, of which the largest counts;
            or 1 x H x W of logits or probabilities of a single class.
        ignore_index: Class of a pixel for which all one-hot planes are 0.

    Example:
        >>> as_mask(np.array([[[2.0, -1.0]], [[1.0, 3.0]]])).tolist(), as_mask(np.array([[[-1.5, 0.5]]])).tolist()
        ([[0, 1]], [[0, 1]])
    """
    array = as_array(values)
    if array.dtype.kind not in "buif" or array.ndim not in (2, 3) or 0 in array.shape:
        raise ValueError(
            f"a mask must have the shape H x W, 1 x H x W or C x H x W, not {array.shape} of {array.dtype}"
        )
    if array.ndim == 3 and array.shape[0] > 1:
        planes = np.nan_to_num(array.astype(np.float32), nan=-np.inf) if array.dtype.kind == "f" else array
        found = planes.argmax(axis=0)
        if ignore_index is not None and array.dtype.kind in "bui":
            found = np.where(array.any(axis=0), found, ignore_index)
        return np.asarray(found, np.int64)
    array = array[0] if array.ndim == 3 else array
    if array.dtype.kind == "f" and not np.array_equal(array, np.round(array)):
        probability = bool((array >= 0).all() and (array <= 1).all())
        return np.asarray(array > (0.5 if probability else 0.0), np.int64)
    return np.asarray(np.nan_to_num(array), np.int64)


def coloured(mask: Mask, palette: Sequence[Any] | None = None, ignore_index: int | None = None) -> Picture:
    """Return each pixel in the colour of its class; class 0 has the first colour of the palette."""
    table = {int(label): colour_of(int(label), palette) for label in np.unique(mask)}
    if ignore_index is not None:
        table[ignore_index] = IGNORED
    labels = np.array(sorted(table))
    colours = np.array([table[label] for label in labels], np.uint8)
    found: Picture = colours[np.searchsorted(labels, mask)]
    return found


def overlay(
    picture: Picture,
    mask: Mask,
    *,
    palette: Sequence[Any] | None = None,
    opacity: float = 0.5,
    show_edge: bool = True,
    ignore_index: int | None = None,
    background: int | None = None,
) -> Picture:
    """Draw the colours of a mask over a picture.

    Args:
        picture: Height x width x 3.
        mask: Class of each pixel, of the same size.
        palette: Colours of the classes.
        opacity: Opacity of the colours over the picture, from 0 to 1.
        show_edge: Whether to draw lines along the edges of regions.
        ignore_index: Class that is shown in grey.
        background: Class that is not coloured.
    """
    if mask.shape != picture.shape[:2]:
        raise ValueError(f"a mask of {_by(mask)} does not fit an image of {_by(picture)}: both need the same size")
    colours = coloured(mask, palette, ignore_index)
    mixed = picture.astype(np.float32) * (1 - opacity) + colours.astype(np.float32) * opacity
    found = (mixed + 0.5).astype(np.uint8)
    if background is not None:
        found[mask == background] = picture[mask == background]
    if show_edge:
        line = edges(mask)
        if background is not None:
            line &= mask != background
        found[line] = colours[line]
    return found


def edges(mask: Mask) -> NDArray[np.bool_]:
    """Return the pixels of regions that lie beside another region.

    Example:
        >>> edges(np.array([[0, 0, 1, 1]])).tolist()
        [[False, True, True, False]]
    """
    found = np.zeros(mask.shape, bool)
    across, down = mask[:, 1:] != mask[:, :-1], mask[1:] != mask[:-1]
    found[:, 1:] |= across
    found[:, :-1] |= across
    found[1:] |= down
    found[:-1] |= down
    return found


def difference(truth: Mask, prediction: Mask, ignore_index: int | None = None) -> Picture:
    """Draw the pixels whose prediction is not the truth in orange, and ignored pixels in grey."""
    if truth.shape != prediction.shape:
        raise ValueError(f"a truth of {_by(truth)} cannot be compared with a prediction of {_by(prediction)}")
    found = np.empty((*truth.shape, 3), np.uint8)
    found[...] = AGREES
    found[truth != prediction] = WRONG
    if ignore_index is not None:
        found[truth == ignore_index] = IGNORED
    return found


def agreement(truth: Mask, prediction: Mask, ignore_index: int | None = None) -> float:
    """Return the share of correct pixels among those that are not ignored; 1.0 if all are ignored."""
    counted = truth != ignore_index if ignore_index is not None else np.ones(truth.shape, bool)
    return float((truth == prediction)[counted].mean()) if counted.any() else 1.0


def legend_of(
    masks: Sequence[Mask],
    class_names: Sequence[str] | None = None,
    palette: Sequence[Any] | None = None,
    ignore_index: int | None = None,
) -> list[tuple[str, Colour]]:
    """Return the classes that occur, with their colours."""
    labels = sorted({int(label) for mask in masks for label in np.unique(mask)})
    found = [
        (readable(name_of(label, class_names), str(label)), colour_of(label, palette))
        for label in labels
        if label != ignore_index
    ]
    return found + ([("ignored", IGNORED)] if ignore_index in labels else [])


def _by(array: NDArray[Any]) -> str:
    return f"{array.shape[0]} x {array.shape[1]}"
