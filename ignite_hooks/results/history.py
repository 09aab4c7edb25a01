"""The numbers of a run as rows: read from ``metrics.jsonl`` when asked for, so that a long run keeps none in memory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ignite_hooks.text import html_table, number
from ignite_hooks.writers.interface import full_name
from ignite_hooks.writers.jsonl import Tail

FILE_NAME: Final = "metrics.jsonl"
OWN: Final = ("step", "epoch", "split", "time")
"""The entries of every row; a metric of such a name is ``metric/step``."""
MAX_SHOWN: Final = 20
"""Number of rows that a notebook shows."""


class History(list[dict[str, Any]]):
    """The rows of a run, each a mapping with ``step``, ``epoch``, ``split``, ``time`` and the metrics of that moment.

    ``split`` is ``train``, ``val`` or the name of another evaluator. It is a list; ``to_pandas()`` makes a table of it.

    Example:
        >>> rows = History.of([{"time": 0.0, "step": 4, "epoch": 1, "kind": "val", "scalars": {"loss": 0.5}}])
        >>> rows
        [{'step': 4, 'epoch': 1, 'split': 'val', 'time': 0.0, 'loss': 0.5}]
        >>> rows.values("val/loss")
        [(4, 0.5)]
    """

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> History:
        """Return the rows of these lines of ``metrics.jsonl``; what is not a line of ours is left out."""
        return cls(row for line in lines if (row := _row(line)) is not None)

    @classmethod
    def read(cls, folder: Path) -> History:
        """Return the rows of a run, which may still be going on; without a file there are none."""
        return cls.of(Tail(folder / FILE_NAME).new()[0])

    @classmethod
    def read_end(cls, folder: Path, most: int = 65_536) -> History:
        """Return the last rows of a run, from at most this many bytes of its file."""
        try:
            with (folder / FILE_NAME).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return cls()
        return cls.of(line for text in lines if isinstance(line := _parsed(text), Mapping))

    def names(self) -> list[str]:
        """Return the full names of all numbers, in the order in which they first appear: ``loss``, ``val/loss``."""
        found = {full_name(name, row["split"]): None for row in self for name in row if name not in OWN}
        return [*found]

    def values(self, name: str) -> list[tuple[int, float]]:
        """Return the steps and values of one number by its full name; values that are not finite are NaN."""
        found = []
        for row in self:
            for key, value in row.items():
                if key not in OWN and full_name(key, row["split"]) == name:
                    found += [(row["step"], value)] if isinstance(value, float | int) else []
        return found

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each entry."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas; the rows themselves are a list") from error
        return pandas.DataFrame(list(self))

    def _repr_html_(self) -> str:
        """Return a table of the first and last rows, for notebooks."""
        columns = list(dict.fromkeys([*OWN[:3], *(name for row in self for name in row if name not in OWN)]))
        half = MAX_SHOWN // 2
        chosen = [*self[:half], *self[-half:]] if len(self) > MAX_SHOWN else self
        rows = [{name: _cell(row.get(name)) for name in columns} for row in chosen]
        note = f"<p>{len(self) - len(chosen)} rows in between are not shown</p>" if len(chosen) < len(self) else ""
        return html_table(rows) + note if rows else "no numbers yet"


def _cell(value: Any) -> str:
    return "" if value is None else number(value) if isinstance(value, float) else str(value)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None  # the first line is cut, the last may be torn


def _row(line: Mapping[str, Any]) -> dict[str, Any] | None:
    scalars, step, split = line.get("scalars"), line.get("step"), line.get("kind")
    if not isinstance(scalars, Mapping) or not isinstance(step, int) or not isinstance(split, str):
        return None
    nonfinite = line.get("nonfinite")
    unknown = set(nonfinite) if isinstance(nonfinite, list) else set()
    row: dict[str, Any] = {"step": step, "epoch": line.get("epoch"), "split": split, "time": line.get("time")}
    for name, value in scalars.items():
        key = f"metric/{name}" if name in OWN else name
        row[key] = math.nan if value is None and name in unknown else value
    return row
