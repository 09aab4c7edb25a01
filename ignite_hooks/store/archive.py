"""The file format: an ordinary zip file of torch, written in large pieces so that other threads can run meanwhile."""

from __future__ import annotations

import ctypes
import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from torch import UntypedStorage

ALIGNMENT: Final = 64
# Hashing, crc32 and writing each release the GIL once per piece, and may wait 5 ms to get it back.
PIECE: Final = 8 * 1024 * 1024
SMALL: Final = 256 * 1024
LOCAL_HEADER: Final = 30
EXTRA_HEADER: Final = 4
ZIP64_EXTRA: Final = 20
NEEDS_ZIP64: Final = 1 << 30
READABLE: Final = 0x100
WRITABLE: Final = 0x200


class Sink(Protocol):
    """A destination for bytes."""

    def write(self, data: memoryview) -> int: ...


def write_archive(file: Sink, plain: object, copies: Mapping[int, memoryview] | None = None) -> None:
    """Write plain types and tensors so that ``torch.load(weights_only=True)`` opens them, also with ``mmap=True``.

    Args:
        file: receives the bytes in order.
        plain: what `to_plain` returns.
        copies: copied bytes of storages, by ``_cdata``; a storage that is not among them is read directly.
    """
    data = io.BytesIO()
    pickler = _Pickler(data, copies or {})
    pickler.dump(plain)
    buffered = _BufferedSink(file)
    with zipfile.ZipFile(cast(IO[bytes], buffered), "w") as archive:
        _add(archive, buffered, "data.pkl", [data.getbuffer()])
        # 0: offsets are read from the file. 1 would promise the offsets that torch's own writer chooses.
        _add(archive, buffered, ".format_version", [b"0"])
        _add(archive, buffered, ".storage_alignment", [str(ALIGNMENT).encode()])
        _add(archive, buffered, "byteorder", [sys.byteorder.encode()])
        for key, storage in enumerate(pickler.storages):
            copied = pickler.copies.get(storage._cdata)
            pieces = _pieces_of(storage) if copied is None else _pieces(copied)
            _add(archive, buffered, f"data/{key}", pieces, pickler.size(storage))
        _add(archive, buffered, "version", [b"3\n"])
    buffered.flush()


def host_memory(address: int, size: int, *, writable: bool = False) -> memoryview:
    """Return a view of the bytes at an address; the caller keeps that memory alive."""
    return cast(memoryview, _view(address, size, WRITABLE if writable else READABLE)) if size else memoryview(b"")


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


class _Storage(NamedTuple):
    storage: UntypedStorage
    dtype: Any
    kind: Any


class _Pickler(pickle.Pickler):
    """Write storages as numbers as `torch.save` does, always as memory of the host."""

    def __init__(self, file: IO[bytes], copies: Mapping[int, memoryview]) -> None:
        import torch

        super().__init__(file, protocol=2)
        self.copies = copies
        self.storages: list[UntypedStorage] = []
        self._torch = torch
        self._rebuild = torch._utils._rebuild_tensor_v2
        # Filled from the first tensor of each type, which torch itself pickles.
        self._kinds: dict[object, Any] = {}
        self._seen: dict[int, tuple[str, Any]] = {}

    def size(self, storage: UntypedStorage) -> int:
        """Return the size of a storage in bytes; once it is copied, the storage itself may be resized or freed."""
        copied = self.copies.get(storage._cdata)
        return storage.nbytes() if copied is None else len(copied)

    def reducer_override(self, value: Any) -> Any:
        """Return what the method of a plain tensor returns, in a third of the time."""
        if type(value) is not self._torch.Tensor or value.requires_grad or value.is_conj() or value.is_neg():
            return NotImplemented
        kind = self._kinds.get(value.dtype)
        if kind is None or value.layout is not self._torch.strided or value.is_quantized:
            return NotImplemented
        parts = _Storage(value.untyped_storage(), value.dtype, kind), value.storage_offset()
        return self._rebuild, (*parts, tuple(value.size()), value.stride(), False, OrderedDict())

    def persistent_id(self, value: Any) -> tuple[object, ...] | None:
        asked = type(value)
        if asked is _Storage:
            storage, dtype, kind = value.storage, value.dtype, value.kind
        elif asked is self._torch.UntypedStorage:
            storage, dtype, kind = value, self._torch.uint8, asked
        elif asked is self._torch.storage.TypedStorage:
            storage, dtype = value._untyped_storage, value.dtype
            kind = self._kinds[dtype] = getattr(self._torch, value._pickle_storage_type())
        else:
            return None
        if storage._cdata not in self._seen:
            self._seen[storage._cdata] = str(len(self.storages)), dtype
            self.storages.append(storage)
        key, first = self._seen[storage._cdata]
        if dtype != first:
            # A reader gives every tensor of a storage the type of the first.
            raise RuntimeError("cannot save several tensors that view the same memory as different types")
        return ("storage", kind, key, "cpu", self.size(storage) // dtype.itemsize)


class _BufferedSink:
    """Pass large pieces on and collect small ones first: a model has hundreds of small tensors."""

    def __init__(self, file: Sink) -> None:
        self._file = file
        self._small = bytearray()
        self._position = 0

    def write(self, data: bytes | memoryview) -> int:
        size = len(data)
        if size > SMALL:
            self.flush()
            self._file.write(memoryview(data))
        else:
            self._small += data
            if len(self._small) > PIECE:
                self.flush()
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        if self._small:
            small, self._small = self._small, bytearray()
            self._file.write(memoryview(small))


def _add(
    archive: zipfile.ZipFile, file: _BufferedSink, name: str, pieces: Iterable[bytes | memoryview], size: int = 0
) -> None:
    # A record without a date gets that of 1980: equal states make equal files.
    record = zipfile.ZipInfo(f"archive/{name}")
    large = size > NEEDS_ZIP64
    start = file.tell() + LOCAL_HEADER + len(record.filename) + EXTRA_HEADER + (ZIP64_EXTRA if large else 0)
    padding = -start % ALIGNMENT
    record.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    with archive.open(record, "w", force_zip64=large) as opened:
        record.extra = b""
        for piece in pieces:
            opened.write(piece)


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[start : start + PIECE] for start in range(0, len(data), PIECE))


def _pieces_of(storage: UntypedStorage) -> Iterator[memoryview]:
    if storage.device.type == "cpu":
        return _pieces(host_memory(storage.data_ptr(), storage.nbytes()))
    return _fetch_from_device(storage)


def _fetch_from_device(storage: UntypedStorage) -> Iterator[memoryview]:
    # Not yet tried on a CUDA device.
    import torch

    size = storage.nbytes()
    there = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    here = torch.empty(min(size, PIECE), dtype=torch.uint8)
    for start in range(0, size, PIECE):
        length = min(PIECE, size - start)
        here[:length].copy_(there[start : start + length])
        yield host_memory(here.data_ptr(), length)
