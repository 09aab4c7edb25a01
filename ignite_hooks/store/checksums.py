"""Checksums of files, as ``algorithm:digits``: XXH3 guards against accidents, sha256 is what others can compare."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from io import BufferedReader
from typing import Final, Literal, Protocol

import xxhash

Algorithm = Literal["xxh3_128", "sha256"]

FAST: Final[Algorithm] = "xxh3_128"
PIECE: Final = 4 * 1024 * 1024
_DIGITS: Final = {"xxh3_128": 32, "sha256": 64}


class Hash(Protocol):
    """A checksum that is being calculated."""

    def update(self, data: memoryview, /) -> object: ...

    def hexdigest(self) -> str: ...


_MAKE: Final[Mapping[str, Callable[[], Hash]]] = {"xxh3_128": xxhash.xxh3_128, "sha256": hashlib.sha256}


def new_hash(algorithm: str) -> Hash:
    """Return an empty checksum."""
    return _MAKE[algorithm]()


def marked(algorithm: str, digits: str) -> str:
    """Return a checksum with its algorithm.

    Example:
        >>> marked("sha256", "12ab")
        'sha256:12ab'
    """
    return f"{algorithm}:{digits}"


def algorithm_of(checksum: str) -> str:
    """Return the algorithm of a checksum."""
    return checksum.partition(":")[0]


def digits_of(checksum: str) -> str:
    """Return the hexadecimal digits of a checksum."""
    return checksum.partition(":")[2]


def is_checksum(value: object) -> bool:
    """Return whether a value is a checksum of a known algorithm.

    Example:
        >>> is_checksum("xxh3_128:" + 32 * "0"), is_checksum("md5:" + 32 * "0"), is_checksum(64 * "0")
        (True, False, False)
    """
    if not isinstance(value, str):
        return False
    count = _DIGITS.get(algorithm_of(value), 0)
    return bool(count and re.fullmatch(rf"[0-9a-f]{{{count}}}", digits_of(value)))


def checksum_of(file: BufferedReader, algorithm: str = FAST) -> str:
    """Return the checksum of an open file, from where it is."""
    found, room = new_hash(algorithm), bytearray(PIECE)
    view = memoryview(room)
    while size := file.readinto(room):
        found.update(view[:size])
    return marked(algorithm, found.hexdigest())


def checksum_of_bytes(data: bytes, algorithm: str = FAST) -> str:
    """Return the checksum of some bytes."""
    found = new_hash(algorithm)
    found.update(memoryview(data))
    return marked(algorithm, found.hexdigest())
