"""The file format: an ordinary zip file of torch, written in large pieces so that other threads can run meanwhile."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, cast

from zlib_ng.zlib_ng import crc32

from ignite_hooks.store.pickling import pickle_state
from ignite_hooks.store.plain import without_content
from ignite_hooks.store.zip_records import ALIGNMENT, Records, end_of_archive

if TYPE_CHECKING:
    from torch import UntypedStorage

# Checksums, copies and writes each release the GIL once per piece, and may wait 5 ms to get it back.
PIECE: Final = 8 * 1024 * 1024
SMALL: Final = 256 * 1024
DESCRIBED: Final = {
    # 0: offsets are read from the file. 1 would promise the offsets that torch's own writer chooses.
    ".format_version": b"0",
    ".storage_alignment": str(ALIGNMENT).encode(),
    "byteorder": sys.byteorder.encode(),
    "version": b"3\n",
}
"""What an archive says of itself."""
PICKLED: Final = 70
"""About how many bytes the pickle has for a tensor."""
READABLE: Final = 0x100
WRITABLE: Final = 0x200


class Sink(Protocol):
    """A destination for bytes."""

    def write(self, data: memoryview) -> int: ...


def write_archive(file: Sink, plain: object, image: Image | None = None) -> None:
    """Write plain types and tensors so that ``torch.load(weights_only=True)`` opens them, also with ``mmap=True``.

    The storages come first: where each is follows from their sizes alone, so that copies can be made in place.

    Args:
        file: receives the bytes in order.
        plain: what `to_plain` returns.
        image: the beginning of the file with copies of storages; those that are not among them are read directly.
    """
    image = image or Image(Records([]), memoryview(b""), {})
    copied, read_directly = image.records, cast(list["UntypedStorage"], [])

    def record_of(storage: UntypedStorage) -> tuple[str, int]:
        # Once it is copied, a storage may be resized or freed.
        place = image.places.get(storage._cdata)
        if place is not None:
            return str(place), copied.sizes[place]
        read_directly.append(storage)
        return str(len(copied) + len(read_directly) - 1), storage.nbytes()

    data = pickle_state(plain, record_of)
    others = Records([storage.nbytes() for storage in read_directly], copied)
    if len(copied):
        image.complete()
        file.write(image.view)
    buffered = _BufferedSink(file)
    for index, storage in enumerate(read_directly):
        others.write(buffered, index, _pieces_of(storage))
    description = Records([], others)
    for index, (name, content) in enumerate({"data.pkl": data, **DESCRIBED}.items()):
        description.add(name, len(content))
        description.write(buffered, index, [content])
    buffered.write(end_of_archive([description, copied, others]))
    buffered.flush()


def archive_size(plain: object, more: Iterable[int] = ()) -> int:
    """Return about how many bytes `write_archive` writes; the content of tensors is not looked at.

    Args:
        plain: what `to_plain` returns.
        more: the sizes of tensors that are to come.
    """
    hollow, sizes = without_content(plain)
    numbers, later = itertools.count(), list(more)
    data = pickle_state(hollow, lambda _: (str(next(numbers)), 0))
    records = Records([*sizes, *later])
    description = Records([], records)
    description.add("data.pkl", len(data) + PICKLED * len(later))
    for name, content in DESCRIBED.items():
        description.add(name, len(content))
    return description.end + len(end_of_archive([description, records]))


class Image:
    """The beginning of a file in memory, with copies of storages where the file has them.

    Args:
        records: the records of these storages.
        view: the memory.
        places: the number of the record of each storage, by ``_cdata``.
    """

    def __init__(self, records: Records, view: memoryview, places: Mapping[int, int]) -> None:
        self.records = records
        self.view = view
        self.places = places

    def bytes_of(self, key: int) -> memoryview:
        """Return the copy of a storage, by its ``_cdata``."""
        start, size = self.records.starts[self.places[key]], self.records.sizes[self.places[key]]
        return self.view[start : start + size]

    def first(self, count: int) -> Image:
        """Return the image of the first storages alone, which begins as this one does."""
        records = Records(self.records.sizes[:count])
        return Image(records, self.view[: records.end], {key: n for key, n in self.places.items() if n < count})

    def complete(self) -> None:
        """Write what is between the copies, with their checksums."""
        view, records = self.view, self.records
        for index, (start, size) in enumerate(zip(records.starts, records.sizes, strict=True)):
            header = records.headers[index]
            view[start - len(header) : start] = header
            end = start + size
            after = records.finish(index, crc32(view[start:end]))
            view[end : end + len(after)] = after


def host_memory(address: int, size: int, *, writable: bool = False) -> memoryview:
    """Return a view of the bytes at an address; the caller keeps that memory alive."""
    return cast(memoryview, _view(address, size, WRITABLE if writable else READABLE)) if size else memoryview(b"")


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


class _BufferedSink:
    """Pass large pieces on and collect small ones first: a model has hundreds of small tensors."""

    def __init__(self, file: Sink) -> None:
        self._file = file
        self._small = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        size = len(data)
        if size > SMALL:
            self.flush()
            self._file.write(memoryview(data))
        else:
            self._small += data
            if len(self._small) > PIECE:
                self.flush()
        return size

    def flush(self) -> None:
        if self._small:
            small, self._small = self._small, bytearray()
            self._file.write(memoryview(small))


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
