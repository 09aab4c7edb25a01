"""The records of a zip file: not compressed, aligned, at places that follow from their sizes alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from zlib_ng.zlib_ng import crc32

ALIGNMENT: Final = 64
NEEDS_ZIP64: Final = 1 << 30
FULL: Final = 0xFFFFFFFF
"""What stands in a field of 32 bits whose value is in the extra field."""
ZIP64: Final = 1
DESCRIBED_AFTER: Final = 0x08
VERSIONS: Final = (20, 45)
"""The version of the format that a reader needs, without and with 64-bit numbers."""
UNIX: Final = 3 << 8
# Equal states make equal files: a record without a date has that of 1980.
DATE: Final = 1 << 5 | 1

_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_AFTER = struct.Struct("<4sLLL")
_AFTER_64 = struct.Struct("<4sLQQ")
_END = struct.Struct("<4sHHHHLLH")
_END_64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR = struct.Struct("<4sLQL")
_CHECKSUM = struct.Struct("<L")
_CHECKSUM_AT: Final = 16


class Sink(Protocol):
    """A destination for bytes."""

    def write(self, data: bytes | memoryview) -> int: ...


class Records:
    """Records that follow each other in a file: header, content, and a descriptor with the checksum.

    Args:
        sizes: the sizes of the contents that are named ``data/0``, ``data/1`` and so on.
        after: the records before these in the file and in their numbers.
    """

    def __init__(self, sizes: Sequence[int], after: Records | None = None) -> None:
        self.end: int = 0 if after is None else after.end
        """Where the next record begins."""
        self.sizes: list[int] = []
        self.starts: list[int] = []
        """Where each content begins."""
        self.headers: list[bytes] = []
        """What is before each content."""
        self.directory = bytearray()
        """Their entries in the directory at the end of the file; `finish` adds the checksums."""
        self._entries: list[int] = []
        first = 0 if after is None else len(after)
        for number, size in enumerate(sizes, first):
            self.add(f"data/{number}", size)

    def __len__(self) -> int:
        return len(self.sizes)

    def add(self, name: str, size: int) -> None:
        """Add a record at the end."""
        path, large, begin = f"archive/{name}".encode(), size > NEEDS_ZIP64, self.end
        version, stated = VERSIONS[large], FULL if large else 0
        extra = struct.pack("<HHQQ", ZIP64, 16, 0, 0) if large else b""
        padding = -(begin + _LOCAL.size + len(path) + len(extra) + 4) % ALIGNMENT
        extra += b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
        fields = (b"PK\3\4", version, DESCRIBED_AFTER, 0, 0, DATE, 0, stated, stated, len(path), len(extra))
        header = _LOCAL.pack(*fields) + path + extra
        start = begin + len(header)
        self.sizes.append(size)
        self.starts.append(start)
        self.headers.append(header)
        self.end = start + size + (_AFTER_64 if large else _AFTER).size
        self._entries.append(len(self.directory))
        self.directory += _entry(path, size, begin)

    def finish(self, number: int, checksum: int) -> bytes:
        """Note the checksum of a content; return what comes after it in the file."""
        size = self.sizes[number]
        _CHECKSUM.pack_into(self.directory, self._entries[number] + _CHECKSUM_AT, checksum)
        return (_AFTER_64 if size > NEEDS_ZIP64 else _AFTER).pack(b"PK\7\10", checksum, size, size)

    def write(self, file: Sink, number: int, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a record whose content comes in pieces."""
        checksum = 0
        file.write(self.headers[number])
        for piece in pieces:
            checksum = crc32(piece, checksum)
            file.write(piece)
        file.write(self.finish(number, checksum))


def _entry(path: bytes, size: int, begin: int) -> bytes:
    """Return the entry of a record in the directory, without its checksum."""
    wide = [number for number in (size, size, begin) if number > NEEDS_ZIP64]
    extra = struct.pack(f"<HH{len(wide)}Q", ZIP64, 8 * len(wide), *wide) if wide else b""
    version = VERSIONS[bool(wide)]
    shown, place = (FULL if number > NEEDS_ZIP64 else number for number in (size, begin))
    fields = (DESCRIBED_AFTER, 0, 0, DATE, 0, shown, shown, len(path), len(extra), 0, 0, 0, 0o600 << 16, place)
    return _CENTRAL.pack(b"PK\1\2", UNIX | version, version, *fields) + path + extra


def end_of_archive(groups: Sequence[Records]) -> bytes:
    """Return the directory of all records, in the order of these groups; the file ends with it."""
    directory = b"".join(group.directory for group in groups)
    count, begin = sum(map(len, groups)), max(group.end for group in groups)
    end = b""
    if count >= 0xFFFF or begin > NEEDS_ZIP64 or len(directory) > NEEDS_ZIP64:
        version = VERSIONS[True]
        rest = (UNIX | version, version, 0, 0, count, count, len(directory), begin)
        end = _END_64.pack(b"PK\6\6", _END_64.size - 12, *rest)
        end += _LOCATOR.pack(b"PK\6\7", 0, begin + len(directory), 1)
        count, begin = 0xFFFF, FULL
    shown = min(len(directory), FULL)
    return directory + end + _END.pack(b"PK\5\6", 0, 0, count, count, shown, begin, 0)
