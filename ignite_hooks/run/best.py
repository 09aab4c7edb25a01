"""The record of the best score of each metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ignite_hooks.results.better import Rule, is_better
from ignite_hooks.text import html_table, number


@dataclass(frozen=True, slots=True)
class Record:
    """The best score of one metric, when it was reached, and the checkpoint that holds it."""

    score: float
    step: int
    epoch: int
    file: str | None = None


class Best(Mapping[str, Record]):
    """The one record of best: metric -> `Record`, shared by evaluation, checkpoint and early stopping.

    >>> best = Best()
    >>> best.offer("accuracy", 0.971, step=700, epoch=7, rule="greater")
    True
    >>> best
    best(accuracy=0.971 at epoch 7)
    """

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._rules: dict[str, Rule] = {}

    def watch(self, metric: str, rule: Rule) -> None:
        """Declare the rule of a metric; raise an error if the opposite has been declared."""
        declared = self._rules.setdefault(metric, rule)
        if declared != rule:
            raise ValueError(f"metric {metric!r} is ranked by {declared!r} and {rule!r}: choose one")

    def offer(self, metric: str, score: float, *, step: int, epoch: int, rule: Rule) -> bool:
        """Rank a score; return whether the record of this metric now belongs to this step, whoever offered it."""
        self.watch(metric, rule)
        record = self._records.get(metric)
        if is_better(float(score), record.score if record else None, rule):
            record = self._records[metric] = Record(float(score), step, epoch)
        return record is not None and record.step == step

    def name_file(self, metric: str, file: str | None) -> None:
        """Record the checkpoint that holds the best of `metric`."""
        self._records[metric] = replace(self._records[metric], file=file)

    def rule(self, metric: str) -> Rule:
        return self._rules[metric]

    def state_dict(self) -> dict[str, Any]:
        records = {metric: asdict(record) for metric, record in self._records.items()}
        return {metric: {"rule": rule, "record": records.get(metric)} for metric, rule in self._rules.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the records; leave out those that were ranked by the opposite of a rule declared here."""
        self._records = {}
        for metric, entry in state.items():
            if self._rules.setdefault(metric, entry["rule"]) == entry["rule"] and entry["record"]:
                self._records[metric] = Record(**entry["record"])

    def __getitem__(self, metric: str) -> Record:
        return self._records[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def _repr_html_(self) -> str:
        rows = [
            {
                "metric": metric,
                "best": number(one.score),
                "epoch": str(one.epoch),
                "iteration": str(one.step),
                "file": one.file or "",
            }
            for metric, one in self.items()
        ]
        return html_table(rows) if rows else "nothing has been ranked yet"

    def __repr__(self) -> str:
        parts = (f"{metric}={record.score:.6g} at epoch {record.epoch}" for metric, record in self.items())
        return f"best({', '.join(parts)})"
