"""Numbers as lines of JSON, and their readers."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ignite_hooks.system import host
from ignite_hooks.writers.convert import fetched, without_pictures
from ignite_hooks.writers.interface import Writer, full_name
from ignite_hooks.writers.media import FOLDER, Media

_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""One encoder for all lines: ``json.dumps`` with settings would make one for each."""


LARGEST_LINE = 16_384
"""A result with more letters than this has a file of its own."""


class JsonlWriter(Writer):
    """Appends a line of JSON for each call with numbers to a file, which is opened at the first write.

    A line is ``{"time", "step", "epoch", "kind", "scalars"}``. JSON has no NaN and no infinity: such a scalar is null,
    and its name is listed under ``nonfinite``. A result that is more than a number has a line with ``name`` and
    ``result``. Every line is one write to the system, so there is nothing to flush, and only the last line can be
    torn. Sounds and videos become files in ``media`` beside it. Pictures and the configuration are not written.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._file: FileIO | None = None

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.write_scalars({name: value}, step)

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        nonfinite: list[str] = []
        plain = {name: _jsonable(value, name, nonfinite) for name, value in fetched(scalars).items()}
        line: dict[str, Any] = {"time": self._clock(), "step": step, "epoch": epoch, "kind": kind}
        line["scalars"] = plain
        if nonfinite:
            line["nonfinite"] = list(dict.fromkeys(nonfinite))
        text = _ENCODE(line)
        # A lone surrogate cannot be encoded; escaped with a backslash it is JSON again.
        self._append(text.encode("utf-8", "backslashreplace") + b"\n")

    def write_result(
        self,
        name: str,
        result: Mapping[str, Any],
        step: int,
        *,
        kind: str = "val",
        epoch: int | None = None,
        draw: Callable[[], Any] | None = None,
    ) -> None:
        """Write a line with the result; a large one goes into a file of its own, and the line names it."""
        nonfinite: list[str] = []
        content = _jsonable(without_pictures(result), name, nonfinite)
        line: dict[str, Any] = {"time": self._clock(), "step": step, "epoch": epoch, "kind": kind, "name": name}
        text = _ENCODE(content)
        if len(text) > LARGEST_LINE:
            plain = re.sub(r"[^\w.-]", "_", full_name(name, kind)).strip(".") or "result"
            path = self.path.with_name("results") / f"{plain}_iter_{step}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, text.encode("utf-8", "backslashreplace"))
            line["file"] = f"{path.parent.name}/{path.name}"
        else:
            line["result"] = content
        self._append(_ENCODE(line).encode("utf-8", "backslashreplace") + b"\n")

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a line with the table."""
        table = {"kind": "table", "columns": list(columns), "rows": [list(row) for row in rows]}
        self.write_result(name, table, step, kind="train")

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Write nothing: the file holds numbers."""

    def write_media(self, name: str, media: Media, step: int) -> None:
        """Write a file in the folder ``media``; one of the same name and step is replaced."""
        parts = [re.sub(r"[^\w.-]", "_", part).strip(".") for part in name.split("/")]
        plain = "/".join(part for part in parts if part) or media.kind
        path = self.path.with_name(FOLDER) / f"{plain}_{step:06}.{media.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, media.data)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write nothing: the file holds numbers."""

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def resumed(self, step: int) -> None:
        """Drop the lines that will be written again."""
        self.cut(step)

    def began_anew(self) -> None:
        """Move the lines of earlier runs to a file beside this one; those before the first step stay."""
        self.close()
        if not self.path.exists() or all(_stays(line, 0, last=False) for line in self.path.read_bytes().splitlines()):
            return
        stem, suffix = self.path.stem, self.path.suffix
        taken = [
            path.stem.removeprefix(f"{stem}.earlier-") for path in self.path.parent.glob(f"{stem}.earlier-*{suffix}")
        ]
        number = max((int(known) for known in taken if known.isdigit()), default=0) + 1
        self.path.replace(self.path.with_name(f"{stem}.earlier-{number}{suffix}"))

    def cut(self, step: int) -> None:
        """Drop the lines after a step, and a torn last line."""
        self.close()
        if not self.path.exists():
            return
        lines = self.path.read_bytes().splitlines(keepends=True)
        kept = [line for index, line in enumerate(lines) if _stays(line, step, last=index == len(lines) - 1)]
        if kept != lines:
            _replace(self.path, b"".join(kept))

    def _append(self, line: bytes) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _repair(self.path)
            self._file = FileIO(self.path, "a")
        try:
            written = self._file.write(line)
        except OSError:
            self.close()
            raise
        if written != len(line):
            # The disk is full. Opening the file again repairs the torn line.
            self.close()
            raise OSError(f"{self.path}: only {written} of {len(line)} bytes could be written")


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a file that may still be written to, without a torn last line."""
    lines = Path(path).read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}: line {number} is not JSON: {error}") from error
    return rows


class Tail:
    """Reads a file while it is being written; every line is read once.

    Args:
        path: The file, which may not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._at = 0
        self._file: tuple[int, int] | None = None

    def new(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the new lines, and whether reading began again because the file was replaced or cut."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            again = self._at > 0
            self._at, self._file = 0, None
            return [], again
        with file:
            status = os.fstat(file.fileno())
            same = self._file == (status.st_dev, status.st_ino) and status.st_size >= self._at
            again = not same and self._at > 0
            self._at = self._at if same else 0
            self._file = (status.st_dev, status.st_ino)
            file.seek(self._at)
            content = file.read()
        whole = content.rpartition(b"\n")[0]
        self._at += len(whole) + bool(whole)
        rows = []
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # torn when the disk was full, and written on afterwards
            if isinstance(row, dict):
                rows.append(row)
        return rows, again


def _jsonable(value: Any, name: str, nonfinite: list[str]) -> Any:
    """Return a value as JSON can hold it; add ``name`` to ``nonfinite`` if a number becomes null."""
    if type(value) is not float and hasattr(type(value), "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        nonfinite.append(name)
        return None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item, name, nonfinite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item, name, nonfinite) for item in value]
    return str(value)


def _stays(line: bytes, step: int, *, last: bool) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        # We tear only the last line. Other lines that are not JSON are not ours to delete.
        return not last
    return not (isinstance(row, dict) and isinstance(row.get("step"), int) and row["step"] > step)


def _repair(path: Path) -> None:
    """Complete or remove a torn last line, so that the next line does not continue it."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        content = file.read()
        whole, newline, tail = content.rpartition(b"\n")
        if not tail:
            return
        try:
            json.loads(tail)
        except ValueError:
            file.truncate(len(whole) + len(newline))
        else:
            file.write(b"\n")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            host.sync(file.fileno())
        host.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    host.sync_folder(path.parent)
