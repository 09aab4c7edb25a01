"""The inputs of a model to pictures: height x width x 3, uint8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ignite_hooks.drawing.theme import LARGEST_SIDE, NOT_A_NUMBER, SMALLEST_SIDE
from ignite_hooks.text import shown

Picture = NDArray[np.uint8]
Layout = Literal["auto", "NCHW", "NHWC"]
Numbers = float | Sequence[float]
USUAL_CHANNELS = (3, 1, 4)


def as_images(
    batch: Any,
    *,
    mean: Numbers | None = None,
    std: Numbers | None = None,
    layout: Layout = "auto",
    limit: int | None = None,
) -> list[Picture]:
    """Return the images of a batch as pictures, all with the same range of values.

    Args:
        batch: Tensor or array of images, or a list of images of different sizes; any number of channels.
            One channel is grey, of four the first three are shown, of two or many the mean.
        mean: Mean that was subtracted, by channel, of values up to 1 or 255; without it, values outside of 0 to 1
            are scaled to fit.
        std: Standard deviation the images were divided by.
        layout: Place of the channels; auto takes two equal neighbouring dimensions for the image, else looks for a
            dimension of 3, 1 or 4, else takes the smaller one.
        limit: Maximum number of images.

    Pixels that are not finite are magenta.

    Example:
        >>> as_images(np.array([[[0.0, 0.5], [1.0, float("nan")]]]))[0][:, :, 1].tolist()
        [[0, 128], [255, 0]]
    """
    arrays = _arrays(batch, limit)
    images = [_channels_last(array, layout) for array in arrays]
    if mean is not None or std is not None:
        images = [_denormalised(image, mean, std) for image in images]
    low, high = _range_of(images)
    return [_picture(image, low, high) for image in images]


def as_array(values: Any) -> NDArray[Any]:
    """Return a tensor on any device, or anything numpy accepts, as an array of a type that numpy calculates with."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) in ("torch.bfloat16", "torch.float16") or values.dtype.itemsize == 1:
            values = values.float() if values.dtype.is_floating_point else values
        values = values.resolve_conj().resolve_neg().numpy() if not values.is_sparse else values.to_dense().numpy()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _arrays(batch: Any, limit: int | None) -> list[NDArray[Any]]:
    whole = hasattr(batch, "shape") and hasattr(batch, "dtype")
    if whole and len(batch.shape) not in (3, 4):
        raise ValueError(
            f"images must have the shape N x C x H x W, N x H x W x C, or N x H x W if grey, not {tuple(batch.shape)}"
        )
    if not whole and not isinstance(batch, (list, tuple)):
        raise ValueError(f"a batch of images must be a tensor, an array or a list of these, not {shown(batch)}")
    return [as_array(image) for image in batch[:limit]]


def _channels_last(image: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Return one image as height x width x channels."""
    if image.dtype.kind not in "buif":
        raise ValueError(f"images must hold numbers, not {image.dtype}")
    if image.ndim not in (2, 3):
        raise ValueError(f"an image must have the shape C x H x W, H x W x C, or H x W if grey, not {image.shape}")
    if 0 in image.shape:
        raise ValueError(f"an image of the shape {image.shape} has no pixels")
    if image.ndim == 2:
        return image[:, :, None]
    if layout == "auto":
        layout = layout_of(image.shape)
    return image.transpose(1, 2, 0) if layout == "NCHW" else image


def layout_of(shape: Sequence[int]) -> Layout:
    """Return the place of the channels from the shape of one image.

    Example:
        >>> layout_of((3, 40, 60)), layout_of((40, 60, 7)), layout_of((7, 4, 4))
        ('NCHW', 'NHWC', 'NCHW')
    """
    first, middle, last = shape
    if middle == last != first and middle > 1:
        return "NCHW"
    if first == middle != last and first not in USUAL_CHANNELS:
        return "NHWC"
    usual = next((n for n in USUAL_CHANNELS if n in (first, last)), min(first, last))
    return "NCHW" if first == usual else "NHWC"


def _denormalised(image: NDArray[Any], mean: Numbers | None, std: Numbers | None) -> NDArray[Any]:
    if image.dtype.kind != "f":
        return image
    added, factor = (
        _by_channel(name, values, image.shape[2])
        for name, values in (("mean", 0.0 if mean is None else mean), ("std", 1.0 if std is None else std))
    )
    found = image * factor + added
    # A mean or deviation above 2 means that the values were from 0 to 255.
    of_255 = float(np.max(np.abs(added))) > 2 or float(np.max(factor)) > 2
    clipped: NDArray[Any] = np.clip(found / 255 if of_255 else found, 0, 1)
    return clipped


def _by_channel(name: str, values: Numbers, channels: int) -> NDArray[np.float32]:
    found = np.asarray(values, np.float32).reshape(-1)
    if len(found) not in (1, channels):
        raise ValueError(f"{name} has {len(found)} values for images of {channels} channels: give 1 or {channels}")
    return found


def _range_of(images: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return the values that become black and white."""
    kinds = {image.dtype.kind for image in images}
    if not images or kinds == {"b"}:
        return 0.0, 1.0
    if {image.dtype for image in images} == {np.dtype(np.uint8)}:
        return 0.0, 255.0
    finite = [image[np.isfinite(image)] if image.dtype.kind == "f" else image for image in images]
    filled = [image for image in finite if image.size]
    low = float(min((image.min() for image in filled), default=0))
    high = float(max((image.max() for image in filled), default=1))
    if kinds <= {"u", "i"} and low >= 0 and high <= 255:
        return 0.0, 255.0
    if kinds == {"f"} and low >= -1e-3 and high <= 1 + 1e-3:
        return 0.0, 1.0
    if kinds == {"f"} and low >= -1 - 1e-3 and high <= 1 + 1e-3:
        return -1.0, 1.0
    if kinds == {"f"} and low >= 0 and 2 < high <= 255:
        return 0.0, 255.0
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _picture(image: NDArray[Any], low: float, high: float) -> Picture:
    if image.shape[2] in (3, 4):
        image = image[:, :, :3]
    elif image.shape[2] > 1:
        # A mean over channels of different meaning is rough, but it never invents colours.
        image = image.mean(axis=2, keepdims=True, dtype=np.float32)
    if image.dtype == np.uint8 and (low, high) == (0.0, 255.0):
        grey_or_colour = image
    else:
        values = image.astype(np.float32)
        bad = ~np.isfinite(values)
        any_bad = bool(bad.any())
        values = np.where(bad, low, values) if any_bad else values
        scaled = (values - np.float32(low)) * np.float32(255 / (high - low))
        grey_or_colour = np.clip(scaled + 0.5, 0, 255).astype(np.uint8)
        if any_bad:
            picture = np.broadcast_to(grey_or_colour, (*image.shape[:2], 3)).copy()
            picture[bad.any(axis=2)] = NOT_A_NUMBER
            return picture
    return np.ascontiguousarray(np.broadcast_to(grey_or_colour, (*image.shape[:2], 3)))


def scale_of(picture: Picture, smallest: int = SMALLEST_SIDE, largest: int = LARGEST_SIDE) -> float:
    """Return the factor by which a picture is enlarged or reduced for display: a whole one for small pictures.

    Example:
        >>> [scale_of(np.zeros((side, 8, 3), np.uint8)) for side in (8, 224, 1024)]
        [16.0, 1.0, 0.5]
    """
    side = max(picture.shape[:2])
    return largest / side if side > largest else float(max(1, -(-smallest // side)))


def resized(picture: Picture, scale: float | None = None) -> Picture:
    """Return the picture enlarged or reduced, by default to a size for display; enlarged pixels stay sharp."""
    scale = scale_of(picture) if scale is None else scale
    if scale == 1:
        return picture
    from PIL import Image

    height, width = (max(1, round(side * scale)) for side in picture.shape[:2])
    way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
    return np.asarray(Image.fromarray(picture).resize((width, height), way))
