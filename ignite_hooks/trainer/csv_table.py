"""A table in a CSV file: numbers in, a class or a number to learn; what cannot be used is named with its line."""

from __future__ import annotations

import codecs
import io
import math
import re
from collections.abc import Sequence
from csv import Error, reader
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor
from torch.utils.data import TensorDataset

from ignite_hooks.errors import SettingError
from ignite_hooks.text import did_you_mean, shown
from ignite_hooks.trainer.datasets import Data

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_WHOLE = re.compile(r"[-+]?\d+")
MOST_CLASSES = 50
"""Whole numbers with more values than this are numbers, not classes."""
MISSING = ("", "nan", "na", "n/a", "null", "none", "?", "-")
SEPARATORS = {";": "a semicolon", "\t": "a tab", "|": "a bar", ",": "a comma"}
Share = Annotated[float, Ge(0), Lt(1)]


def csv(
    path: Path,
    target: str,
    val_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2,
    test_fraction: Share = 0.0,
    seed: Annotated[int, Ge(0)] = 0,
    task: Literal["classification", "regression"] | None = None,
    ignore: Sequence[str] = (),
    separator: str = ",",
    decimal: Literal[".", ","] = ".",
    encoding: str = "utf-8",
) -> Data:
    """Read a table with a line of names and numbers below it. Inputs are scaled to the mean and deviation of training.

    Args:
        path: The CSV file.
        target: Name of the column to learn.
        val_fraction: Share of the rows that are kept for validation.
        test_fraction: Share of the rows that are kept for the test.
        seed: Seed of the choice of these rows.
        task: By default classification of text and of up to 50 different whole numbers, otherwise regression.
        ignore: Names of columns to leave out.
        separator: The character between two cells.
        decimal: The decimal sign of numbers.
        encoding: The encoding of the file.
    """
    table = _Table(Path(path), separator, decimal, encoding)
    columns = table.columns(target, ignore)
    inputs = torch.tensor([table.numbers(name) for name in columns], dtype=torch.float64).T
    answers, classes = _answers(table, target, task)
    parts = _split(len(table.rows), val_fraction, test_fraction, seed)
    mean, deviation = inputs[parts["train"]].mean(0), inputs[parts["train"]].std(0, correction=0)
    # A column with one value tells nothing, and is left at zero.
    scaled = ((inputs - mean) / torch.where(deviation > 0, deviation, 1)).float()
    data: dict[str, Any] = {name: TensorDataset(scaled[rows], answers[rows]) for name, rows in parts.items()}
    return Data(
        **data,
        task="regression" if classes is None else "classification",
        num_classes=1 if classes is None else len(classes),
        shape=(len(columns),),
        class_names=classes,
    )


class _Table:
    """The cells of a file, as text."""

    def __init__(self, path: Path, separator: str, decimal: str, encoding: str) -> None:
        self.path, self.decimal = path, decimal
        if len(separator) != 1 or separator in '"\r\n' or separator == decimal:
            raise SettingError("separator", f"one character between two cells is needed, not {shown(separator)}")
        text = _text(path, encoding)
        self.names: list[str] = []
        self.rows: list[tuple[int, list[str]]] = []
        """Every row with the number of its last line."""
        lines = reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
        try:
            for row in lines:
                cells = [cell.strip() for cell in row]
                if not any(cells) and len(cells) < 2:
                    continue
                if not self.names:
                    self.names = cells
                    self._check_names(lines.line_num, separator)
                    continue
                if len(cells) != len(self.names):
                    self.fail(lines.line_num, f"has {len(cells)} cells, and the first line names {len(self.names)}")
                self.rows.append((lines.line_num, cells))
        except Error as error:
            self.fail(lines.line_num, f"is no CSV: {error}")
        if len(self.rows) < 2:
            raise SettingError("path", f"{path} has {len(self.rows)} rows below its line of names: two are needed")

    def fail(self, line: int, what: str) -> None:
        raise SettingError("path", f"{self.path}, line {line}: {what}")

    def _check_names(self, line: int, separator: str) -> None:
        twice = sorted({name for name in self.names if self.names.count(name) > 1 and name})
        if len(self.names) == 1:
            other = next((sign for sign in SEPARATORS if sign != separator and sign in self.names[0]), None)
            if other is not None:
                hint = f"its cells seem to be separated by {SEPARATORS[other]}: set separator: {other!r}"
                self.fail(line, f"has one column: {hint}")
        if twice:
            self.fail(line, f"names {', '.join(map(repr, twice))} more than once: rename the columns")
        if "" in self.names:
            self.fail(line, f"has no name for column {self.names.index('') + 1}: give it one")
        if all(_NUMBER.fullmatch(name) for name in self.names):
            self.fail(line, "holds numbers: the first line must name the columns")

    def columns(self, target: str, ignore: Sequence[str]) -> list[str]:
        """Return the names of the inputs; refuse those that hold no numbers."""
        for setting, name in [("target", target), *(("ignore", name) for name in ignore)]:
            if name not in self.names:
                hint = did_you_mean(name, self.names) or f"; there are {', '.join(self.names)}"
                raise SettingError(setting, f"{self.path} has no column {shown(name)}{hint}")
        found = [name for name in self.names if name != target and name not in ignore]
        if not found:
            raise SettingError("ignore", f"{self.path} has no column left to learn from")
        words = {name: found_in for name in found if (found_in := self.first_word(name)) is not None}
        if words:
            line, word = next(iter(words.values()))
            what, them = ("column", "it") if len(words) == 1 else ("columns", "them")
            left_out = [*ignore, *words]
            decimal = " set decimal: ','," if re.fullmatch(r"[-+]?\d+,\d+", word) and self.decimal == "." else ""
            raise SettingError(
                "path",
                f"{self.path}, line {line}: {shown(word)} is no number, so the {what} "
                f"{', '.join(map(repr, words))} cannot be used: turn {them} into numbers,{decimal} or set "
                f"ignore: [{', '.join(left_out)}]",
            )
        return found

    def first_word(self, name: str) -> tuple[int, str] | None:
        at = self.names.index(name)
        cells = ((line, row[at]) for line, row in self.rows)
        return next(((line, text) for line, text in cells if text.lower() not in MISSING and not self._is(text)), None)

    def _is(self, text: str) -> bool:
        return _NUMBER.fullmatch(self._plain(text)) is not None

    def _plain(self, text: str) -> str:
        return text if self.decimal == "." else text.replace(",", ".") if "." not in text else ""

    def texts(self, name: str) -> list[str]:
        """Return the cells of a column; refuse those that are empty."""
        at = self.names.index(name)
        gaps = [(line, row[at]) for line, row in self.rows if row[at].lower() in MISSING]
        if gaps:
            line, text = gaps[0]
            more = f", and in {len(gaps) - 1} more rows" if len(gaps) > 1 else ""
            cell = f"holds {shown(text)}" if text else "is empty"
            self.fail(line, f"the cell of column {name!r} {cell}{more}: fill it, or remove the row")
        return [row[at] for _, row in self.rows]

    def numbers(self, name: str) -> list[float]:
        """Return the numbers of a column."""
        values = [float(self._plain(text)) for text in self.texts(name)]
        for (line, _), value in zip(self.rows, values, strict=True):
            if not abs(value) < 1e30:
                self.fail(line, f"the number of column {name!r} is too large")
        return values

    def is_numeric(self, name: str) -> bool:
        """Return whether a column holds numbers only."""
        return all(self._is(text) for text in self.texts(name))


def _text(path: Path, encoding: str) -> str:
    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        raise SettingError("encoding", f"Python knows no encoding {shown(encoding)}: utf-8, latin-1 ...") from None
    if not path.is_file():
        raise SettingError("path", f"there is no file {path.absolute()}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingError("path", f"{path} cannot be read: {error.strerror}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not codec.startswith("utf-16"):
        raise SettingError("encoding", f"{path} is written in UTF-16: set encoding: utf-16")
    try:
        return content.decode("utf-8-sig" if codec == "utf-8" else codec)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        hint = "set encoding: latin-1, or whatever it was saved in"
        raise SettingError("encoding", f"{path}, line {line}: is not {encoding}: {hint}") from None
    except (LookupError, TypeError, ValueError):
        raise SettingError("encoding", f"{shown(encoding)} is no encoding of text: utf-8, latin-1 ...") from None


def _answers(table: _Table, target: str, task: str | None) -> tuple[Tensor, list[str] | None]:
    """Return what is to be learned, and the names of the classes if it is one of them."""
    texts = table.texts(target)
    values = {*texts}
    if task is None:
        numeric = table.is_numeric(target)
        few = len(values) <= MOST_CLASSES and all(map(_WHOLE.fullmatch, values))
        task = "regression" if numeric and not few else "classification"
    if task == "regression":
        if not table.is_numeric(target):
            line, word = table.first_word(target) or (1, "")
            table.fail(line, f"{shown(word)} in column {target!r} is no number: set task: classification")
        return torch.tensor(table.numbers(target), dtype=torch.float32)[:, None], None
    order = sorted(values, key=lambda text: (float(text), text) if _NUMBER.fullmatch(text) else (math.inf, text))
    if len(order) < 2:
        raise SettingError("target", f"every row of {table.path} has the class {shown(order[0])}: two are needed")
    return torch.tensor([order.index(text) for text in texts]), order


def _split(count: int, val_fraction: float, test_fraction: float, seed: int) -> dict[str, Tensor]:
    """Return the rows of each part, in the order of the file."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    val = max(1, round(val_fraction * count))
    test = max(1, round(test_fraction * count)) if test_fraction else 0
    if val + test >= count:
        raise SettingError("val_fraction", f"validation and test would take all {count} rows: take less")
    parts = {"val": order[:val], "test": order[val : val + test], "train": order[val + test :]}
    return {name: rows.sort().values for name, rows in parts.items() if len(rows)}
