"""What a place for checkpoints can do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ignite_hooks.store.manifest import Entry, Kind


class Store(Protocol):
    """A place for checkpoints; everything that fails raises `CheckpointError`."""

    def open(self) -> Self:
        """Make ready for writing; refused where another run writes."""

    def save(
        self,
        name: str,
        state: Mapping[str, Any],
        *,
        kind: Kind,
        epoch: int,
        iteration: int,
        metrics: Mapping[str, float] | None = None,
    ) -> Path:
        """Keep a state under a name; when it returns, the state survives a crash."""

    def delete(self, entries: Iterable[Entry]) -> None:
        """Delete these files, if they are ours."""

    def prune(self, keep: int, protected: Collection[str] = ()) -> list[Entry]:
        """Delete the periodic ones beyond the newest ``keep``; call it after `save`. Returns what went."""

    def start_afresh(self) -> Path | None:
        """Set aside what earlier runs saved here; returns where it is now, or None where there was nothing."""

    def entries(self) -> list[Entry]:
        """What is here, in the order it was saved."""

    def verify(self, entry: Entry) -> str | None:
        """Why the content of this entry cannot be used, or None."""

    def newest(self) -> Path | None:
        """The newest that verifies, or None where nothing was ever saved."""

    def load(self, path: Path) -> dict[str, Any]:
        """The state in a file."""

    def close(self) -> None:
        """Let other runs write here; may be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
