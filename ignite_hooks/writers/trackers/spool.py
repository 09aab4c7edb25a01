"""Records for a tracker, and the file in which they wait while it cannot be reached."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ignite_hooks.system import host
from ignite_hooks.writers.media import TYPES

SUFFIX = ".spool"
UNSENT = ".unsent"
"""The suffix of a mark beside a tracker's own file that is not known to have arrived."""
KINDS = frozenset(
    {"scalars", "image", "histogram", "text", "config", "artifact", "values", "result", "source", "media"}
)
MOST_BYTES = 4_000_000
"""Bytes of the file after which a batch ends, as pictures take more room in memory."""
HELD = 2.0
"""Seconds for which another process may hold the file, which takes moments; a run does not wait for one that hangs."""


@dataclass(frozen=True)
class TrackerRecord:
    """One thing to deliver: its kind, its step, its time and its content."""

    what: str
    """One of ``KINDS``: the method of a tracker that delivers it."""
    step: int
    time: float
    content: Mapping[str, Any]

    def to_json(self) -> str:
        """Return the record as a line of text, pictures included."""
        content = {key: _packed(value) for key, value in self.content.items()}
        row = {"what": self.what, "step": self.step, "time": self.time, "content": content}
        return json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()

    @classmethod
    def from_json(cls, row: Mapping[str, Any], *, pictures: bool = True) -> TrackerRecord:
        """Return the record of a line that was read.

        Args:
            row: The content of the line.
            pictures: Whether pictures are unpacked, which takes longer than everything else.
        """
        content = {key: _unpacked(value) if pictures else value for key, value in row["content"].items()}
        return cls(row["what"], row["step"], row["time"], content)


def suffix_of(record: TrackerRecord) -> str:
    """Return the suffix of a sound or a video; raise `ValueError` if it is none, as a spool may come from anywhere."""
    suffix = record.content["suffix"]
    if suffix not in TYPES:
        raise ValueError(f"{suffix!r} is no sound or video")
    return str(suffix)


@dataclass(frozen=True)
class _Place:
    """A place between two lines of a file: in bytes, and how many records are before it."""

    offset: int = 0
    records: int = 0


class Spool:
    """A file of records: a header that names the writer, then one line for each record, in order.

    Lines are only added, also those that say how far the records have arrived, so a process may be killed at any moment
    and another may read meanwhile, or remove the file when all in it has arrived. What was read is not read again.
    Several threads may use it. The file exists only while records wait in it.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.header = dict(header or {})
        self._lock = threading.Lock()
        self._size = 0
        """The size of the file."""
        self._known = 0
        """How much of it is known."""
        self._records = 0
        """The number of records in what is known."""
        self._said: dict[str, Any] = {}
        """The header of the file."""
        self._arrived = self._taken = self._next = _Place()
        """The ends of what has arrived, of what the tracker has taken in this process, and of the last batch."""

    def append(self, records: Sequence[TrackerRecord], *, taken: bool = False) -> None:
        """Add records at the end.

        Args:
            records: The records.
            taken: Whether the tracker has taken them, in this process.
        """
        if not records:
            return
        lines = [record.to_json() for record in records]
        with self._lock, self._held():
            self._learn()
            if not self._size:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lines.insert(0, json.dumps(self.header))
            # Else there are some before that the tracker has not taken.
            taken = taken and self._is_all_taken
            self._write(lines)
            if taken:
                self._learn()
                self._taken = self._next = _Place(self._known, self._records)

    def say(self, **words: Any) -> None:
        """Add to the header of the file; later values replace earlier ones."""
        self.header |= words
        with self._lock, self._held():
            if self.path.exists():
                self._learn()
                self._write([json.dumps(words)])

    def next_batch(self, size: int = 500) -> list[TrackerRecord]:
        """Return the next records in order, some hundred at most; the same ones until they are ``took``."""
        with self._lock:
            self._learn()
            batch: list[TrackerRecord] = []
            place = self._taken
            for line, end in self._lines(place.offset, self._known):
                row = _row(line)
                is_record = row is not None and "what" in row
                place = _Place(end, place.records + is_record)
                if row is not None and is_record:
                    batch.append(TrackerRecord.from_json(row))
                if len(batch) == size or end - self._taken.offset > MOST_BYTES:
                    break
            self._next = place
            if not batch:
                self._taken = place
            return batch

    def took(self) -> None:
        """Say that the tracker has taken the last batch; a later process sends again what has not arrived."""
        self._taken = self._next

    def forget_taken(self) -> bool:
        """Say that what was taken has arrived; return whether nothing is left, and remove the file then."""
        with self._lock, self._held() as file:
            self._learn()
            if self._is_all_taken:
                self._remove(file)
                return True
            if self._taken != self._arrived:
                self._write([json.dumps({"arrived": self._taken.offset, "records": self._taken.records})])
                self._arrived = self._taken
            return False

    def remove(self) -> None:
        """Remove the file, because all records have arrived."""
        with self._lock, self._held() as file:
            self._learn()
            self._remove(file)

    def read_header(self) -> dict[str, Any]:
        """Return the header: the writer of the records and its settings."""
        with self._lock:
            self._learn()
            return dict(self._said)

    def records(self, *, pictures: bool = True) -> Iterator[TrackerRecord]:
        """Yield the records that are not known to have arrived.

        Args:
            pictures: Whether pictures are unpacked, which takes longer than everything else.
        """
        with self._lock:
            self._learn()
            begin, end = self._arrived.offset, self._known
        for line, _ in self._lines(begin, end):
            row = _row(line)
            if row is not None and "what" in row:
                yield TrackerRecord.from_json(row, pictures=pictures)

    def __iter__(self) -> Iterator[TrackerRecord]:
        return self.records()

    def __len__(self) -> int:
        with self._lock:
            self._learn()
            return max(0, self._records - self._arrived.records)

    # -- the file -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _held(self) -> Iterator[IO[bytes] | None]:
        """Hold the file, if there is one: no other process adds to it or removes it meanwhile."""
        with contextlib.ExitStack() as stack:
            file: IO[bytes] | None = None
            with contextlib.suppress(OSError):
                while file is None:
                    found = stack.enter_context(self.path.open("rb+"))
                    if host.lock_within(found.fileno(), HELD):
                        # A worker that is forked meanwhile has the file open for as long as it lives.
                        stack.callback(_unlock, found)
                    if host.is_open_file(found.fileno(), self.path):
                        file = found
                    else:
                        found.close()  # another has removed it
            yield file

    def _remove(self, file: IO[bytes] | None) -> None:
        # What another process is about to write its first line into is there, and empty.
        if file is not None and self._size:
            host.remove_open(file, self.path)
        self._forget_file()

    def _forget_file(self) -> None:
        self._size = self._known = self._records = 0
        self._said = {}
        self._arrived = self._taken = self._next = _Place()

    @property
    def _is_all_taken(self) -> bool:
        return self._taken.offset == self._known or self._taken.records == self._records

    def _learn(self) -> None:
        """Read what has come to the file since; numbers of records are counted without reading them."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            self._forget_file()
            return
        if size < self._known:
            self._forget_file()
        self._size = size
        for line, end in self._lines(self._known, size):
            is_record = line.startswith(b'{"what": ') and line.endswith(b"}}\n")
            row = None if is_record else _row(line)
            if row is None and not is_record and not line.endswith(b"\n"):
                return  # torn, or still being written
            self._known = end
            if row is not None and "arrived" in row:
                self._set_arrived(row)
            elif row is not None and "what" not in row:
                self._said |= row
            else:
                self._records += row is not None or is_record

    def _set_arrived(self, row: Mapping[str, Any]) -> None:
        offset, records = row["arrived"], row.get("records")
        # A spool may come from anywhere.
        if type(offset) is int and type(records) is int and 0 <= offset <= self._known and records >= 0:
            self._arrived = _Place(offset, records)
            if self._taken.offset < offset:
                self._taken = self._next = self._arrived

    def _write(self, lines: Sequence[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if not self._ends_whole():
            text = f"\n{text}"
        with self.path.open("ab") as file:
            file.write(text.encode("utf-8"))

    def _ends_whole(self) -> bool:
        if not self._size:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, io.SEEK_END)
            return file.read() == b"\n"

    def _lines(self, begin: int, end: int) -> Iterator[tuple[bytes, int]]:
        """Yield the lines between two places, each with its end."""
        if begin >= end:
            return
        with self.path.open("rb") as file:
            file.seek(begin)
            while begin < end and (line := file.readline()):
                begin += len(line)
                yield line, begin


def _unlock(file: IO[bytes]) -> None:
    if not file.closed:
        host.unlock(file.fileno())


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None if it is torn, because a process was killed or a disk full, or foreign."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and ("what" not in row or _is_record(row)) else None


def _is_record(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a valid record; its kind is the name of a method that will be called."""
    number = (int, float)
    return (
        isinstance(row["what"], str)
        and row["what"] in KINDS
        and isinstance(row.get("step"), int)
        and isinstance(row.get("time"), number)
        and isinstance(row.get("content"), dict)
    )


def _packed(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if not hasattr(value, "dtype"):
        return value
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(value).save(buffer, "PNG")
    return {"png": base64.b64encode(buffer.getvalue()).decode()}


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return base64.b64decode(value["bytes"])
    if not (isinstance(value, dict) and value.keys() == {"png"}):
        return value
    import numpy
    from PIL import Image

    return numpy.asarray(Image.open(io.BytesIO(base64.b64decode(value["png"]))))
