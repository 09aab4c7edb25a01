"""Numbers to colours: heat maps, alone or over a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ignite_hooks.drawing.images import Picture, as_array
from ignite_hooks.drawing.theme import NOT_A_NUMBER

_DARK_TO_LIGHT = (
    (68, 1, 84), (70, 50, 126), (54, 92, 141), (39, 127, 142), (31, 161, 135), (74, 193, 109), (160, 218, 57),
    (253, 231, 37),
)  # fmt: skip
"""The colours of viridis at equal distances, which get evenly lighter for any kind of colour vision."""


def _table() -> Picture:
    at = np.linspace(0, len(_DARK_TO_LIGHT) - 1, 256)
    channels = np.array(_DARK_TO_LIGHT, np.float64).T
    return np.stack([np.interp(at, np.arange(len(_DARK_TO_LIGHT)), values) for values in channels], 1).astype(np.uint8)


_COLOURS = _table()


def heat(values: Any, low: float | None = None, high: float | None = None) -> Picture:
    """Draw a map of numbers, height x width, in colours from dark to light; values that are not finite are magenta.

    Args:
        values: The map.
        low: Darkest value; the smallest one by default.
        high: Lightest value; the largest one by default.

    Example:
        >>> heat([[0.0, 1.0]]).tolist()
        [[[68, 1, 84], [253, 231, 37]]]
    """
    scaled, bad = _scaled(values, low, high)
    picture: Picture = _COLOURS[(scaled * 255 + 0.5).astype(np.uint8)]
    picture[bad] = NOT_A_NUMBER
    return picture


def heat_over(picture: Picture, values: Any, *, opacity: float = 0.6) -> Picture:
    """Draw a map over a grey copy of a picture of the same size: the higher the value, the more colour.

    Example:
        >>> heat_over(np.full((1, 2, 3), 100, np.uint8), [[0.0, 1.0]], opacity=1.0).tolist()
        [[[100, 100, 100], [253, 231, 37]]]
    """
    scaled, bad = _scaled(values, None, None)
    if scaled.shape != picture.shape[:2]:
        raise ValueError(f"a map of {scaled.shape} does not fit a picture of {picture.shape[:2]}")
    grey = picture.astype(np.float32).mean(axis=2, keepdims=True)
    # The square root makes middle values visible and leaves zero transparent.
    share = opacity * np.sqrt(scaled)[:, :, None]
    mixed = grey * (1 - share) + _COLOURS[(scaled * 255 + 0.5).astype(np.uint8)] * share
    found: Picture = (mixed + 0.5).astype(np.uint8)
    found[bad] = NOT_A_NUMBER
    return found


def _scaled(values: Any, low: float | None, high: float | None) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    array = as_array(values).astype(np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"a map has the shape H x W, not {array.shape}")
    bad = ~np.isfinite(array)
    finite = array[~bad]
    low = float(finite.min()) if low is None and finite.size else low or 0.0
    high = float(finite.max()) if high is None and finite.size else high or 0.0
    if high <= low:
        # A constant map is cold everywhere.
        return np.zeros_like(array), bad
    return np.clip((np.where(bad, low, array) - low) / (high - low), 0, 1).astype(np.float32), bad
