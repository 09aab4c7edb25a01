"""The interface of a store for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ignite_hooks.store.manifest import CheckpointFile, Entry, Kind

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.store.background import SavingThread


Retire = Callable[[list[Entry]], Iterable[Entry]]
"""Choose the entries to delete after a new one has been saved."""


class Saving(Protocol):
    """A save that has begun."""

    path: Path
    """Where the file will be; with ``{hash}`` in the name, known only after `wait` has returned."""

    waited: float
    """The seconds for which it waited for an earlier save, before the state was copied."""

    def wait_copied(self) -> None:
        """Return once the state may change."""

    def done(self) -> bool:
        """Return whether `wait` would return at once."""

    def wait(self) -> Path:
        """Return the path once the file survives a crash; raise a `CheckpointError` if the save failed."""


class Store(Protocol):
    """A store for checkpoints; everything that fails raises `CheckpointError`."""

    run: str
    """The id of the run that saves here, which new entries get; empty until it is known."""

    def open(self) -> Self:
        """Open for writing; raise an error if another run writes here."""

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
        """Save a state under a name; when it returns, the state survives a crash.

        Args:
            name: may hold ``{hash}`` once, which becomes the first 8 digits of the file's sha256.
            state: plain types and tensors, see `to_plain`.
            kind: what it is saved for.
            epoch: number of epochs trained.
            iteration: number of iterations trained.
            metrics: its scores.
            retire: chooses the entries to delete afterwards; the one just saved always stays. If it or a deletion
                fails, that is logged.
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
        """Begin a save: as `save`, but the file is written while the program continues.

        Where there is no memory for a copy of the state, the file is written before `begin` returns.

        All other methods except `busy`, `entries` and `verify` wait for saves under way; none of them reports their
        failures.

        Args:
            name: as in `save`.
            state: as in `save`.
            kind: as in `save`.
            epoch: as in `save`.
            iteration: as in `save`.
            metrics: as in `save`.
            retire: as in `save`; called in the saving thread.
            steady: tensors that do not change before `Saving.wait_copied` has returned; they are copied meanwhile.
                Everything else in the state may change as soon as `begin` returns.
            done: called in the saving thread when the save has succeeded or failed; it must not use the store.
        """

    def busy(self) -> bool:
        """Return whether `begin` would wait until an earlier save is written."""

    def prepare(self, size: int) -> None:
        """Make memory for `begin` in a thread, for a state of about this size; the first save is as fast as others."""

    def retire(self, retire: Retire) -> None:
        """Delete the entries that a rule chooses; if it or a deletion fails, that is logged."""

    def start_afresh(self) -> Path | None:
        """Move away what earlier runs saved here; return its new place, or None if there was nothing."""

    def entries(self) -> list[Entry]:
        """Return what is stored, in the order it was saved."""

    def verify(self, entry: Entry) -> str | None:
        """Return why the content of this entry cannot be used, or None."""

    def candidates(self) -> list[Entry]:
        """Return what may be resumed from, best first; nothing of it is verified."""

    def newest(self) -> Path | None:
        """Return the newest checkpoint that verifies, or None if nothing was ever saved."""

    def load(self, path: Path) -> dict[str, Any]:
        """Load the state in a file."""

    def close(self) -> None:
        """Close for writing, so that other runs can write; may be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class ShardedStore(Store, Protocol):
    """A store that can also hold checkpoints of which every process writes a part; see `sharded/`."""

    def saving_thread(self) -> SavingThread:
        """Return the thread that writes beside the training; a rank that has not opened the store has one, too."""

    def begin_folder(self, name: str) -> Path:
        """Make a temporary folder that all processes can write to; `commit_folder` gives it its name."""

    def commit_folder(
        self,
        temporary: Path,
        name: str,
        files: Collection[CheckpointFile],
        *,
        kind: Kind,
        epoch: int,
        iteration: int,
        metrics: Mapping[str, float] | None = None,
        retire: Retire | None = None,
    ) -> Path:
        """Save a folder under a name; when it returns, it survives a crash.

        Args:
            temporary: from `begin_folder`.
            name: as in `save`.
            files: every file in it; they are on the disk.
            kind: as in `save`.
            epoch: as in `save`.
            iteration: as in `save`.
            metrics: as in `save`.
            retire: as in `save`.
        """

    def drop_folder(self, temporary: Path) -> None:
        """Remove a temporary folder."""

    def load_shards(self, path: Path, share: tuple[int, int] = (0, 1)) -> dict[str, Any]:
        """Load a sharded checkpoint without its shards, after verifying this rank's share of its files."""
