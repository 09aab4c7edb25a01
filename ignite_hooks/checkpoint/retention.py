"""Retention: rules that say which files go once a new one is there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ignite_hooks.store.names import HASH, HASH_DIGITS

if TYPE_CHECKING:
    from ignite_hooks.store.interface import Retire
    from ignite_hooks.store.manifest import Entry, Kind


class RetentionRule(Protocol):
    """Chooses what goes, from the files of a folder in the order in which they were saved, the new one included."""

    def to_delete(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the files that go."""


@dataclass(frozen=True)
class KeepLast:
    """Keep the newest periodic checkpoints.

    Newest means the highest iteration: file times change when files are copied or a clock jumps. Best, last,
    manual, exception and published checkpoints neither count nor go.

    Args:
        count: How many stay; -1 for all.
        template: The names that count, with {} for the number; by default all do.
        by_epoch: Whether the number in the template is the epoch; otherwise it is the iteration.
    """

    count: int
    template: str | None = None
    by_epoch: bool = True

    def __post_init__(self) -> None:
        if self.count < -1:
            raise ValueError(f"count is {self.count}, expected -1 (all) or the number of files to keep")

    def to_delete(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the periodic checkpoints beyond the newest, oldest first."""
        if self.count == -1:
            return []
        periodic = [entry for entry in entries if entry.kind == "periodic" and self._counts(entry)]
        return sorted(periodic, key=lambda entry: entry.iteration)[: max(0, len(periodic) - self.count)]

    def _counts(self, entry: Entry) -> bool:
        if self.template is None:
            return True
        name = self.template.format(entry.epoch if self.by_epoch else entry.iteration)
        return entry.name in (name, folder_name(name))


@dataclass(frozen=True)
class KeepBest:
    """Keep the best files of one metric.

    Files that no ranking holds are left from before the run was resumed; they go once all of the ranking is there.

    Args:
        word: The metric, as file names spell it.
        kept: The names in the rankings of the run, of this metric and of all others in the folder.
        reached: The iteration that the run has reached.
        dropped: The names that have just fallen out of the ranking.
    """

    word: str
    kept: frozenset[str]
    reached: int
    dropped: frozenset[str] = frozenset()

    def to_delete(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the files that are not the best any more; what is further than the run stays."""
        listed = {entry.name for entry in entries}
        complete = all(name in listed for name in self.kept if self._is_ours(name))
        outranked = [entry for entry in entries if entry.kind == "best" and entry.name not in self.kept]
        return [
            entry
            for entry in outranked
            if entry.name in self.dropped
            or (complete and entry.iteration <= self.reached and self._is_ours(entry.name))
        ]

    def _is_ours(self, name: str) -> bool:
        return re.fullmatch(rf"best_{re.escape(self.word)}_(epoch|iter)_[0-9]+(\.pth)?", name) is not None


@dataclass(frozen=True)
class Replace:
    """Keep only the file that was saved last, of a kind or of a name.

    Args:
        kind: The kind of the files.
        name: The name, where other files of the kind are none of its business; it may hold ``{hash}``.
    """

    kind: Kind
    name: str | None = None

    def to_delete(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return all but the last."""
        same_kind = [entry for entry in entries if entry.kind == self.kind]
        return [entry for entry in same_kind if self.name is None or re.fullmatch(_pattern(self.name), entry.name)][:-1]


@dataclass(frozen=True)
class DropFailures:
    """Drop what failing runs saved and the run has passed since.

    Args:
        reached: The iteration that the run has reached; by default that of the file that was saved last.
    """

    reached: int | None = None

    def to_delete(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the exception checkpoints that are no further than the run."""
        reached = entries[-1].iteration if self.reached is None else self.reached
        return [entry for entry in entries if entry.kind == "exception" and entry.iteration <= reached]


def folder_name(name: str) -> str:
    """Return the name of the folder that a sharded checkpoint gets in place of a file of this name.

    Example:
        >>> folder_name("epoch_3.pth"), folder_name("before_lr_0.1")
        ('epoch_3', 'before_lr_0.1')
    """
    return name.removesuffix(".pth").removesuffix(".pt")


def _pattern(name: str) -> str:
    return f"[0-9a-f]{{{HASH_DIGITS}}}".join(re.escape(part) for part in name.split(HASH))


def retired_by(rules: Collection[RetentionRule], protected: Collection[str] = ()) -> Retire | None:
    """Return the rules as the function that a store takes; None where there are none.

    Args:
        rules: What goes is what any of them deletes.
        protected: The names of files that stay in any case, such as the one that the run was resumed from.
    """
    return (lambda entries: to_delete(entries, rules, protected)) if rules else None


def to_delete(entries: Sequence[Entry], rules: Iterable[RetentionRule], protected: Collection[str] = ()) -> list[Entry]:
    """Return what any of the rules deletes and nothing protects."""
    return [entry for rule in rules for entry in rule.to_delete(entries) if entry.name not in protected]
