"""Checkpoints in memory, for tests and notebooks."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.archive import write_archive
from ignite_hooks.store.background import run_callback
from ignite_hooks.store.checksums import FAST
from ignite_hooks.store.interface import Retire, Saving
from ignite_hooks.store.manifest import Entry, Kind, Manifest
from ignite_hooks.store.names import HASH, name_with_hash
from ignite_hooks.store.plain import size_in_bytes, to_plain

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

NO_CHECKSUM = f"{FAST}:{'0' * 32}"


class FinishedSaving:
    """A save that has already ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waited = 0.0

    def wait_copied(self) -> None:
        """Return at once, as the state is copied already."""

    def done(self) -> bool:
        return True

    def wait(self) -> Path:
        return self.path


class MemoryStore:
    """Keep independent copies of states; a path is only a name here."""

    def __init__(self) -> None:
        self.states: dict[str, dict[str, Any]] = {}
        self._manifest = Manifest()
        self.run = ""

    def open(self) -> Self:
        return self

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
        """Keep a copy of a state."""
        name_with_hash(name)
        plain = to_plain(dict(state), clone=True)
        numbers = {key: float(value) for key, value in (metrics or {}).items()}
        name = name_with_hash(name, _sha256(plain)) if HASH in name else name
        entry = Entry(name, size_in_bytes(plain), NO_CHECKSUM, epoch, iteration, numbers, kind, run=self.run)
        self.states[name] = plain
        self._manifest = self._manifest.announce(entry).settle(happened=True)
        if retire is not None:
            self.retire(retire, entry)
        return Path(name)

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
        """Keep a copy of a state; return a save that has already ended."""
        path = self.save(name, state, kind=kind, epoch=epoch, iteration=iteration, metrics=metrics, retire=retire)
        run_callback(done)
        return FinishedSaving(path)

    def busy(self) -> bool:
        """Return False: every save ends at once."""
        return False

    def prepare(self, size: int) -> None:
        """Do nothing: copies are made by torch."""

    def retire(self, retire: Retire, saved: Entry | None = None) -> None:
        """Delete the states that a rule chooses, but never the one that has just been saved."""
        try:
            self._delete([entry for entry in retire(self.entries()) if saved is None or entry.name != saved.name])
        except Exception:
            what = "what is no longer needed" if saved is None else f"{saved.name} is saved, but what it replaces"
            logger.exception("%s could not be deleted", what)

    def _delete(self, entries: Iterable[Entry]) -> None:
        self._manifest = self._manifest.without(entries)
        for entry in self._manifest.deleting:
            self.states.pop(entry.name, None)
            self._manifest = self._manifest.deleted(entry)

    def start_afresh(self) -> Path | None:
        """Forget what earlier runs saved here."""
        self.states.clear()
        self._manifest = Manifest()
        return None

    def entries(self) -> list[Entry]:
        return list(self._manifest.entries)

    def verify(self, entry: Entry) -> str | None:
        """Return why the state of this entry cannot be used, or None."""
        return None if entry.name in self.states else "missing"

    def candidates(self) -> list[Entry]:
        """Return what may be resumed from, best first."""
        return self._manifest.newest_first()

    def newest(self) -> Path | None:
        """Return the name of the newest state by iteration that is still there."""
        entries = self.candidates()
        usable = [entry for entry in entries if self.verify(entry) is None]
        if entries and not usable:
            raise CheckpointError(f"no checkpoint can be used: {len(entries)} missing")
        return Path(usable[0].name) if usable else None

    def load(self, path: Path) -> dict[str, Any]:
        """Return a copy of the state saved under the name of this path."""
        name = Path(path).name
        if name not in self.states:
            raise CheckpointError(f"cannot load {path}: missing; saved are {', '.join(self.states) or 'none'}")
        plain: dict[str, Any] = to_plain(self.states[name], clone=True)
        return plain

    def close(self) -> None:
        """Do nothing; what was saved stays readable."""

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sha256(plain: object) -> str:
    found = hashlib.sha256()

    class Hashing:
        def write(self, data: memoryview) -> int:
            found.update(data)
            return len(data)

    write_archive(Hashing(), plain)
    return found.hexdigest()
