"""The lines of ``metrics.jsonl`` as series whose size is bounded, however long the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ignite_hooks.results.better import Rule, rule_for
from ignite_hooks.writers.interface import full_name

MAX_POINTS = 320
"""Maximum number of points of a series; above it, points become means of several values, with their range."""


class CurvePoint(NamedTuple):
    """A value, or the mean of consecutive values with their range."""

    step: float
    value: float
    low: float
    high: float
    size: int = 1
    """Number of values."""


class Mark(NamedTuple):
    """One value and its position."""

    value: float
    step: int
    epoch: int | None


@dataclass
class Series:
    """The points of one number, with its exact lowest, highest and last value."""

    name: str
    kind: str = "train"
    points: list[CurvePoint] = field(default_factory=list)
    lowest: Mark | None = None
    highest: Mark | None = None
    last: Mark | None = None
    not_finite: int = 0
    """Number of values that were NaN or infinite."""
    each: int = 1
    """Number of values in each point except the last."""

    def add(self, value: float, step: int, epoch: int | None) -> None:
        """Add a value; it replaces those of its step and of later steps."""
        if self.last is not None and step <= self.last.step:
            self._cut(step)
        mark = self.last = Mark(value, step, epoch)
        if self.lowest is None or value < self.lowest.value:
            self.lowest = mark
        if self.highest is None or value > self.highest.value:
            self.highest = mark
        new = CurvePoint(step, value, value, value)
        if self.points and self.points[-1].size < self.each:
            self.points[-1] = merged_points(self.points[-1], new)
        else:
            self.points.append(new)
        if len(self.points) > MAX_POINTS:
            pairs = zip(self.points[::2], [*self.points[1::2], None], strict=False)
            self.points = [one if other is None else merged_points(one, other) for one, other in pairs]
            self.each *= 2

    def _cut(self, step: int) -> None:
        self.points = [point for point in self.points if point.step < step]
        # If the best value was cut, the range of the remaining points replaces it; its exact epoch is lost.
        self.lowest, self.highest = (m if m and m.step < step else None for m in (self.lowest, self.highest))
        for point in self.points:
            if self.lowest is None or point.low < self.lowest.value:
                self.lowest = Mark(point.low, int(point.step), None)
            if self.highest is None or point.high > self.highest.value:
                self.highest = Mark(point.high, int(point.step), None)

    @property
    def size(self) -> int:
        """The number of values."""
        return sum(point.size for point in self.points)

    @property
    def rule(self) -> Rule | None:
        """The rule of what is better, greater or less, if the name implies one."""
        try:
            return rule_for(self.name)
        except ValueError:
            return None

    @property
    def best(self) -> Mark | None:
        """The best value, if there is a rule of what is better."""
        return {"greater": self.highest, "less": self.lowest, None: None}[self.rule]


def merged_points(one: CurvePoint, other: CurvePoint) -> CurvePoint:
    """Return two points as one in their middle."""
    size = one.size + other.size
    step = (one.step * one.size + other.step * other.size) / size
    value = (one.value * one.size + other.value * other.size) / size
    return CurvePoint(step, value, min(one.low, other.low), max(one.high, other.high), size)


@dataclass
class CurveSet:
    """Every number of a run by its full name: ``loss``, ``val/loss``, ``time/iter``.

    Example:
        >>> history = CurveSet()
        >>> history.add([{"step": 1, "epoch": 1, "kind": "val", "scalars": {"accuracy": 0.5}}])
        >>> history.series["val/accuracy"].best
        Mark(value=0.5, step=1, epoch=1)
    """

    series: dict[str, Series] = field(default_factory=dict)
    since: float = 0.0
    """Time of the start of the run: earlier lines belong to another run."""
    of_classes: set[str] = field(default_factory=set)
    """The numbers of single classes, which are drawn as bars and not as a chart for each."""

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add lines; skip values that are not one number."""
        for row in rows:
            step, epoch, kind = row.get("step"), row.get("epoch"), str(row.get("kind", "train"))
            scalars = row.get("scalars")
            if not isinstance(step, int) or not isinstance(scalars, Mapping) or row.get("time", 0) < self.since:
                continue
            for name, value in scalars.items():
                full = full_name(str(name), kind)
                if value is None and name in row.get("nonfinite", ()):
                    self.series.setdefault(full, Series(full, kind)).not_finite += 1
                elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                    series = self.series.setdefault(full, Series(full, kind))
                    series.add(float(value), step, epoch if isinstance(epoch, int) else None)

    @property
    def last_step(self) -> int:
        """The highest step of any series."""
        return max((one.last.step for one in self.series.values() if one.last), default=0)

    def learning(self) -> dict[str, list[Series]]:
        """Return the series of losses and metrics by quantity: ``loss`` with ``val/loss``, all ``grad_norm/...``."""
        shown = (series for series in self.series.values() if series.name not in self.of_classes)
        return _grouped(s for s in shown if not is_rate(s.name) and not is_resource(s))

    def rates(self) -> list[Series]:
        """Return the series of learning rates."""
        return [series for series in self.series.values() if is_rate(series.name)]

    def resources(self) -> dict[str, list[Series]]:
        """Return the series of time, memory and the machine by name."""
        return {series.name: [series] for series in self.series.values() if is_resource(series)}

    def evaluated(self) -> list[Series]:
        """Return the series of evaluations, tests last; those of the training if nothing was evaluated."""
        learnt = [series for group in self.learning().values() for series in group]
        return sorted((s for s in learnt if s.kind in ("val", "test")), key=lambda s: s.kind == "test") or learnt


RESOURCES = ("time", "memory", "share", "system", "profile", "throughput", "gpu", "cpu", "disk", "network")


def is_rate(name: str) -> bool:
    """Return whether a number is a learning rate."""
    return name == "lr" or name.startswith("lr/")


def is_resource(series: Series) -> bool:
    """Return whether a number is about time, memory or the machine."""
    first = series.name.partition("/")[0]
    return series.kind == "system" or first in RESOURCES or series.name in ("iters_per_s", "samples_per_s", "memory_mb")


def _grouped(series: Iterable[Series]) -> dict[str, list[Series]]:
    # Imported here because it imports numpy, which listing the hooks does not need.
    from ignite_hooks.drawing.training_curves import plain_name

    groups: dict[str, list[Series]] = {}
    for one in series:
        family = one.name.rpartition("/")[0] if one.kind == "train" else ""
        groups.setdefault(family or plain_name(one.name), []).append(one)
    return groups


def logged_shares(history: CurveSet) -> Iterator[tuple[str, float]]:
    """Yield the share of each phase of an iteration, weighted by the length of the iterations."""
    long = history.series.get("time/iter", Series("time/iter"))
    weight = {point.step: point.value * point.size for point in long.points}
    for name, series in history.series.items():
        if name.startswith("share/"):
            parts = [(point.value, weight.get(point.step, 0.0)) for point in series.points]
            whole = sum(size for _, size in parts)
            share = sum(value * size for value, size in parts) / whole if whole else 0.0
            if share > 0:
                yield name.removeprefix("share/"), share
