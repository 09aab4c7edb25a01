"""The number of samples in a batch, whatever it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CHANNELS = (1, 3, 4)
"""The first dimension of an image that is not in a batch."""


def batch_size(batch: Any) -> int | None:
    """Return the number of samples in a batch; None if nothing tells.

    A batch is a tensor, or parts that hold tensors, or lists with an entry for each sample, such as images of
    different sizes, mappings or objects.

    Example:
        >>> import torch
        >>> images = [torch.zeros(3, 8, 8), torch.zeros(3, 9, 7)]
        >>> batch_size((images, [{}, {}])), batch_size(images), batch_size([{"image": images[0]}])
        (2, 2, 1)
        >>> batch_size({"id": "a", "image": [torch.zeros(8, 3)]}), batch_size("text")
        (8, None)
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(batch, Mapping):
        return _agreed(batch.values())
    if not isinstance(batch, (list, tuple)) or not batch:
        return None
    if _is_one_per_sample(batch):
        return len(batch)
    return _agreed(batch)


def _agreed(parts: Any) -> int | None:
    """Return the size of the first part that has one for certain, else of the first that may have one."""
    parts = list(parts)
    sizes = [size for part in parts if not _is_list_of_tensors(part) and (size := _sure_size(part)) is not None]
    for part in parts:
        if _is_list_of_tensors(part) and _is_one_per_sample(part):
            # Images, or inputs of one shape whose first dimension is the batch: the other parts tell.
            first = int(part[0].shape[0])
            return first if first in sizes and len(part) not in sizes else len(part)
    return sizes[0] if sizes else next((size for part in parts if (size := batch_size(part)) is not None), None)


def _sure_size(part: Any) -> int | None:
    shape = getattr(part, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(part) if isinstance(part, (list, tuple)) and part and _is_one_per_sample(part) else None


def _is_list_of_tensors(part: Any) -> bool:
    return isinstance(part, (list, tuple)) and bool(part) and all(hasattr(one, "shape") for one in part)


def _is_one_per_sample(parts: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether a list has an entry for each sample: mappings, objects, or images without a batch."""
    shapes = list(_shapes(parts))
    if len(shapes) < len(parts):
        # Lists, tuples and plain values may be parts of a batch just as well.
        plain = (str, bytes, int, float, list, tuple, type(None))
        return not shapes and not any(isinstance(part, plain) for part in parts)
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        return False
    first = {int(shape[0]) for shape in shapes if len(shape)}
    return len(shapes[0]) == 3 and len(first) == 1 and first.pop() in CHANNELS


def _shapes(parts: Any) -> Iterator[Any]:
    for part in parts:
        shape = getattr(part, "shape", None)
        if shape is not None:
            yield shape
