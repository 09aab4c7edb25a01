"""Several runs side by side: what they reached, and in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ignite_hooks.results.better import rule_for
from ignite_hooks.results.recorded_run import RecordedRun, read_run
from ignite_hooks.text import duration, number

MOST_RUNS: Final = 50
ABSENT: Final = "–"
"""What stands for a value that a run does not have."""


@dataclass(frozen=True)
class Comparison:
    """Runs side by side; their names are as short as they can be while they differ."""

    runs: Sequence[RecordedRun]

    @cached_property
    def names(self) -> list[str]:
        """The names of the runs: those of their folders, with the folders above where these are equal."""
        return short_names([run.path for run in self.runs])

    @cached_property
    def metrics(self) -> list[str]:
        """The names of the metrics that any of the runs ranks; without any, of those that are evaluated."""
        ranked = {name: None for run in self.runs for name in run.best}
        last = {name: None for run in self.runs for name in run.metrics if "/" in name and not is_resource(name)}
        return [*ranked] or [*last] or (["loss"] if any("loss" in run.metrics for run in self.runs) else [])

    def rows(self, sort: str | None = None) -> list[dict[str, str]]:
        """Return a row for each run: its state, how long it took, and its best and last metrics.

        Args:
            sort: The metric by which the best run comes first; by default the order in which they were given.
        """
        order = range(len(self.runs)) if sort is None else self.order(sort)
        return [self._row(index) for index in order]

    def order(self, metric: str) -> list[int]:
        """Return the runs by their best value of a metric, best first, those without it last."""
        if metric not in self.metrics:
            known = ", ".join(self.metrics) or "none"
            raise KeyError(f"no run has the metric {metric!r}; they have: {known}")
        sign = -1.0 if is_greater_better(metric) else 1.0
        values = [self._best(run, metric) for run in self.runs]
        return sorted(range(len(self.runs)), key=lambda i: (values[i] is None, sign * (values[i] or 0.0)))

    def _row(self, index: int) -> dict[str, str]:
        run = self.runs[index]
        row = {"run": self.names[index], "state": run.state}
        row["epochs"] = str(run.result.epochs) if run.result is not None else ABSENT
        row["took"] = duration(run.result.seconds) if run.result is not None else ABSENT
        for metric in self.metrics:
            best, last = self._best(run, metric), self._last(run, metric)
            epoch = run.best[metric].epoch if metric in run.best else None
            row[f"best {metric}"] = ABSENT if best is None else _with_epoch(best, epoch)
            if metric in self._with_last:
                row[f"last {metric}"] = ABSENT if last is None else number(last)
        return row

    @cached_property
    def _with_last(self) -> list[str]:
        return [metric for metric in self.metrics if any(self._last(run, metric) is not None for run in self.runs)]

    @staticmethod
    def _best(run: RecordedRun, metric: str) -> float | None:
        if metric in run.best:
            return run.best[metric].value
        values = [value for _, value in run.history.values(metric) if value == value]
        return None if not values else max(values) if is_greater_better(metric) else min(values)

    @staticmethod
    def _last(run: RecordedRun, metric: str) -> float | None:
        found = {name.replace("/", "_"): one.value for name, one in run.metrics.items()}
        wanted = metric.replace("/", "_")
        return next((found[name] for name in (wanted, f"val_{wanted}", f"test_{wanted}") if name in found), None)

    def differences(self, what: str) -> list[dict[str, str]]:
        """Return a row for each value in which the runs differ.

        Args:
            what: A field of `RunResult`: ``configuration``, ``environment``, ``bits`` or ``plan``.
        """
        read = _calls if what == "plan" else _flat
        flat = [dict(read(getattr(run.result, what) if run.result is not None else {})) for run in self.runs]
        rows = []
        for key in dict.fromkeys(key for values in flat for key in values):
            values = [values.get(key, ABSENT) for values in flat]
            if len(set(values)) > 1:
                rows.append({"": key, **dict(zip(self.names, values, strict=True))})
        return rows


def read_runs(folders: Sequence[str | Path]) -> Comparison:
    """Read the runs of these folders; a folder that only holds folders of runs stands for all of them.

    Raises:
        FileNotFoundError: With the folder in which no run has written.
        ValueError: Without two runs, and with more than fifty.
    """
    runs = [run for folder in folders for run in _runs_of(Path(folder).expanduser())]
    unique = list({run.path.resolve(): run for run in runs}.values())
    if not 2 <= len(unique) <= MOST_RUNS:
        raise ValueError(f"2 to {MOST_RUNS} runs can be compared, not {len(unique)}")
    return Comparison(unique)


def _runs_of(folder: Path) -> Iterator[RecordedRun]:
    try:
        yield read_run(folder)
    except FileNotFoundError:
        below = [child for child in sorted(folder.iterdir()) if child.is_dir()] if folder.is_dir() else []
        found = [run for child in below for run in _run_if_any(child)]
        if not found:
            raise
        yield from found


def _run_if_any(folder: Path) -> Iterator[RecordedRun]:
    try:
        yield read_run(folder)
    except FileNotFoundError:
        return


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of these paths that are all different.

    Example:
        >>> short_names([Path("a/run"), Path("b/run"), Path("b/x")])
        ['a/run', 'b/run', 'b/x']
    """
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def is_greater_better(metric: str) -> bool:
    """Return whether greater is better; where the name does not say so, it is not."""
    try:
        return rule_for(metric) == "greater"
    except ValueError:
        return False


def is_resource(name: str) -> bool:
    """Return whether a number is about time, memory or the machine."""
    return name.partition("/")[0] in ("system", "memory", "gpu", "time", "share", "profile", "throughput")


def _with_epoch(value: float, epoch: int | None) -> str:
    return number(value) if epoch is None else f"{number(value)} (epoch {epoch})"


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a tree by their dotted places; entries of lists by their name or type, else by number."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _flat(below, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple) and value:
        labels: dict[str, int] = {}
        for index, below in enumerate(value):
            label = _label(below, index)
            labels[label] = labels.get(label, 0) + 1
            again = f"#{labels[label]}" if labels[label] > 1 else ""
            yield from _flat(below, f"{place}[{label}{again}]")
    else:
        yield place, ABSENT if value in ({}, [], ()) else str(value)


def _label(entry: Any, index: int) -> str:
    return str((entry.get("name") or entry.get("type") or index) if isinstance(entry, Mapping) else index)


def _calls(plan: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield how often and with which priority each hook is called at each point."""
    point = ""
    for row in plan:
        point = str(row.get("point") or point)
        yield f"{point}: {row.get('hook')}", f"{row.get('how often')}, priority {row.get('priority')}"
