"""What a place for checkpoints can do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ignite_hooks.store.manifest import Entry, Kind, Part

if TYPE_CHECKING:
    from torch import Tensor


Retire = Callable[[list[Entry]], Iterable[Entry]]
"""Which of the listed files go, once a new one is there."""


class Saving(Protocol):
    """A save that has begun."""

    path: Path
    """Where it will be; with ``{hash}`` in the name, only known when `wait` has returned."""

    def wait_copied(self) -> None:
        """Return once the state may change."""

    def done(self) -> bool:
        """Whether `wait` would return at once."""

    def wait(self) -> Path:
        """The path, once the file survives a crash; a `CheckpointError` where it does not exist."""


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
        retire: Retire | None = None,
    ) -> Path:
        """Keep a state under a name; when it returns, the state survives a crash.

        Args:
            name: may hold ``{hash}`` once, which becomes the first 8 digits of the file's sha256.
            state: plain types and tensors, see `to_plain`.
            kind: why it is saved.
            epoch: how many epochs it has seen.
            iteration: how many iterations it has seen.
            metrics: how good it is.
            retire: which of the listed files go afterwards, never the one just saved. If it or a deletion fails, that
                is logged.
        """

    def begin(
        self,
        name: str,
        state: Mapping[str, Any],
        *,
        kind: Kind,
        epoch: int,
        iteration: int,
        metrics: Mapping[str, float] | None = None,
        retire: Retire | None = None,
        steady: Collection[Tensor] = (),
        done: Callable[[], None] | None = None,
    ) -> Saving:
        """Begin a save: as `save`, but the file is written while the program goes on.

        All other methods but `entries` and `verify` wait for what is under way, and none of them reports its failure.

        Args:
            name: as in `save`.
            state: as in `save`.
            kind: as in `save`.
            epoch: as in `save`.
            iteration: as in `save`.
            metrics: as in `save`.
            retire: as in `save`; called in the thread that writes.
            steady: tensors that stay as they are until `Saving.wait_copied` has returned: they are copied meanwhile.
                Everything else in the state may change as soon as `begin` returns.
            done: called in the thread that writes when the save has ended, well or not; it does not use the store.
        """

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


@runtime_checkable
class ShardedStore(Store, Protocol):
    """A place that can also hold checkpoints of which every process writes a part; see `sharded.py`."""

    def begin_folder(self, name: str) -> Path:
        """A new folder, which all processes can write to; `commit_folder` gives it its name."""

    def commit_folder(
        self,
        temporary: Path,
        name: str,
        files: Collection[Part],
        *,
        kind: Kind,
        epoch: int,
        iteration: int,
        metrics: Mapping[str, float] | None = None,
        retire: Retire | None = None,
    ) -> Path:
        """Keep a folder under a name; when it returns, it survives a crash.

        Args:
            temporary: from `begin_folder`.
            name: as in `save`.
            files: all that is in it; they are on the disk.
            kind: as in `save`.
            epoch: as in `save`.
            iteration: as in `save`.
            metrics: as in `save`.
            retire: as in `save`.
        """

    def drop_folder(self, temporary: Path) -> None:
        """Remove a folder that does not get a name."""

    def load_shards(self, path: Path, share: tuple[int, int] = (0, 1)) -> dict[str, Any]:
        """What a sharded checkpoint says of itself, after this rank's share of its files was verified."""
