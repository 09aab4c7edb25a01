"""By what a value of a script is recognised as changed, and whether it would be missed."""

from __future__ import annotations

import enum
import gc
import itertools
import operator
import types
import weakref
from collections import defaultdict
from typing import Any, NamedTuple

from ignite_hooks.checkpoint.script.kinds import (
    CHANGED_IN_PLACE,
    COLLECTIONS,
    DEEPEST,
    LONGEST_OBJECTS,
    MOST_BYTES,
    MOST_LEAVES,
    SCALARS,
    base_of,
    fields_of,
    is_any_array,
    is_number_of_numpy,
    is_record,
    is_tensor,
    is_told_by_text,
)

_KINDS = frozenset(SCALARS)
_CODE = (types.FunctionType, types.BuiltinFunctionType, type)


class Mark(NamedTuple):
    """By what a value is recognised as changed."""

    kind: str
    value: Any = None
    tensor: weakref.ref[Any] | None = None

    def is_of(self, value: Any) -> bool:
        """Return whether a value is what it was."""
        now = mark_of(value)
        same = self.tensor is None or (now.tensor is not None and self.tensor() is now.tensor())
        return same and (self.kind, self.value) == (now.kind, now.value)

    @property
    def is_of_nothing(self) -> bool:
        """Whether it is that of an empty collection."""
        return isinstance(self.value, tuple) and self.value[:1] == (0,)


def mark_of(value: Any) -> Mark:
    """Return the mark of a value.

    Example:
        >>> mark_of(0.5).is_of(0.5), mark_of(0.5).is_of(1.0), mark_of([{1: 2}]).is_of([{1: 3}]), mark_of(None).is_of([])
        (True, False, False, False)
    """
    return _mark_of(value, [MOST_LEAVES], DEEPEST)


def _mark_of(value: Any, left: list[int], depth: int) -> Mark:
    kind = type(value)
    if kind in SCALARS or kind in (complex, bytes):
        return Mark(kind.__name__, repr(value) if kind is not bytes else hash(value))
    if is_tensor(value):
        if value.requires_grad and value.is_leaf:  # saved in another way: only which one it is may be progress
            return Mark("weight", None, weakref.ref(value))
        return Mark("tensor", 0 if value.is_inference() else value._version, weakref.ref(value))
    if is_any_array(value):
        return Mark("array", (value.shape, _digest_of_array(value)))
    if isinstance(value, enum.Enum):
        return Mark("enum", str(value))
    if is_number_of_numpy(value):
        return Mark("number", (kind.__name__, repr(value.item())))
    if is_told_by_text(value):
        return Mark(kind.__name__, hash(bytes(value)) if isinstance(value, bytearray) else repr(value))
    if isinstance(value, COLLECTIONS):
        items: Any = value
        return Mark(kind.__name__, (len(items), _marks_within(items, left, depth)))
    if is_record(value):
        names = fields_of(value) or ()
        return Mark(kind.__name__, (len(names), _marks_within([getattr(value, name) for name in names], left, depth)))
    if (base := base_of(value)) is not None:
        return Mark(kind.__name__, repr(base(value)))
    if isinstance(value, _CODE):
        return Mark("code", getattr(value, "__qualname__", ""))
    if hasattr(kind, "__next__"):
        return Mark("iterator", _progress_of(value, left, depth))
    return Mark("object", f"{kind.__module__}.{kind.__qualname__}")


def _marks_within(value: Any, left: list[int], depth: int) -> Any:
    """Return what a collection holds, as far as it is looked at."""
    if isinstance(value, dict):
        pairs = tuple(itertools.islice(value.items(), max(0, left[0])))
        items = tuple(item for pair in pairs for item in pair)
    else:
        items = tuple(itertools.islice(value, max(0, left[0])))
    if all(type(item) in SCALARS for item in items):
        left[0] -= len(items)
        return hash(frozenset(items) if isinstance(value, (set, frozenset)) else items)
    found = []
    for item in items if depth else ():
        if left[0] <= 0:
            break
        left[0] -= 1
        mark = _mark_of(item, left, depth - 1)
        found.append((mark.kind, mark.value, id(mark.tensor()) if mark.tensor is not None else None))
    return tuple(found)


def _progress_of(iterator: Any, left: list[int], depth: int) -> Any:
    """Return where an iterator is, as far as that can be known without drawing from it."""
    if type(iterator) is itertools.count:
        return repr(iterator)
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        if frame is None or not depth:
            return "at its end"
        if any(map(_is_loader, frame.f_locals.values())):  # which is named in another way
            return None
        names = {name: value for name, value in frame.f_locals.items() if type(value) in SCALARS}
        return frame.f_lasti, _marks_within(names, left, depth - 1)
    if type(iterator).__module__ not in ("builtins", "itertools"):
        return None
    if (size := operator.length_hint(iterator, -1)) >= 0:
        return size
    # One that draws from others, such as `zip` or `itertools.chain`, is where they are.
    held = [part for one in gc.get_referents(iterator) for part in (one if type(one) is tuple else (one,))]
    inner = [part for part in held if hasattr(type(part), "__next__")]
    return tuple(_progress_of(part, left, depth - 1) for part in inner) if depth else None


def _digest_of_array(array: Any) -> Any:
    if array.dtype.kind == "O":
        return repr(array.tolist()) if array.size <= LONGEST_OBJECTS else id(array)
    return hash(array.tobytes()) if array.nbytes <= MOST_BYTES else id(array)


def _is_loader(value: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(value, DataLoader)


def log_size(value: Any) -> int | None:
    """Return how many values a collection holds that may be a log, as lists are; None for anything else.

    Example:
        >>> log_size([0.5, [1, 2]]), log_size({1: [0.5], 2: []}), log_size((0.5,)), log_size([])
        (3, 1, None, 0)
    """
    if isinstance(value, dict):
        is_log = bool(value) and all(type(item) is list for item in value.values())
        return sum(map(len, value.values())) if is_log else None
    if type(value) is not list:
        return None
    items = value[:MOST_LEAVES]
    if _KINDS.issuperset(map(type, items)):
        return len(value)
    if not all(isinstance(item, (*SCALARS, list, tuple, dict)) for item in items):
        return None
    if any(map(_has_tensors, items)):
        return None
    return sum(map(_leaves, items)) if len(items) == len(value) else len(value)


def _leaves(value: Any) -> int:
    return sum(map(_leaves, value)) if isinstance(value, (list, tuple)) else 1


def _has_tensors(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return is_tensor(value) or any(map(_has_tensors, items))


def is_missed(value: Any, first: Mark | None) -> bool:
    """Return whether a value that has changed and cannot be kept would be missed; what is made late is no state.

    Args:
        value: The value.
        first: Its mark when the run began; None if it was not there.
    """
    if first is None:
        return False
    if isinstance(value, (dict, set)) and first.is_of_nothing:
        # A cache that is filled; one that makes its own entries is there to count in.
        return isinstance(value, defaultdict) and value.default_factory is not None
    if isinstance(value, CHANGED_IN_PLACE) or is_tensor(value) or is_any_array(value) or isinstance(value, bytes | str):
        return True
    # None becomes an object that is made when it is needed; another function or another kind of object is another way.
    return first.kind not in ("NoneType", "list", "dict")
