"""Checkpoints in a folder: whole or not there, verified before use, written by one run at a time."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.archive import write_archive
from ignite_hooks.store.background import BackgroundSaving, BackgroundWriter
from ignite_hooks.store.commit import CommitLog
from ignite_hooks.store.copies import Copies
from ignite_hooks.store.files import (
    discard,
    explain,
    make_folder,
    new_file,
    open_regular,
    remove_all_temporary,
    remove_temporary,
    sync_folder,
    temporary_path,
    try_to_write,
)
from ignite_hooks.store.interface import Retire, Saving
from ignite_hooks.store.lock import FolderLock
from ignite_hooks.store.manifest import (
    FILE_NAME,
    STATE,
    DamagedManifestError,
    Entry,
    Kind,
    Manifest,
    Part,
    check_name,
    content_of,
    name_with_hash,
)
from ignite_hooks.store.plain import size_in_bytes, to_plain, to_plain_and_shared
from ignite_hooks.store.verify import difference, read_state, why_unusable

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


class FolderStore:
    """Checkpoints as files in one folder.

    Reading needs nothing; writing needs `open`, which takes the lock of the folder. A save is a line of
    steps, and a crash between any two of them leaves the previous state or the new one:

        state -> plain types -> temporary file -> manifest announces it -> rename -> manifest lists it

    Args:
        folder: where the files go; made by `open`.
    """

    def __init__(self, folder: Path) -> None:
        # A script may change its working directory during the run.
        self.folder = Path(folder).absolute()
        self._lock = FolderLock(self.folder)
        self._log = CommitLog(self.folder)
        self._writer: BackgroundWriter | None = None

    def open(self) -> Self:
        """Make the folder, take its lock, check that it can be written, finish what a crash interrupted."""
        if not self._lock.held:
            with self._explained(f"write checkpoints in {self.folder}"):
                make_folder(self.folder)
                self._lock.acquire()
                _closed_in_forked_children().add(self)
                try:
                    try_to_write(self.folder)
                    remove_all_temporary(self.folder)
                    self._log.recover()
                except BaseException:
                    self.close()
                    raise
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
        """Write a state; when it returns, the state survives a crash of the machine."""
        name_with_hash(name)
        self._check_open(f"save {name}")
        make_entry = _maker(kind, epoch, iteration, metrics)
        plain = to_plain(dict(state))
        self._settle()
        return self._write(name, plain, make_entry, retire)

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
        """Begin a save that goes on in a thread; see `Store.begin`."""
        path = self.folder / name_with_hash(name)
        self._check_open(f"save {name}")
        make_entry = _maker(kind, epoch, iteration, metrics)
        plain, shared = to_plain_and_shared(dict(state))
        if self._writer is None:
            self._writer = BackgroundWriter()
        with self._explained(f"save {name}", plain):
            copies = Copies(shared, steady, self._writer.buffers)

        def write() -> Path:
            try:
                try:
                    with self._explained(f"save {name}", plain):
                        copies.synchronize(plain)
                except CheckpointError as error:
                    raise CheckpointError(f"cannot save {name}: {error}") from error
                return self._write(name, plain, make_entry, retire, copies.views)
            finally:
                copies.give_back()

        saving = BackgroundSaving(path, copies)
        try:
            with self._explained(f"save {name}", plain):
                self._writer.start(saving, write, done)
        except BaseException:
            copies.give_back()
            raise
        return saving

    def start_afresh(self) -> Path | None:
        """Move what earlier runs saved here into a folder of its own, so that a new run is not taken for them."""
        self._check_open("start afresh")
        self._settle()
        if not self._log.manifest.entries:
            return None
        with self._explained(f"move earlier checkpoints out of {self.folder}"):
            used = [path.name.removeprefix("earlier-") for path in self.folder.glob("earlier-*")]
            target = self.folder / f"earlier-{max((int(n) for n in used if n.isdigit()), default=0) + 1}"
            self._log.move_to(target)
        return target

    def entries(self) -> list[Entry]:
        """What the manifest lists, in the order it was saved."""
        return list(self._current().entries)

    def verify(self, entry: Entry) -> str | None:
        """Why the content of this entry cannot be used, or None."""
        return why_unusable(self.folder / entry.name, entry)

    def newest(self) -> Path | None:
        """The newest checkpoint by iteration that verifies; None where nothing was ever saved."""
        self._settle()
        entries = self._current().newest_first()
        if not entries:
            self._refuse_to_forget()
            return None
        reasons = []
        for entry in entries:
            reason = self.verify(entry)
            if reason is None:
                return self.folder / entry.name
            reasons.append(f"{entry.name}: {reason}")
            logger.warning("%s in %s cannot be used: %s", entry.name, self.folder, reason)
        raise CheckpointError(f"no checkpoint in {self.folder} can be used: {'; '.join(reasons)}")

    def load(self, path: Path) -> dict[str, Any]:
        """The state in a file, verified first where our manifest lists it; code in the file is never run.

        That of a sharded checkpoint comes with whole tensors.
        """
        path = Path(path)
        if path.is_dir():
            from ignite_hooks.store.sharded import filled

            return filled(self.load_shards(path), path)
        self._settle()
        with self._explained(f"load {path}"):
            ours = self._is_here(path)
            with open_regular(path, follow_links=not ours) as file:
                entry = self._listed(path.name) if ours else None
                if entry and (reason := difference(file, entry)):
                    raise CheckpointError(f"cannot load {path}: {reason}")
                return read_state(file, path)

    def load_shards(self, path: Path, share: tuple[int, int] = (0, 1)) -> dict[str, Any]:
        """What a sharded checkpoint says of itself, without its shards.

        Args:
            path: its folder.
            share: of its files, only every n-th is verified, counted from this one: other ranks verify the others.
        """
        self._settle()
        with self._explained(f"load {path}"):
            ours = self._is_here(path)
            if ours and path.is_symlink():
                raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path))
            entry = self._listed(path.name) if ours else None
            if entry and (reason := why_unusable(path, entry, share)):
                raise CheckpointError(f"cannot load {path}: {reason}")
            with open_regular(path / STATE) as file:
                return read_state(file, path / STATE)

    def begin_folder(self, name: str) -> Path:
        """A new folder that gets this name with `commit_folder`, or goes with `drop_folder`."""
        check_name(name)
        self._check_open(f"save {name}")
        self._settle()
        with self._explained(f"save {name}"):
            temporary = temporary_path(self.folder, name)
            temporary.mkdir()
            return temporary

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
        """Give a folder its name; its files are on the disk. When it returns, it survives a crash."""
        self._check_open(f"save {name}")
        with self._explained(f"save {name}"):
            make_entry = _maker(kind, epoch, iteration, metrics)
            entry = make_entry(name, *content_of(tuple(files)))
            entry = replace(entry, files=tuple(sorted(files, key=lambda file: file.name)))
            if strange := sorted({path.name for path in temporary.iterdir()} ^ {file.name for file in files}):
                raise CheckpointError(f"cannot save {name}: {_elsewhere(strange, temporary)}")
            for file in files:
                if (size := (temporary / file.name).stat().st_size) != file.size:
                    raise CheckpointError(f"cannot save {name}: {file.name} has {size} bytes, not {file.size}")
            sync_folder(temporary)
            self._log.commit(temporary, entry)
        if retire is not None:
            self._retire(retire, entry)
        return self.folder / entry.name

    def drop_folder(self, temporary: Path) -> None:
        """Remove a folder that does not get a name."""
        discard(temporary)

    def _is_here(self, path: Path) -> bool:
        return path.parent.resolve() == self.folder.resolve()

    def close(self) -> None:
        """Wait for what is under way and give the lock back; may be called twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._lock.release()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self) -> None:
        if self._writer is not None:
            self._writer.settle()

    def _write(
        self,
        name: str,
        plain: dict[str, Any],
        make_entry: Callable[[str, int, str], Entry],
        retire: Retire | None,
        copies: Mapping[int, memoryview] | None = None,
    ) -> Path:
        temporary = temporary_path(self.folder, name_with_hash(name))
        with self._explained(f"save {name}", plain):
            try:
                size, sha256 = write_state(temporary, plain, copies)
                entry = make_entry(name_with_hash(name, sha256), size, sha256)
                self._log.commit(temporary, entry)
            except BaseException:
                remove_temporary(temporary)
                raise
        if retire is not None:
            self._retire(retire, entry)
        return self.folder / entry.name

    def _retire(self, retire: Retire, saved: Entry) -> None:
        try:
            going = [entry for entry in retire(self.entries()) if entry.name != saved.name]
            with self._explained("delete checkpoints"):
                self._log.delete(going)
        except Exception:
            # The state is safe, which is what the save was for.
            logger.exception("%s is saved, but what it replaces could not be deleted", self.folder / saved.name)

    def _current(self) -> Manifest:
        return self._log.manifest if self._lock.held else self._log.read()

    def _listed(self, name: str) -> Entry | None:
        try:
            return self._current().find(name)
        except DamagedManifestError as error:
            logger.warning("%s cannot be verified: %s", name, error)
            return None

    def _refuse_to_forget(self) -> None:
        damaged = sorted(path.name for path in self.folder.glob(f"{FILE_NAME}.damaged-*"))
        if damaged:
            raise CheckpointError(
                f"nothing in {self.folder} can be verified: its manifest was damaged ({damaged[-1]}); "
                f"name the file to resume from, or remove {damaged[-1]} to start afresh"
            )

    def _check_open(self, what: str) -> None:
        if not self._lock.held:
            raise CheckpointError(f"cannot {what}: {self.folder} is not open for writing")

    @contextlib.contextmanager
    def _explained(self, what: str, plain: object = None) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            needed = 0 if plain is None else size_in_bytes(plain)
            raise CheckpointError(f"cannot {what}: {explain(error, self.folder, needed)}") from error


def write_state(path: Path, plain: dict[str, Any], copies: Mapping[int, memoryview] | None = None) -> tuple[int, str]:
    """Write a plain state into a new file, on disk when it returns. Returns its size and checksum."""
    with new_file(path) as file:
        write_archive(file, plain, copies)
    return file.size, file.sha256


def _elsewhere(names: list[str], temporary: Path) -> str:
    if all((temporary / name).exists() for name in names):
        return f"{', '.join(names)} should not be in {temporary}"
    return f"{', '.join(names)} cannot be seen by rank 0: all ranks need {temporary.parent} on the same disk"


def _maker(
    kind: Kind, epoch: int, iteration: int, metrics: Mapping[str, float] | None
) -> Callable[[str, int, str], Entry]:
    numbers = {key: float(value) for key, value in (metrics or {}).items()}
    return lambda name, size, sha256: Entry(name, size, sha256, epoch, iteration, numbers, kind)


@functools.cache
def _closed_in_forked_children() -> weakref.WeakSet[FolderStore]:
    # A DataLoader worker would hold the lock on after its parent was killed.
    stores: weakref.WeakSet[FolderStore] = weakref.WeakSet()

    def close_all() -> None:
        for store in list(stores):
            # Its thread and what it waits for are in the parent.
            store._writer = None
            store.close()

    os.register_at_fork(after_in_child=close_all)
    return stores
