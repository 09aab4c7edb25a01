"""How far a run in a tracker has got, so that a resumed run sends nothing twice and shifts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ignite_hooks.writers.trackers.spool import TrackerRecord


@dataclass(frozen=True)
class Delivered:
    """The last step of what a tracker, or a spool, has of a run.

    Example:
        >>> there = Delivered({"loss": 20}, numbers=-1, others=20)
        >>> record = TrackerRecord("scalars", 20, 0.0, {"loss": 1.0, "lr": 0.1})
        >>> there.missing_of(record).content
        {'lr': 0.1}
    """

    names: Mapping[str, int] = field(default_factory=dict)
    """The last step of each number, and of each picture and histogram, by name."""
    numbers: int = -1
    """The last step of numbers that are not named."""
    others: int = -1
    """The last step of pictures and histograms that are not named."""
    steps: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """All steps of numbers of which a tracker tells all, by name: there may be gaps, which are filled."""

    @classmethod
    def of(cls, records: Iterable[TrackerRecord]) -> Delivered:
        """Return how far records have got."""
        names: dict[str, int] = {}
        for record in records:
            for name in _names(record):
                names[name] = max(record.step, names.get(name, -1))
        return cls(names)

    def missing_of(self, record: TrackerRecord) -> TrackerRecord | None:
        """Return the part of a record that is not there yet; texts, settings and files are replaced, not repeated."""
        if record.what == "scalars":
            left = {name: value for name, value in record.content.items() if not self._has(name, record.step)}
            return replace(record, content=left) if left else None
        is_there = any(record.step <= self.names.get(name, self.others) for name in _names(record))
        return None if is_there else record

    def _has(self, name: str, step: int) -> bool:
        return step in self.steps[name] if name in self.steps else step <= self.names.get(name, self.numbers)


def _names(record: TrackerRecord) -> list[str]:
    if record.what == "scalars":
        return list(record.content)
    named = ("image", "histogram", "result", "media")
    return [f"{record.what} {record.content['name']}"] if record.what in named else []
