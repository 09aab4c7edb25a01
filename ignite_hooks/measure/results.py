"""Results of an evaluation that are more than a number: matrices, vectors, curves and tables, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

Kind = Literal["matrix", "vector", "curves", "table"]

MOST_NUMBERS: Final = 50
"""A vector with more entries becomes its mean and its lowest entries, beside the whole of it."""
LOWEST_SHOWN: Final = 10


@dataclass(frozen=True)
class Result:
    """One result of an evaluation; what it holds are plain types, so that files and trackers can have it.

    Args:
        kind: matrix (``values``: rows of numbers, ``labels``), vector (``values``, ``labels``), curves (``lines``: two
            lists of numbers by label, ``axes``) or table (``columns``, ``rows``).
        content: What it holds.
        numbers: Numbers that belong to it, such as the area below a curve.
    """

    kind: Kind
    content: Mapping[str, Any]
    numbers: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as one mapping."""
        return {"kind": self.kind, **self.content}

    def labelled(self, labels: Sequence[str]) -> Result:
        """Return it with the names of the classes, where it has one entry for each of them and no names yet."""
        if self.kind in ("matrix", "vector") and not self.content.get("labels"):
            if len(self.content["values"]) == len(labels):
                return Result(self.kind, {**self.content, "labels": list(labels)}, self.numbers)
        elif self.kind == "curves":
            lines = self.content["lines"]
            named = {_name_of(label, labels): line for label, line in lines.items()}
            numbers = {_entry_of(name, labels): value for name, value in self.numbers.items()}
            content = {**self.content, "lines": named}
            if "totals" in content:
                content["totals"] = {_name_of(label, labels): one for label, one in content["totals"].items()}
            return Result(self.kind, content, numbers)
        elif self.kind == "table" and self.content.get("of_classes"):
            places = [i for i, name in enumerate(self.content["columns"]) if name in self.content["of_classes"]]
            rows = [
                [_name_of(c, labels) if i in places else c for i, c in enumerate(row)] for row in self.content["rows"]
            ]
            return Result(self.kind, {**self.content, "rows": rows}, self.numbers)
        return self

    def of_classes(self) -> list[str]:
        """Return the entries that are about one class.

        Example:
            >>> vector([0.5, 1.0], ["cat", "dog"]).of_classes()
            ['cat', 'dog']
        """
        return [name for name in self.entries() if "/" in name or (self.kind == "vector" and name not in self.numbers)]

    def entries(self) -> dict[str, float]:
        """Return the numbers of it by the names that they have below its own: ``cat`` of ``iou/cat``.

        Example:
            >>> vector([0.5, 1.0], ["cat", "a/b"]).entries()
            {'cat': 0.5, 'a%2Fb': 1.0}
        """
        own = dict(self.numbers)
        if self.kind != "vector":
            return own
        values = self.content["values"]
        labels = self.content.get("labels") or [str(place) for place in range(len(values))]
        named = dict(zip(map(escaped_label, labels), values, strict=True))
        if len(named) <= MOST_NUMBERS:
            return {**named, **own}
        known = {name: value for name, value in named.items() if math.isfinite(value)}
        lowest = sorted(known, key=lambda name: known[name])[:LOWEST_SHOWN]
        mean = sum(known.values()) / len(known) if known else math.nan
        return {**{name: known[name] for name in lowest}, **own, "mean": mean}


def matrix(values: Any, labels: Sequence[str] = ()) -> Result:
    """Return a square of numbers: a row for each true class, a column for each predicted one."""
    return Result("matrix", {"values": _plain(values), "labels": list(labels)})


def vector(values: Any, labels: Sequence[str] = ()) -> Result:
    """Return one number for each class, or for each name."""
    return Result("vector", {"values": [float(value) for value in _plain(values)], "labels": list(labels)})


def curves(
    lines: Mapping[str, tuple[Any, Any]],
    axes: tuple[str, str],
    *,
    numbers: Mapping[str, float] | None = None,
    note: str = "",
    totals: Mapping[str, tuple[int, int]] | None = None,
) -> Result:
    """Return curves by label, each the places on both axes.

    Args:
        lines: The places by label; a label that is a number is that of a class.
        axes: What the axes are.
        numbers: Numbers that belong to the curves, such as areas.
        note: How they were measured, where that matters.
        totals: The samples of each class, and all samples, of curves of precision over recall.
    """
    content: dict[str, Any] = {"lines": {str(name): [_plain(x), _plain(y)] for name, (x, y) in lines.items()}}
    content |= {"axes": list(axes), **({"totals": {n: list(t) for n, t in totals.items()}} if totals else {})}
    return Result("curves", {**content, **({"note": note} if note else {})}, dict(numbers or {}))


def rows_of(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, of_classes: Sequence[str] = (), note: str = ""
) -> Result:
    """Return a table; columns that hold numbers of classes show their names."""
    content: dict[str, Any] = {"columns": list(columns), "rows": [list(row) for row in rows]}
    content |= {"of_classes": list(of_classes)} if of_classes else {}
    return Result("table", {**content, **({"note": note} if note else {})})


def escaped_label(label: object) -> str:
    """Return the name of a class as a part of the name of a number, which ``/`` and control characters would break.

    Example:
        >>> escaped_label("cat/dog"), escaped_label("50 %"), escaped_label("a\\nb")
        ('cat%2Fdog', '50 %25', 'a%0Ab')
    """
    return "".join(
        f"%{ord(one):02X}" if one in "/%" or ord(one) < 32 or 0x7F <= ord(one) < 0xA0 else one for one in str(label)
    )


def result_of(value: Any, kind_of_metric: str = "") -> Result | None:
    """Return a value of a metric as a result; None for a number, and for what has no such form.

    Args:
        value: What a metric has computed.
        kind_of_metric: The name of the metric's class, which tells the curves of Ignite, torchmetrics and torcheval.

    Example:
        >>> result_of([[3, 1], [0, 2]]).kind, result_of({"a": 0.5, "b": 1}).content["labels"], result_of(0.5)
        ('matrix', ['a', 'b'], None)
    """
    if isinstance(value, Result):
        return value
    if kind_of_metric in KNOWN_CURVES and isinstance(value, (list, tuple)) and len(value) == 3:
        return _of_curves(value, *KNOWN_CURVES[kind_of_metric])
    if isinstance(value, Mapping):
        return _of_mapping(value)
    shape = _shape(value)
    if shape is None or not all(shape):
        return None
    if len(shape) == 2 and shape[0] == shape[1] > 1:
        return matrix(value)
    return vector(value) if len(shape) == 1 else None


_ROC: Final = ((0, 1), ("false positive rate", "true positive rate"))
_PRECISION_RECALL: Final = ((1, 0), ("recall", "precision"))
_OF_OTHERS: Final = ("", "Binary", "Multiclass", "Multilabel")
KNOWN_CURVES: Final[Mapping[str, tuple[tuple[int, int], tuple[str, str]]]] = {
    "RocCurve": _ROC,
    **{f"{kind}ROC": _ROC for kind in _OF_OTHERS},
    **{f"{kind}PrecisionRecallCurve": _PRECISION_RECALL for kind in _OF_OTHERS},
    **{f"{kind}BinnedPrecisionRecallCurve": _PRECISION_RECALL for kind in _OF_OTHERS},
}
"""By class, which of the three values are drawn over which, and what they are. Each has one curve, or one by class."""
MOST_POINTS: Final = 1000
LINES_SHOWN: Final = 10
"""Of more classes, the curves with the least area below them are shown."""


def _of_curves(value: Sequence[Any], places: tuple[int, int], axes: tuple[str, str]) -> Result | None:
    xs, ys = (_lists(value[place]) for place in places)
    several = bool(xs) and isinstance(xs[0], list)
    pairs = list(zip(xs, ys, strict=True)) if several else [(xs, ys)]
    lines = [[(x, y) for x, y in zip(*pair, strict=True) if math.isfinite(x + y)] for pair in pairs]
    shown = [place for place, line in enumerate(lines) if line]
    if len(shown) > LINES_SHOWN:
        shown = sorted(sorted(shown, key=lambda place: _area(lines[place]))[:LINES_SHOWN])
    named = {str(place) if several else "": _thinned(*map(list, zip(*lines[place], strict=True))) for place in shown}
    note = f"the {LINES_SHOWN} of {len(lines)} classes with the least area" if len(lines) > len(shown) else ""
    return curves(named, axes, note=note) if named else None


def _lists(values: Any) -> list[Any]:
    """Return the numbers of one curve, or a list of them for each class."""
    if hasattr(type(values), "tolist"):
        return list(values.tolist())
    return [_lists(one) if hasattr(type(one), "tolist") or isinstance(one, (list, tuple)) else one for one in values]


def _area(line: Sequence[tuple[float, float]]) -> float:
    return sum(abs(x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(line))


def _thinned(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return at most as many points of a curve as can be seen, the ends among them."""
    if len(x) <= MOST_POINTS:
        return list(x), list(y)
    places = sorted({round(place * (len(x) - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)})
    return [x[place] for place in places], [y[place] for place in places]


def _of_mapping(value: Mapping[Any, Any]) -> Result | None:
    numbers = {str(name): number for name, one in value.items() if (number := _number(one)) is not None}
    if numbers and len(numbers) == len(value):
        return vector(list(numbers.values()), list(numbers))
    nested = {str(name): one for name, one in value.items() if isinstance(one, Mapping)}
    columns = list(dict.fromkeys(str(key) for one in nested.values() for key in one))
    if not nested or not columns:
        return None
    rows = [[name, *(_cell(one.get(key)) for key in columns)] for name, one in nested.items()]
    return rows_of(["", *columns], rows)


def _cell(value: Any) -> Any:
    number = _number(value)
    return number if number is not None else "" if value is None else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    shape = _shape(value)
    return float(value) if shape in ((), (1,)) and hasattr(type(value), "item") else None


def _shape(value: Any) -> tuple[int, ...] | None:
    # By the class, as an instance of an Ignite `Metric` answers any name.
    if hasattr(type(value), "shape") and hasattr(type(value), "tolist"):
        return None if "bool" in str(value.dtype) or value.dtype == "O" else tuple(value.shape)
    if not isinstance(value, (list, tuple)) or not value:
        return None
    if all(isinstance(one, (list, tuple)) and len(one) == len(value[0]) for one in value):
        inner = [number for one in value for number in one]
        return (len(value), len(value[0])) if all(_number(one) is not None for one in inner) else None
    return (len(value),) if all(_number(one) is not None for one in value) else None


def _plain(values: Any) -> Any:
    """Return numbers as lists of Python, NaN and infinities as they are."""
    if hasattr(type(values), "tolist"):
        return values.tolist()
    return [_plain(one) if isinstance(one, (list, tuple)) else _number(one) for one in values]


def _name_of(label: Any, labels: Sequence[str]) -> Any:
    """Return the name of a class given by its number; any other text as it is."""
    place = int(label) if isinstance(label, int) or (isinstance(label, str) and label.isdecimal()) else -1
    return labels[place] if 0 <= place < len(labels) else label


def _entry_of(name: str, labels: Sequence[str]) -> str:
    """Return a number's name with the class it ends with: ``auc/3`` is ``auc/cat``."""
    start, slash, end = name.rpartition("/")
    return f"{start}{slash}{escaped_label(_name_of(end, labels))}" if slash else name
