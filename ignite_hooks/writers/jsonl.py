"""Numbers as lines of JSON."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from ignite_hooks.writers.convert import fetched
from ignite_hooks.writers.interface import Writer

_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Kept: ``json.dumps`` with settings makes an encoder for every line."""


class JsonlWriter(Writer):
    """Appends one line of JSON per `write_scalars` to a file, opened at the first write.

    A line is `{"time", "step", "epoch", "kind", "scalars"}`. JSON has no NaN and no infinity: such a scalar
    is null and its name is listed under `nonfinite`. Every line reaches the system in one write, so there is
    nothing to flush, and only the last line can be torn. Pictures and the configuration are not kept.
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

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Nothing: the file holds numbers."""

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Nothing: the file holds numbers."""

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def resumed(self, step: int) -> None:
        """Drop what will be written again."""
        self.cut(step)

    def began_anew(self) -> None:
        """Move what earlier runs have left to a file beside it; an evaluation before the first step stays."""
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
        """Drop the lines after `step`, and a torn last one: what follows will be written again."""
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
            _mend(self.path)
            self._file = FileIO(self.path, "a")
        try:
            written = self._file.write(line)
        except OSError:
            self.close()
            raise
        if written != len(line):
            # The disk is full. Reopening mends the line that was torn.
            self.close()
            raise OSError(f"{self.path}: only {written} of {len(line)} bytes could be written")


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a file that may still be written to: a torn last line is left out."""
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
    """Reads a file that is being written to, line by line as they come; what is there is read once.

    Args:
        path: The file, which need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._at = 0
        self._file: tuple[int, int] | None = None

    def new(self) -> tuple[list[dict[str, Any]], bool]:
        """The lines that are new, and whether these are all: the file is another, or was cut back."""
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
                continue  # a line that was torn by a full disk, and another after it
            if isinstance(row, dict):
                rows.append(row)
        return rows, again


def _jsonable(value: Any, name: str, nonfinite: list[str]) -> Any:
    """`value` as JSON can hold it; `name` is added to `nonfinite` where a number becomes null."""
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
        # Only the last line can be torn by us; what else is no JSON is not ours to delete.
        return not last
    return not (isinstance(row, dict) and isinstance(row.get("step"), int) and row["step"] > step)


def _mend(path: Path) -> None:
    """Make the file end with a whole line, so that the next one does not continue a torn one."""
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
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
