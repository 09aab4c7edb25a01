"""Values of a script as a checkpoint holds them: by what a change is recognised, what is saved, what is put back."""

from __future__ import annotations

import enum
import itertools
import operator
import re
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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
LARGEST_INT = 250
"""The most bytes of a whole number."""
LATEST_TIME = 1e9
"""A larger number with a fraction is a time, which a resumed run has to take anew."""

CANNOT = object()
"""In place of a value that no checkpoint holds."""
NO_STATE = object()
"""In place of a value that is no state, such as a reading of the clock, or is saved in another way."""

SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", deque: "deque", set: "set", frozenset: "frozenset"}
CHANGED_IN_PLACE = (list, deque, set, dict)
_COUNT = re.compile(r"count\((-?\d+)(?:, (-?\d+))?\)")
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


def mark_of(value: Any) -> Mark:
    """Return the mark of a value.

    Example:
        >>> mark_of(0.5).is_of(0.5), mark_of(0.5).is_of(1.0), mark_of([{1: 2}]).is_of([{1: 3}]), mark_of(None).is_of([])
        (True, False, False, False)
    """
    return _mark_of(value, [MOST_LEAVES], DEEPEST)


def _mark_of(value: Any, left: list[int], depth: int) -> Mark:
    kind = type(value)
    if kind in SCALARS or kind in (complex, bytes, range):
        return Mark(kind.__name__, repr(value) if kind is not bytes else hash(value))
    if is_tensor(value):
        return Mark("tensor", 0 if value.is_inference() else value._version, weakref.ref(value))
    if is_array(value):
        return Mark("array", (value.shape, _digest_of_array(value)))
    if kind in SEQUENCES or isinstance(value, dict):
        return Mark(kind.__name__, (len(value), _marks_within(value, left, depth)))
    if isinstance(value, enum.Enum):
        return Mark("enum", str(value))
    if is_number_of_numpy(value):
        return Mark("number", repr(value.item()))
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
        return hash(frozenset(items) if type(value) in (set, frozenset) else items)
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
    return operator.length_hint(iterator, -1) if type(iterator).__module__ == "builtins" else None


def _digest_of_array(array: Any) -> Any:
    if array.dtype.kind == "O":
        return repr(array.tolist()) if array.size <= LONGEST_OBJECTS else id(array)
    return hash(array.tobytes()) if array.nbytes <= MOST_BYTES else id(array)


def _is_loader(value: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(value, DataLoader)


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


def memory_of(tensor: Tensor) -> int:
    """Return where the content of a tensor is; 0 for one without content."""
    if hasattr(tensor, "fake_mode"):
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # one without a storage
        return 0


# -- what is saved -----------------------------------------------------------------------------------------------


class _Room:
    """What one variable may still take."""

    def __init__(self) -> None:
        self.leaves, self.bytes = MOST_LEAVES, MOST_BYTES

    def take(self, size: int = 8) -> bool:
        """Take room for one more value; return whether there is any."""
        self.leaves, self.bytes = self.leaves - 1, self.bytes - size
        return self.leaves >= 0 and self.bytes >= 0


def plain_of(value: Any, known: Collection[int] = ()) -> Any:
    """Return a value as it can be saved; `CANNOT` for what cannot, `NO_STATE` for what need not be.

    Args:
        value: The value.
        known: The memory of tensors that are saved in another way, which a variable may only point to.
    """
    return _plain_of(value, known, _Room(), DEEPEST)


def _plain_of(value: Any, known: Collection[int], room: _Room, depth: int) -> Any:
    kind = type(value)
    if kind is float:
        return NO_STATE if value > LATEST_TIME and not value.is_integer() else _if(room.take(), lambda: value)
    if kind in SCALARS:
        size = len(value) if kind is str else value.bit_length() // 8 if kind is int else 8
        return _if(size <= LARGEST_INT or kind is not int, lambda: _if(room.take(size), lambda: value))
    if is_tensor(value):
        return _plain_tensor(value, known, room)
    if is_array(value):
        return _plain_array(value, room)
    if is_number_of_numpy(value):
        return _plain_of(value.item(), known, room, depth - 1) if depth else CANNOT
    if kind in (complex, bytes):
        return _if(room.take(len(value) if kind is bytes else 8), lambda: _plain_special(value))
    if kind is itertools.count or isinstance(value, enum.Enum):
        # Within a collection nothing says what to make of it again.
        return _plain_special(value) if depth == DEEPEST else CANNOT
    # Another kind of mapping is filled again where it is; within a collection nothing says what to make of it.
    is_collection = kind in SEQUENCES or kind is dict or (isinstance(value, dict) and depth == DEEPEST)
    if not is_collection or not depth or len(value) > MOST_LEAVES:
        return CANNOT
    return _plain_collection(value, lambda item: _plain_of(item, known, room, depth - 1))


def _if(is_so: bool, value: Callable[[], Any]) -> Any:
    return value() if is_so else CANNOT


def _plain_special(value: Any) -> Any:
    if isinstance(value, complex):
        return {"kind": "complex", "items": [value.real, value.imag]}
    if isinstance(value, bytes):
        return {"kind": "bytes", "items": [value.decode("latin-1")]}
    if isinstance(value, enum.Enum):
        return {"kind": "enum", "items": [type(value).__qualname__, value.name]}
    found = _COUNT.fullmatch(repr(value))
    return {"kind": "count", "items": [int(found[1]), int(found[2] or 1)]} if found else CANNOT


def _plain_collection(value: Any, plain: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        items = [[plain(key), plain(item)] for key, item in value.items()]
        parts = [part for pair in items for part in pair]
        name = "dict"
    else:
        parts = items = [plain(item) for item in value]
        name = SEQUENCES[type(value)]
    if any(part is CANNOT for part in parts):
        return CANNOT
    return NO_STATE if any(part is NO_STATE for part in parts) else {"kind": name, "items": items}


def _plain_tensor(tensor: Tensor, known: Collection[int], room: _Room) -> Any:
    import torch

    if (tensor.requires_grad and tensor.is_leaf) or memory_of(tensor) in known:
        return NO_STATE
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_meta
    size = tensor.numel() * tensor.element_size()
    return tensor.detach().clone() if plain and room.take(size) else CANNOT


def _plain_array(array: Any, room: _Room) -> Any:
    import torch

    kept = array.dtype.kind in "biufc" and array.dtype.isnative and room.take(array.nbytes)
    return torch.from_numpy(array.copy()) if kept else CANNOT


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
    if first is None or (isinstance(value, (dict, set)) and first.value[0] == 0):
        return False
    if isinstance(value, CHANGED_IN_PLACE) or is_tensor(value) or is_array(value) or isinstance(value, bytes | str):
        return True
    # None becomes an object that is made when it is needed; another function or another kind of object is another way.
    return first.kind not in ("NoneType", "list", "dict")


# -- what is put back --------------------------------------------------------------------------------------------


def as_before(saved: Any, now: Any) -> Any:
    """Return a saved value as what the script has in this place: a tensor on its device, an array, a collection.

    A collection that is there is filled with what was saved, as others may hold it too.

    Args:
        saved: What `plain_of` returned.
        now: What the script has in this place.
    """
    if isinstance(saved, Mapping):
        kind, items = saved["kind"], saved["items"]
        return _COLLECTIONS[kind](items, now) if kind in _COLLECTIONS else _SPECIAL[kind](items, now)
    if is_tensor(saved):
        if is_array(now):
            return saved.numpy().astype(now.dtype)
        return saved.to(now.device) if is_tensor(now) else saved
    return saved


def refill(thing: Any, items: Iterable[Any]) -> None:
    """Replace what a collection holds; that of a mapping are pairs."""
    items = list(items)
    thing.clear()
    if isinstance(thing, dict):
        for key, item in items:  # `update` of a counter would count them
            thing[key] = item
    elif isinstance(thing, set):
        thing.update(items)
    else:
        thing.extend(items)


def _items_before(items: Any, now: Any) -> Iterator[Any]:
    alike = list(now) if isinstance(now, (list, tuple, deque)) and len(now) == len(items) else items
    return (as_before(item, other) for item, other in zip(items, alike, strict=True))


def _list_before(items: Any, now: Any) -> Any:
    found = list(_items_before(items, now))
    if not isinstance(now, (list, deque)):
        return found
    refill(now, found)
    return now


def _deque_before(items: Any, now: Any) -> Any:
    return _list_before(items, now if isinstance(now, deque) else deque())


def _set_before(items: Any, now: Any) -> Any:
    found = {as_before(item, None) for item in items}
    if not isinstance(now, set):
        return found
    refill(now, found)
    return now


def _dict_before(items: Any, now: Any) -> Any:
    there = now if isinstance(now, dict) else {}
    keys = [as_before(key, None) for key, _ in items]
    found = [(key, as_before(item, there.get(key))) for key, (_, item) in zip(keys, items, strict=True)]
    refill(there, found)
    return there


_COLLECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "list": _list_before,
    "tuple": lambda items, now: tuple(_items_before(items, now)),
    "deque": _deque_before,
    "set": _set_before,
    "frozenset": lambda items, _: frozenset(as_before(item, None) for item in items),
    "dict": _dict_before,
}


def _enum_before(items: Any, now: Any) -> Any:
    kind, name = items
    if not isinstance(now, enum.Enum) or type(now).__qualname__ != kind or name not in type(now).__members__:
        return CANNOT
    return type(now)[name]


_SPECIAL: dict[str, Callable[[Any, Any], Any]] = {
    "complex": lambda items, _: complex(*items),
    "bytes": lambda items, _: items[0].encode("latin-1"),
    "enum": _enum_before,
    "count": lambda items, _: itertools.count(*items),
}
