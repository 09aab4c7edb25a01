"""The checkpoints of a run as a table, from which they can be loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.store.manifest import Entry, Manifest
from ignite_hooks.store.names import SET_ASIDE
from ignite_hooks.text import did_you_mean, html_table, number, size, table


class CheckpointTable(tuple[Entry, ...]):
    """The checkpoints of a run in the order of their iterations; it prints as a table."""

    paths: Mapping[Path, Entry]
    """The same by their paths."""
    ranked: Collection[str]
    """The metrics that the run ranks."""

    @classmethod
    def of(cls, folder: Path, ranked: Collection[str] = ()) -> CheckpointTable:
        """Return the checkpoints that the manifests in a folder and the folders in it list."""
        found = dict(_entries(folder))
        made = cls(sorted(found.values(), key=lambda entry: (entry.iteration, entry.name)))
        made.paths, made.ranked = found, ranked
        return made

    def load(self, name: str) -> dict[str, Any]:
        """Return the content of a checkpoint, verified, by its file name; no code in it is run."""
        for path, entry in getattr(self, "paths", {}).items():
            if entry.name == name:
                return FolderStore(path.parent).load(path)
        names = [entry.name for entry in self]
        raise CheckpointError(
            f"there is no {name} among {', '.join(names) or 'no checkpoints'}{did_you_mean(name, names)}"
        )

    def rows(self) -> list[dict[str, str]]:
        """Return the columns of the table, a mapping for each checkpoint."""
        return [
            {
                "file": entry.name,
                "kind": entry.kind,
                "epoch": str(entry.epoch),
                "iteration": str(entry.iteration),
                "size": size(entry.size),
                "score": ", ".join(f"{name} {number(value)}" for name, value in self._scores(entry).items()),
            }
            for entry in self
        ]

    def _scores(self, entry: Entry) -> Mapping[str, float]:
        """Return the values of the metrics that are ranked; without any, of all."""
        return {name: entry.metrics[name] for name in self.ranked if name in entry.metrics} or entry.metrics

    def __repr__(self) -> str:
        return table(self.rows()) if self else "no checkpoints"

    def _repr_html_(self) -> str:
        return html_table(self.rows()) if self else "no checkpoints"


def _entries(folder: Path) -> Iterator[tuple[Path, Entry]]:
    below = (
        [child for child in folder.iterdir() if child.is_dir() and not child.is_symlink()] if folder.is_dir() else []
    )
    # What a run before this one has left in the same folder is not of this run.
    for place in (folder, *sorted(child for child in below if not child.name.startswith(SET_ASIDE))):
        try:
            entries = Manifest.load(place).entries
        except (CheckpointError, OSError):
            continue  # resuming says what is wrong with a manifest
        yield from ((place / entry.name, entry) for entry in entries)
