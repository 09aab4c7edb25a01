"""Pickles of plain states, as `torch.save` makes them: what tensors have in common is made once, not for each."""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

RecordOf = Callable[["UntypedStorage"], tuple[str, int]]
"""Return the name and the size of the record of a storage."""

PROTOCOL: Final = 2
MANY: Final = 16
"""So many numbers are written at once: the states of random generators are hundreds, and in every checkpoint."""
# The types that have a class of storages; torch itself pickles tensors of others.
STORAGES: Final = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}


class Template(NamedTuple):
    """What is before and after the name of the record in the pickles of tensors of one shape and type."""

    before: bytes
    after: bytes


def pickle_state(plain: object, record_of: RecordOf) -> bytes:
    """Return the pickle of plain types and tensors, with the names of records in place of storages."""
    return _State(record_of).pickled(plain)


class _State:
    def __init__(self, record_of: RecordOf) -> None:
        import torch

        self._torch = torch
        self._record_of = record_of
        self._out: list[bytes] = []
        self._memo: dict[str, bytes] = {}
        """How each text and global that was written is named again."""
        self._templates: dict[tuple[Any, ...], Template] = {}
        self._storages: dict[int, tuple[bytes, int, Any]] = {}
        self._kinds = {getattr(torch, name): kind for name, kind in STORAGES.items()}

    def pickled(self, plain: object) -> bytes:
        self._add(plain)
        return b"".join((pickle.PROTO, bytes([PROTOCOL]), *self._out, pickle.STOP))

    def _add(self, value: Any) -> None:
        kind, out = type(value), self._out
        if kind is self._torch.Tensor:
            self._add_tensor(value)
        elif kind is str:
            out.append(self._text(value))
        elif kind is dict:
            out += pickle.EMPTY_DICT, pickle.MARK
            for key, item in value.items():
                out.append(self._text(key)) if type(key) is str else self._add(key)
                self._add(item)
            out.append(pickle.SETITEMS)
        elif (kind is list or kind is tuple) and len(value) >= MANY and set(map(type, value)) == {int}:
            out.append(_numbers(value))
        elif kind is list:
            out += pickle.EMPTY_LIST, pickle.MARK
            self._add_items(value)
            out.append(pickle.APPENDS)
        elif kind is tuple:
            out.append(pickle.MARK)
            self._add_items(value)
            out.append(pickle.TUPLE)
        elif kind is float:
            out.append(pickle.BINFLOAT + struct.pack(">d", value))
        elif small := _small(value):
            out.append(small)
        elif isinstance(value, self._torch.Tensor):
            # In a mode of torch, such as that of fake tensors, even a new one has another class.
            self._add_tensor(value)
        else:
            out.append(self._by_python(value))

    def _add_items(self, items: Iterable[Any]) -> None:
        out = self._out
        for item in items:
            out.append(self._number(item)) if type(item) is int else self._add(item)

    def _text(self, text: str) -> bytes:
        again = self._memo.get(text)
        return self._remember(text, _text(text)) if again is None else again

    def _remember(self, name: str, written: bytes) -> bytes:
        """Return what is written for the first time; from now on it has a number."""
        number = struct.pack("<I", len(self._memo))
        self._memo[name] = pickle.LONG_BINGET + number
        return written + pickle.LONG_BINPUT + number

    def _global(self, module: str, name: str) -> bytes:
        key = f"{module}\n{name}\n"
        again = self._memo.get(key)
        return self._remember(key, pickle.GLOBAL + key.encode()) if again is None else again

    def _add_tensor(self, value: Tensor) -> None:
        dtype = value.dtype
        ordinary = not (value.requires_grad or value.is_conj() or value.is_neg()) and dtype in self._kinds
        if not ordinary or value.layout is not self._torch.strided:
            self._out.append(self._by_python(value))
            return
        storage = value.untyped_storage()
        name, size, _ = self._storage(storage, dtype)
        shape, stride = tuple(value.size()), value.stride()
        key = (dtype, size, int(value.storage_offset()), shape, stride)
        template = self._templates.get(key)
        if template is None:
            known = len(self._memo)
            template = self._template(*key)
            if len(self._memo) == known:
                self._templates[key] = template
        self._out += template.before, name, template.after

    def _storage(self, storage: UntypedStorage, dtype: Any) -> tuple[bytes, int, Any]:
        known = self._storages.get(storage._cdata)
        if known is None:
            name, size = self._record_of(storage)
            known = self._storages[storage._cdata] = _text(name), size, dtype
        elif known[2] != dtype:
            # A reader gives every tensor of a storage the type of the first.
            raise RuntimeError("cannot save several tensors that view the same memory as different types")
        return known

    def _template(self, dtype: Any, size: int, offset: int, shape: Iterable[int], stride: Iterable[int]) -> Template:
        def numbers(values: Iterable[int]) -> bytes:
            return pickle.MARK + b"".join(map(self._number, values)) + pickle.TUPLE

        before = (
            self._global("torch._utils", "_rebuild_tensor_v2"),
            pickle.MARK + pickle.MARK,
            self._text("storage"),
            self._global("torch", self._kinds[dtype]),
        )
        after = (
            self._text("cpu"),
            self._number(size // dtype.itemsize),
            pickle.TUPLE + pickle.BINPERSID,
            self._number(offset),
            numbers(shape),
            numbers(stride),
            pickle.NEWFALSE,
            self._global(OrderedDict.__module__, OrderedDict.__name__),
            pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.TUPLE + pickle.REDUCE,
        )
        return Template(b"".join(before), b"".join(after))

    def _number(self, number: int) -> bytes:
        return _small(number) or self._by_python(number)

    def _by_python(self, value: object) -> bytes:
        """Return what Python writes for a value, without the first two bytes and the last."""
        data = io.BytesIO()
        pickler = _Pickler(data, self._storage)
        # Numbers of this pickle are not those of another: without them, each value stands for itself.
        pickler.fast = True
        pickler.dump(value)
        return data.getvalue()[2:-1]


class _Pickler(pickle.Pickler):
    """Name the records of storages as `torch.save` does, always as memory of the host."""

    def __init__(self, file: io.BytesIO, storage_of: Callable[[UntypedStorage, Any], tuple[bytes, int, Any]]) -> None:
        import torch

        super().__init__(file, protocol=PROTOCOL)
        self._torch = torch
        self._storage_of = storage_of

    def persistent_id(self, value: Any) -> tuple[object, ...] | None:
        asked = type(value)
        if asked is self._torch.UntypedStorage:
            storage, dtype, kind = value, self._torch.uint8, asked
        elif asked is self._torch.storage.TypedStorage:
            storage, dtype = value._untyped_storage, value.dtype
            kind = getattr(self._torch, value._pickle_storage_type())
        else:
            return None
        name, size, _ = self._storage_of(storage, dtype)
        return ("storage", kind, name[5:].decode(), "cpu", size // dtype.itemsize)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return pickle.BINUNICODE + struct.pack("<I", len(data)) + data


_CONSTANTS: Final = {None: pickle.NONE, True: pickle.NEWTRUE, False: pickle.NEWFALSE}
_OF_ONE_BYTE: Final = tuple(pickle.BININT1 + bytes([number]) for number in range(0x100))
_of_four_bytes: Final = struct.Struct("<ci").pack
_of_five_bytes: Final = struct.Struct("<cBIx").pack


def _numbers(values: object) -> bytes:
    """Return what is written for a list or tuple of numbers, by C."""
    data = io.BytesIO()
    pickler = pickle.Pickler(data, PROTOCOL)
    pickler.fast = True
    pickler.dump(values)
    return data.getvalue()[2:-1]


def _small(value: object) -> bytes | None:
    """Return what is written for None, truth values and numbers of 32 bits, with a sign or not; None for all else."""
    if type(value) is int:
        if 0 <= value < 0x100:
            return _OF_ONE_BYTE[value]
        if -0x80000000 <= value < 0x80000000:
            return _of_four_bytes(pickle.BININT, value)
        return _of_five_bytes(pickle.LONG1, 5, value) if 0 < value < 0x100000000 else None
    return _CONSTANTS[value] if value is None or value is True or value is False else None
