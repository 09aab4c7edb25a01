"""The kinds of values that a script keeps."""

from __future__ import annotations

import dataclasses
import enum
import types
from array import array
from collections import deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SCALARS = (bool, int, float, str, type(None))
MOST_BYTES = 16 * 2**20
"""The most that is kept of one variable: a hidden state is small, what is larger is rather data."""
MOST_LEAVES = 10_000
"""The most values in one variable, within all its collections, that are kept."""
LONGEST_OBJECTS = 1_000
"""The most objects in an array that are compared."""
DEEPEST = 4
"""How deep collections may be nested."""

SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", deque: "deque", set: "set", frozenset: "frozenset"}
COLLECTIONS = (*SEQUENCES, dict)
CHANGED_IN_PLACE = (list, deque, set, dict)
WRITTEN = {Decimal: "decimal", Fraction: "fraction", range: "range"}
"""Values of the standard library that their text says."""
TOLD_BY_TEXT = (*WRITTEN, PurePath, slice, array, bytearray, types.MappingProxyType)
_OF_TORCH = ("dtype", "device", "Size", "memory_format", "layout")


def is_number_of_numpy(value: Any) -> bool:
    """Return whether a value is one number with a type of NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch."""
    import torch

    return isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray"


def is_any_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy or of a class made from it, such as a masked one."""
    return is_array(value) or any(
        kind.__module__ == "numpy" and kind.__name__ == "ndarray" for kind in type(value).__mro__
    )


def is_told_by_text(value: Any) -> bool:
    """Return whether the text of a value says all of it."""
    return isinstance(value, TOLD_BY_TEXT) or (type(value).__module__ == "torch" and type(value).__name__ in _OF_TORCH)


def base_of(value: Any) -> type | None:
    """Return which plain type a number or text of a class of its own has been made from; None for anything else."""
    if isinstance(value, enum.Enum) or type(value) in SCALARS:
        return None
    return next((kind for kind in (int, float, str) if isinstance(value, kind)), None)


def fields_of(value: Any) -> tuple[str, ...] | None:
    """Return the fields of a named tuple or a frozen dataclass, which a script replaces; None for anything else.

    Example:
        >>> from collections import namedtuple
        >>> fields_of(namedtuple("Point", "x y")(1, 2)), fields_of((1, 2))
        (('x', 'y'), None)
    """
    kind = type(value)
    if isinstance(value, tuple):
        return getattr(kind, "_fields", None)
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return None
    return tuple(field.name for field in dataclasses.fields(value) if hasattr(value, field.name))


def is_record(value: Any) -> bool:
    """Return whether a value is a named tuple or frozen dataclass of values."""
    names = fields_of(value)
    return names is not None and all(map(_is_value, (getattr(value, name) for name in names)))


def _is_value(value: Any) -> bool:
    is_plain = isinstance(value, (*SCALARS, complex, bytes, enum.Enum, *COLLECTIONS)) or is_number_of_numpy(value)
    return is_plain or is_tensor(value) or is_any_array(value) or is_told_by_text(value) or is_record(value)


def memory_of(tensor: Tensor) -> int:
    """Return where the content of a tensor is; 0 for one without content."""
    if hasattr(tensor, "fake_mode"):
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # one without a storage
        return 0
