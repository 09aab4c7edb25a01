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
from typing import Any

from ignite_hooks.writers.media import TYPES

SUFFIX = ".spool"
UNSENT = ".unsent"
"""The suffix of a mark beside a tracker's own file that is not known to have arrived."""
KINDS = frozenset(
    {"scalars", "image", "histogram", "text", "config", "artifact", "values", "result", "source", "media"}
)


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
    def from_json(cls, row: Mapping[str, Any]) -> TrackerRecord:
        """Return the record of a line that was read."""
        content = {key: _unpacked(value) for key, value in row["content"].items()}
        return cls(row["what"], row["step"], row["time"], content)


def suffix_of(record: TrackerRecord) -> str:
    """Return the suffix of a sound or a video; raise `ValueError` if it is none, as a spool may come from anywhere."""
    suffix = record.content["suffix"]
    if suffix not in TYPES:
        raise ValueError(f"{suffix!r} is no sound or video")
    return str(suffix)


class Spool:
    """A file of records: a header that names the writer, then one line for each record, in order.

    Several threads may use it. The file exists only while records wait in it.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.header = dict(header or {})
        self.added = 0
        """The number of records that this object has added to the file."""
        self.delivered = 0
        """The number of records in the file that were delivered by way of ``batches``."""
        self._lock = threading.Lock()

    def append(self, records: Sequence[TrackerRecord]) -> None:
        """Add records at the end."""
        if not records:
            return
        with self._lock:
            new = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(self.header)] if new else []
            lines += [record.to_json() for record in records]
            text = "".join(f"{line}\n" for line in lines)
            if not new and not _ends_whole(self.path):
                text = f"\n{text}"
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
            self.added += len(records)

    def say(self, **words: Any) -> None:
        """Add to the header of the file; later values replace earlier ones."""
        self.header |= words
        with self._lock:
            if self.path.exists():
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(words) + "\n")

    def batches(self, size: int = 500) -> Iterator[list[TrackerRecord]]:
        """Yield the records in order; a batch counts as delivered when the next one is asked for."""
        done, batch = 0, []
        for record in self:
            batch.append(record)
            if len(batch) == size:
                yield batch
                done, batch = done + len(batch), []
                self.delivered = done
        if batch:
            yield batch
            self.delivered = done + len(batch)

    def forget_delivered(self) -> bool:
        """Drop the records that were delivered by way of ``batches``; return whether none is left."""
        with self._lock:
            rows = self._rows()
            left = [row for row in rows if "what" in row][self.delivered :]
            self.delivered = 0
            if not left:
                self.path.unlink(missing_ok=True)
                return True
            header: dict[str, Any] = {}
            for row in rows:
                header |= row if "what" not in row else {}
            temporary = self.path.with_name(f".{self.path.name}.tmp")
            lines = [json.dumps(row, ensure_ascii=False) for row in (header, *left)]
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="backslashreplace")
            temporary.replace(self.path)
            return False

    def remove(self) -> None:
        """Remove the file, because all records have arrived."""
        with self._lock:
            self.path.unlink(missing_ok=True)

    def read_header(self) -> dict[str, Any]:
        """Return the header: the writer of the records and its settings."""
        found: dict[str, Any] = {}
        for row in self._rows():
            found |= row if "what" not in row else {}
        return found

    def __iter__(self) -> Iterator[TrackerRecord]:
        return (TrackerRecord.from_json(row) for row in self._rows() if "what" in row)

    def __len__(self) -> int:
        return sum(1 for row in self._rows() if "what" in row)

    def _rows(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        rows = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            # A line may be torn because a process was killed or a disk was full.
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict) and ("what" not in row or _is_record(row))]


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


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, io.SEEK_END)
        if not file.tell():
            return True
        file.seek(-1, io.SEEK_END)
        return file.read() == b"\n"


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
