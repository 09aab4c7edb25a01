"""A state as plain types and tensors: all that ``torch.load(weights_only=True)`` opens."""

from __future__ import annotations

import datetime
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import CheckpointError
from ignite_hooks.system.devices import is_read_in_place

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

ALLOWED = "numbers, text, lists, tuples, sets, dicts and tensors"
# weights_only=True reads numbers of at most 255 bytes.
LARGEST_INT_BITS = 2039
ORDINARY = 1 << 64
DEEPEST_LEFT_OUT = 2
"""How deep the item of a mapping is at most that is left out because it is too deep or contains itself."""
AS_THEY_ARE = frozenset({type(None), bool, float, str})


def to_plain(value: object, place: str = "", *, clone: bool = False) -> Any:
    """Turn a state into plain types and tensors.

    Tensors are detached and share their memory with the state; ``clone`` makes independent copies on the CPU.
    Arrays become tensors; paths, dates and enum members become text or their value. Anything else is an error.

    Args:
        value: the state.
        place: its name in messages, such as ``hooks.EMAHook``.
        clone: whether to copy, so that later changes of the state do not show in the result.
    """
    return _Conversion(clone).convert_all(value, place)


def to_plain_and_shared(value: object) -> tuple[Any, list[Tensor]]:
    """Convert as `to_plain`; also return the tensors of the result that still share memory with the state."""
    conversion = _Conversion(clone=False)
    conversion.shared = []
    return conversion.convert_all(value, ""), conversion.shared


def to_plain_leaving_out(value: object, place: str = "", *, copies_nothing: bool = False) -> tuple[Any, dict[str, str]]:
    """Convert as `to_plain`, without the parts that cannot be saved; also return these, by place, with the reason.

    A part is the item of a mapping; a list that holds something unsavable is left out whole. Sharded tensors stay.

    Args:
        value: the state.
        place: its name in messages.
        copies_nothing: whether the result is only looked at: tensors stay what they are.
    """
    conversion = _Conversion(clone=False)
    conversion.left_out, conversion.copies_nothing = {}, copies_nothing
    return conversion.convert_all(value, place), conversion.left_out


def find_place(plain: object, storage: UntypedStorage) -> str:
    """Return the place in a plain state that holds a tensor with this storage."""
    import torch

    rest: list[tuple[object, Place]] = [(plain, "")]
    while rest:
        value, place = rest.pop()
        if isinstance(value, dict):
            rest.extend((item, (place, key, False)) for key, item in value.items())
        elif isinstance(value, list | tuple):
            rest.extend((item, (place, index, True)) for index, item in enumerate(value))
        elif (
            isinstance(value, torch.Tensor)
            and value.layout == torch.strided
            and value.untyped_storage()._cdata == storage._cdata
        ):
            return _text(place)
    return "state"


def size_in_bytes(plain: object) -> int:
    """Return the bytes that the tensors of a plain state take on disk, shared memory counted once."""
    return sum(without_content(plain)[1])


def without_content(plain: object) -> tuple[Any, list[int]]:
    """Return a plain state with empty tensors in place of its own, and the bytes of each memory behind these."""
    import torch

    empty: dict[int, Tensor] = {}
    sizes: list[int] = []

    def hollow(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: hollow(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            # The states of random generators are hundreds of numbers.
            return value if AS_THEY_ARE.union((int,)).issuperset(map(type, value)) else [hollow(item) for item in value]
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage() if value.layout == torch.strided else None
        key = id(value) if storage is None else storage._cdata
        if key not in empty:
            empty[key] = torch.empty(0, dtype=value.dtype)
            sizes.append(value.numel() * value.element_size() if storage is None else storage.nbytes())
        return empty[key]

    return hollow(plain), sizes


Place = str | tuple[Any, object, bool]
"""Where a value is: its owner, its key or index, and whether it is an index; made into text only when needed."""


def _text(place: Place) -> str:
    keys: list[str] = []
    while not isinstance(place, str):
        place, key, is_index = place
        keys.append(f"[{key}]" if is_index else f".{key}")
    return (place + "".join(reversed(keys))).removeprefix("" if place else ".")


def _depth(place: Place) -> int:
    depth = 0
    while not isinstance(place, str):
        place, depth = place[0], depth + 1
    return depth


class UnsavableError(CheckpointError):
    """A part of a state is of a type that no checkpoint can hold."""


class _Conversion:
    """One conversion; it remembers the copies it made, so that shared weights stay shared."""

    def __init__(self, clone: bool) -> None:
        import torch

        self.left_out: dict[str, str] | None = None
        self.copies_nothing = False
        self.shared: list[Tensor] | None = None
        self._torch = torch
        self._clone = clone
        self._copies: dict[tuple[object, ...], Tensor] = {}
        # A copied tensor may die during the conversion and its memory be used again: keep the originals.
        self._originals: list[Tensor] = []

    def convert_all(self, value: object, place: str) -> Any:
        """Convert a whole state."""
        try:
            return self.convert(value, place)
        except RecursionError:
            raise UnsavableError(f"{place or 'state'}: cannot be saved: too deep, or contains itself") from None

    def convert(self, value: Any, place: Place) -> Any:
        kind = type(value)
        if kind in AS_THEY_ARE:
            return value
        if kind is self._torch.Tensor:
            return self._tensor(value, place)
        if kind is dict:
            return self._dict(value, place)
        if kind is list:
            return self._list(value, place)
        if kind is int:
            return self._int(value, place)
        if kind is tuple:
            return tuple(self._list(value, place))
        return self._other(value, place)

    def _other(self, value: Any, place: Place) -> Any:
        torch = self._torch
        if isinstance(value, Enum):
            return self.convert(value.value, place)
        if isinstance(value, int):
            return self._int(int(value), place)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, place)
        if isinstance(value, torch.Size | torch.dtype | torch.device):
            return value
        if isinstance(value, dict):
            return self._dict(value, place)
        if isinstance(value, list | deque):
            return self._list(value, place)
        if isinstance(value, tuple):
            return tuple(self._list(value, place))
        if isinstance(value, set):
            return {self._key(item, place) for item in value}
        if isinstance(value, bytes) and value:
            return bytes(value)
        if isinstance(value, PurePath):
            return str(value)
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        return self._numpy(value, place)

    def _list(self, value: Iterable[Any], place: Place) -> list[Any]:
        return [
            item
            if (kind := type(item)) in AS_THEY_ARE or (kind is int and -ORDINARY <= item <= ORDINARY)
            else self.convert(item, (place, index, True))
            for index, item in enumerate(value)
        ]

    def _int(self, value: int, place: Place) -> int:
        if value.bit_length() > LARGEST_INT_BITS:
            raise _refusal(place, value, f" of {value.bit_length()} bits")
        return value

    def _dict(self, value: Mapping[Any, Any], place: Place) -> dict[Any, Any]:
        if self.left_out is not None:
            return self._saved_part_of(value, place)
        plain: dict[Any, Any] = {}
        for key, item in value.items():
            plain_key = key if type(key) is str else self._key(key, place)
            if plain_key in plain:
                here = _text((place, plain_key, False))
                raise UnsavableError(f"{here}: cannot be saved: two keys become {plain_key!r}")
            plain[plain_key] = item if type(item) in AS_THEY_ARE else self.convert(item, (place, plain_key, False))
        return plain

    def _saved_part_of(self, value: Mapping[Any, Any], place: Place) -> dict[Any, Any]:
        """Return a mapping without the items that cannot be saved, which are noted."""
        assert self.left_out is not None
        plain: dict[Any, Any] = {}
        for key, item in value.items():
            here = (place, key, False)
            try:
                plain_key = self._key(key, place)
                if plain_key in plain:
                    raise UnsavableError(f"{_text(here)}: cannot be saved: two keys become {plain_key!r}")
                plain[plain_key] = self.convert(item, here)
            except UnsavableError as error:
                self.left_out[_text(here)] = str(error)
            except RecursionError:
                if _depth(place) > DEEPEST_LEFT_OUT:
                    raise
                self.left_out[_text(here)] = f"{_text(here)}: cannot be saved: too deep, or contains itself"
        return plain

    def _key(self, key: object, place: Place) -> Any:
        plain = self.convert(key, place)
        if isinstance(plain, self._torch.Tensor | list | dict | set):
            raise _refusal(place, key, " as a key")
        return plain

    def _tensor(self, value: Tensor, place: Place) -> Tensor:
        if self.copies_nothing and not value.is_meta:
            return value
        tensor = value.detach()
        if self.left_out is not None and hasattr(tensor, "_local_tensor"):
            # A sharded tensor, which the store writes in another way.
            return value
        if type(tensor) is not self._torch.Tensor or tensor.is_meta:
            raise _refusal(place, value, " without data" if tensor.is_meta else "")
        if tensor.layout is not self._torch.strided:
            return tensor.clone().cpu() if self._clone or self.shared is not None else tensor
        storage = tensor.untyped_storage()
        # torch.save writes the whole memory behind a tensor, however small the part that it shows.
        if not self._clone and storage.nbytes() <= tensor.nbytes and is_read_in_place(tensor):
            if self.shared is not None:
                self.shared.append(tensor)
            return tensor
        key = (tensor.device, storage.data_ptr(), tensor.storage_offset(), tensor.dtype)
        key += (*tensor.shape, *tensor.stride(), tensor.is_conj(), tensor.is_neg())
        if key not in self._copies or not storage.data_ptr():
            self._originals.append(tensor)
            self._copies[key] = tensor.clone() if tensor.device.type == "cpu" else tensor.to("cpu", copy=True)
        return self._copies[key]

    def _numpy(self, value: Any, place: Place) -> Any:
        # Only a program that has imported numpy can hold its types.
        numpy = sys.modules.get("numpy")
        if numpy is None:
            raise _refusal(place, value)
        if isinstance(value, numpy.generic) and not isinstance(value.item(), numpy.generic):
            return self.convert(value.item(), place)
        if isinstance(value, numpy.ndarray):
            try:
                return self._torch.from_numpy(numpy.array(value, order="C"))
            except (TypeError, ValueError) as error:
                raise _refusal(place, value, f" of {value.dtype}") from error
        raise _refusal(place, value)


def _refusal(place: Place, value: object, detail: str = "") -> UnsavableError:
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, bytes):
        # weights_only=True opens bytes, but not empty ones.
        detail = " without content"
    return UnsavableError(f"{_text(place) or 'state'}: cannot be saved: {name}{detail}; a state holds {ALLOWED}")
