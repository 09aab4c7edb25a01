"""Values of a script as a checkpoint holds them: what is saved of a value, and what is put back."""

from __future__ import annotations

import enum
import functools
import itertools
import math
import operator
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.script.kinds import (
    CHANGED_IN_PLACE,
    DEEPEST,
    MOST_BYTES,
    MOST_LEAVES,
    SCALARS,
    SEQUENCES,
    WRITTEN,
    base_of,
    fields_of,
    is_array,
    is_number_of_numpy,
    is_record,
    is_tensor,
    memory_of,
)

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_INT = 250
"""The most bytes of a whole number."""
NEAR = 366 * 86_400.0
"""How many seconds from now a number with a fraction may be that is a time, which a resumed run has to take anew."""
SMALLEST_ID = 2**32

CANNOT = object()
"""In place of a value that no checkpoint holds."""
NO_STATE = object()
"""In place of a value that is no state, such as a reading of the clock, or is saved in another way."""

_NUMBERS = frozenset((bool, int, float))
_COUNT = re.compile(r"count\((-?\d+)(?:, (-?\d+))?\)")
_THEIRS = "theirs"
"""The kind of a part of a collection that is saved in another way: a resumed script has it in the same place."""
_CLOCK = "clock"
"""The kind of a part of a collection that is a time: that of today stays, where there is one."""


class _Room:
    """What one variable may still take."""

    def __init__(self) -> None:
        self.leaves, self.bytes = MOST_LEAVES, MOST_BYTES

    def take(self, size: int = 8, count: int = 1) -> bool:
        """Take room for more values; return whether there is any."""
        self.leaves, self.bytes = self.leaves - count, self.bytes - size * count
        return self.leaves >= 0 and self.bytes >= 0


def plain_of(value: Any, known: Collection[int] = ()) -> Any:
    """Return a value as it can be saved; `CANNOT` for what cannot, `NO_STATE` for what need not be.

    Args:
        value: The value.
        known: The memory of tensors that are saved in another way, which a variable may only point to, and their ids.
    """
    plain = _plain_of(value, known, _Room(), DEEPEST)
    return NO_STATE if _is_nothing(plain) else plain


def is_time(value: float) -> bool:
    """Return whether a number is a time of the clock, in seconds or thousandths of them."""
    now = time.time()
    near = any(abs(value / unit - now) < NEAR for unit in (1, 1000))
    return math.isfinite(value) and near and not value.is_integer()


def _plain_of(value: Any, known: Collection[int], room: _Room, depth: int) -> Any:
    kind = type(value)
    if kind is float:
        return _special(_CLOCK, value) if is_time(value) else _if(room.take(), lambda: value)
    if kind in SCALARS:
        size = len(value) if kind is str else value.bit_length() // 8 if kind is int else 8
        return _if(size <= LARGEST_INT or kind is not int, lambda: _if(room.take(size), lambda: value))
    if is_tensor(value):
        return _plain_tensor(value, known, room)
    if is_array(value):
        return _plain_array(value, room)
    if isinstance(value, (bytes, bytearray)):
        name = "bytes" if isinstance(value, bytes) else "bytearray"
        return _if(room.take(len(value)), lambda: _special(name, value.decode("latin-1")))
    if (plain := _plain_special(value)) is not None:
        return _if(room.take(), lambda: plain)
    if is_record(value):
        names = fields_of(value) or ()
        parts = _plain_items([getattr(value, name) for name in names], known, room, depth)
        return CANNOT if parts is CANNOT else _special("record", kind.__qualname__, list(names), parts)
    # A class made from a collection is filled again where it is; within another nothing says how to make it again.
    is_collection = kind in SEQUENCES or kind is dict or (isinstance(value, CHANGED_IN_PLACE) and depth == DEEPEST)
    if not is_collection or not depth or len(value) > MOST_LEAVES:
        return CANNOT
    return _plain_collection(value, known, room, depth)


def _if(is_so: bool, value: Callable[[], Any]) -> Any:
    return value() if is_so else CANNOT


def _special(kind: str, *items: Any) -> dict[str, Any]:
    return {"kind": kind, "items": list(items)}


def _is_nothing(plain: Any) -> bool:
    return isinstance(plain, dict) and plain["kind"] in (_THEIRS, _CLOCK)


def _plain_special(value: Any) -> Any:
    """Return the plain form of a single value of another type; None for anything else."""
    kind = type(value)
    if kind is complex:
        return _special("complex", value.real, value.imag)
    if isinstance(value, enum.Enum):
        return _special("enum", kind.__qualname__, value.name)
    if is_number_of_numpy(value):
        item = value.item()
        return _special("number", value.dtype.str, item) if type(item) in SCALARS else CANNOT
    if kind in WRITTEN:
        return _special(WRITTEN[kind], str(value))
    if isinstance(value, PurePath):
        return _special("path", str(value))
    if (base := base_of(value)) is not None:
        return _special("made from", kind.__qualname__, base(value))
    if kind is itertools.count:
        found = _COUNT.fullmatch(repr(value))
        return _special("count", int(found[1]), int(found[2] or 1)) if found else CANNOT
    return None


def _plain_collection(value: Any, known: Collection[int], room: _Room, depth: int) -> Any:
    is_mapping = isinstance(value, dict)
    items = _plain_items(value.values() if is_mapping else value, known, room, depth)
    if items is CANNOT:
        return CANNOT
    if items and all(map(_is_nothing, items)):
        return _special(_THEIRS)
    if is_mapping:
        keys = [_plain_key(key, known, room, depth) for key in value]
        if any(key is CANNOT for key in keys):
            return CANNOT
        items = [list(pair) for pair in zip(keys, items, strict=True)]
    names = (name for kind, name in {**SEQUENCES, dict: "dict"}.items() if isinstance(value, kind))
    return {"kind": next(names), "items": items}


def _plain_key(key: Any, known: Collection[int], room: _Room, depth: int) -> Any:
    is_id = type(key) is int and key > SMALLEST_ID and key in known
    return _special(_THEIRS) if is_id else _plain_of(key, known, room, depth - 1)


def _plain_items(values: Iterable[Any], known: Collection[int], room: _Room, depth: int) -> Any:
    given = list(values)
    if depth and _are_numbers(given):
        return given if room.take(count=len(given)) else CANNOT
    items = [_plain_of(item, known, room, depth - 1) for item in given] if depth else [CANNOT]
    return CANNOT if any(item is CANNOT for item in items) else items


def _are_numbers(values: list[Any]) -> bool:
    """Return whether values are numbers that are saved as they are: too small for a time or an id."""
    most = time.time() - NEAR
    return _NUMBERS.issuperset(map(type, values)) and all(-most < value < most for value in values)


def _plain_tensor(tensor: Tensor, known: Collection[int], room: _Room) -> Any:
    import torch

    if (tensor.requires_grad and tensor.is_leaf) or memory_of(tensor) in known:
        return _special(_THEIRS)
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_meta
    size = tensor.numel() * tensor.element_size()
    return tensor.detach().clone() if plain and room.take(size) else CANNOT


def _plain_array(array: Any, room: _Room) -> Any:
    import torch

    kept = array.dtype.kind in "biufc" and array.dtype.isnative and room.take(array.nbytes)
    return _special("array", torch.from_numpy(array.copy())) if kept else CANNOT


# -- what is put back --------------------------------------------------------------------------------------------

_Later = list[tuple[Any, list[Any]]]
"""Collections and what they are to hold, once all that a value is made of has been found."""


class _NotThereError(Exception):
    """The script has not, in this place, what a value is made of: a class, or a part that is saved in another way."""


def as_before(saved: Any, now: Any) -> Any:
    """Return a saved value as what the script has in this place: a tensor on its device, an array, a collection.

    A collection that is there is filled with what was saved, as others may hold it too. `CANNOT` where the script does
    not have what the value is made of.

    Args:
        saved: What `plain_of` returned.
        now: What the script has in this place.
    """
    later: _Later = []
    try:
        found = _before(saved, now, later)
    except _NotThereError:
        return CANNOT
    for thing, items in later:
        refill(thing, items)
    return found


def _before(saved: Any, now: Any, later: _Later) -> Any:
    if isinstance(saved, Mapping):
        kind, items = saved["kind"], saved["items"]
        return _COLLECTIONS[kind](items, now, later) if kind in _COLLECTIONS else _SPECIAL[kind](items, now)
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


def _like(saved: Any, place: int, size: int, there: list[Any]) -> Any:
    """Return what the script has for an item: at the same place, or else of the class that the item says."""
    at_place = there[place] if len(there) == size else None
    name = saved["items"][0] if isinstance(saved, Mapping) and saved["kind"] in _OF_A_CLASS else None
    if name is None or type(at_place).__qualname__ == name:
        return at_place
    return next((item for item in there if type(item).__qualname__ == name), None)


def _items_before(items: Any, now: Any, later: _Later) -> Iterator[Any]:
    there = list(now) if isinstance(now, (list, tuple, deque, set, frozenset)) else []
    is_ordered = not isinstance(now, (set, frozenset))
    for place, item in enumerate(items):
        yield _before(item, _like(item, place, len(items) if is_ordered else -1, there), later)


def _list_before(items: Any, now: Any, later: _Later, kind: type = list) -> Any:
    return _filled(list(_items_before(items, now, later)), now, later, kind)


def _set_before(items: Any, now: Any, later: _Later) -> Any:
    return _filled(list(_items_before(items, now, later)), now, later, set)


def _dict_before(items: Any, now: Any, later: _Later) -> Any:
    there = now if isinstance(now, dict) else {}
    todays, size = list(there), len(items)
    keys = [_before(key, _like(key, place, size, todays), later) for place, (key, _) in enumerate(items)]
    values = [_before(item, there.get(key), later) for key, (_, item) in zip(keys, items, strict=True)]
    return _filled(list(zip(keys, values, strict=True)), now, later, dict)


def _filled(items: list[Any], now: Any, later: _Later, kind: type) -> Any:
    if not isinstance(now, kind if kind is not list else (list, deque)):
        return kind(items)
    later.append((now, items))
    return now


_COLLECTIONS: dict[str, Callable[[Any, Any, _Later], Any]] = {
    "list": _list_before,
    "tuple": lambda items, now, later: tuple(_items_before(items, now, later)),
    "deque": functools.partial(_list_before, kind=deque),
    "set": _set_before,
    "frozenset": lambda items, now, later: frozenset(_items_before(items, now, later)),
    "dict": _dict_before,
    "record": lambda items, now, later: _record_before(items, now, later),
}


def _record_before(items: Any, now: Any, later: _Later) -> Any:
    names, saved = items[1], items[2]
    kind = _class_of(now, items[0])
    if not isinstance(now, kind) or tuple(names) != fields_of(now):
        raise _NotThereError
    parts = [_before(item, getattr(now, name), later) for name, item in zip(names, saved, strict=True)]
    if isinstance(now, tuple):
        return tuple.__new__(kind, parts)
    made = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def _class_of(now: Any, name: str) -> Any:
    """Return the class of this name that the script has in this place."""
    if type(now).__qualname__ != name:
        raise _NotThereError
    return type(now)


def _enum_before(items: Any, now: Any) -> Any:
    kind, members = _class_of(now, items[0]), str(items[1]).split("|")
    if not issubclass(kind, enum.Enum) or any(name not in kind.__members__ for name in members):
        raise _NotThereError
    return functools.reduce(operator.or_, (kind[name] for name in members)) if len(members) > 1 else kind[members[0]]


def _made_before(items: Any, now: Any) -> Any:
    kind = _class_of(now, items[0])
    try:
        return kind(items[1])
    except (TypeError, ValueError):
        raise _NotThereError from None


def _theirs_before(_: Any, now: Any) -> Any:
    if now is None:
        raise _NotThereError
    return now


def _array_before(items: Any, now: Any) -> Any:
    found = items[0].numpy()
    return found.astype(now.dtype) if is_array(now) else found


def _number_before(items: Any, _: Any) -> Any:
    import numpy

    return numpy.dtype(items[0]).type(items[1])


def _written_before(items: Any, _: Any, name: str) -> Any:
    kind = next(kind for kind, other in WRITTEN.items() if other == name)
    if kind is range:
        return range(*map(int, re.findall(r"-?\d+", items[0])))
    return kind(items[0])


def _path_before(items: Any, now: Any) -> Any:
    from pathlib import Path

    return type(now)(items[0]) if isinstance(now, PurePath) else Path(items[0])


def _bytearray_before(items: Any, now: Any) -> Any:
    found = items[0].encode("latin-1")
    if not isinstance(now, bytearray):
        return bytearray(found)
    now[:] = found
    return now


_OF_A_CLASS = ("enum", "record", "made from")
"""The kinds whose first item is the name of their class."""

_SPECIAL: dict[str, Callable[[Any, Any], Any]] = {
    "complex": lambda items, _: complex(*items),
    "bytes": lambda items, _: items[0].encode("latin-1"),
    "bytearray": _bytearray_before,
    "enum": _enum_before,
    "count": lambda items, _: itertools.count(*items),
    "number": _number_before,
    "array": _array_before,
    "path": _path_before,
    "made from": _made_before,
    _THEIRS: _theirs_before,
    _CLOCK: lambda items, now: now if isinstance(now, float) else items[0],
    **{name: functools.partial(_written_before, name=name) for name in WRITTEN.values()},
}
