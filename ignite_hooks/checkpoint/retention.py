"""Which files may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ignite_hooks.store.manifest import Entry


def to_delete(entries: Iterable[Entry], keep: int, protected_names: Collection[str] = ()) -> list[Entry]:
    """The periodic checkpoints beyond the newest ``keep``, oldest first.

    Newest means the highest iteration: file times change when files are copied or a clock jumps. Best, last,
    manual, exception and published checkpoints neither count nor go. A protected one stays: the one resumed from.

    Args:
        entries: all files.
        keep: how many periodic ones stay; -1 for all.
        protected_names: files that stay whatever happens.
    """
    if keep < -1:
        raise ValueError(f"keep is {keep}, expected -1 (all) or the number of files to keep")
    if keep == -1:
        return []
    periodic = [entry for entry in entries if entry.kind == "periodic"]
    oldest_first = sorted(periodic, key=lambda entry: entry.iteration)
    beyond = oldest_first[: max(0, len(periodic) - keep)]
    return [entry for entry in beyond if entry.name not in protected_names]
