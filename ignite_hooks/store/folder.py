"""Checkpoints in a folder: complete or absent, verified before use, written by one run at a time."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.archive import Image, write_archive
from ignite_hooks.store.background import SavingThread
from ignite_hooks.store.buffers import SMALL_BUFFER
from ignite_hooks.store.checksums import FAST, digits_of
from ignite_hooks.store.commit import CommitLog
from ignite_hooks.store.files import (
    discard,
    explain,
    explain_files,
    make_folder,
    new_file,
    not_deleted,
    open_regular,
    remove_temporary,
    temporary_path,
    try_to_write,
)
from ignite_hooks.store.found import find_unlisted
from ignite_hooks.store.interface import Retire, Saving
from ignite_hooks.store.lock import FolderLock
from ignite_hooks.store.manifest import (
    FILE_NAME,
    STATE,
    CheckpointFile,
    DamagedManifestError,
    Entry,
    Kind,
    Manifest,
    content_of,
)
from ignite_hooks.store.names import HASH, SET_ASIDE, check_name, name_with_hash
from ignite_hooks.store.place import Place
from ignite_hooks.store.plain import size_in_bytes, to_plain, to_plain_and_shared
from ignite_hooks.store.verify import mismatch, read_state, why_unusable
from ignite_hooks.system import host

if TYPE_CHECKING:
    from torch import Tensor

SPARE_SHARE: Final = 20
"""A state grows a little after it was measured; what is between copies takes room, too."""

logger = logging.getLogger(__name__)


class FolderStore:
    """Checkpoints as files in one folder.

    Reading needs nothing; writing needs `open`, which takes the lock of the folder. A save is a sequence of
    steps, and a crash between any two of them leaves the previous state or the new one:

        state -> plain types -> temporary file -> manifest announces it -> rename -> manifest lists it

    Args:
        folder: the folder; made by `open`.
    """

    def __init__(self, folder: Path) -> None:
        # A script may change its working directory during the run.
        self.folder = Path(folder).absolute()
        self._lock = FolderLock(self.folder)
        self._log = CommitLog(self.folder)
        self._place = Place(self.folder, self._lock, self._log)
        self._writer: SavingThread | None = None
        self.run = ""

    def open(self) -> Self:
        """Make the folder, take its lock, check that it can be written, finish what a crash interrupted."""
        if not self._lock.held:
            with self._wrap_errors(f"write checkpoints in {self.folder}"):
                make_folder(self.folder)
                self._lock.acquire()
                _closed_in_forked_children().add(self)
                try:
                    try_to_write(self.folder)
                    self._place.settle_in()
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
        make_entry = _entry_factory(kind, epoch, iteration, metrics, self.run)
        plain = to_plain(dict(state))
        self._wait_for_saves()
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
        """Begin a save that continues in a thread; see `Store.begin`."""
        path = self.folder / name_with_hash(name)
        self._check_open(f"save {name}")
        make_entry = _entry_factory(kind, epoch, iteration, metrics, self.run)
        plain, shared = to_plain_and_shared(dict(state))
        with self._wrap_errors(f"save {name}", plain):
            saving = self.saving_thread().stage(path, shared, steady)
        copies = saving.copies
        if copies is None:
            self._wait_for_saves()
            saving.run(lambda: self._write(name, plain, make_entry, retire), done)
            return saving

        def write() -> Path:
            try:
                try:
                    with self._wrap_errors(f"save {name}", plain):
                        copies.synchronize(plain)
                except CheckpointError as error:
                    raise CheckpointError(f"cannot save {name}: {error}") from error
                return self._write(name, plain, make_entry, retire, copies.image)
            finally:
                copies.release()

        try:
            with self._wrap_errors(f"save {name}", plain):
                self.saving_thread().start(saving, write, done)
        except BaseException:
            copies.release()
            raise
        return saving

    def busy(self) -> bool:
        """Return whether `begin` would wait until an earlier save is written."""
        return self._writer is not None and self._writer.buffers.busy()

    def prepare(self, size: int) -> None:
        """Make memory for copies in the saving thread, while the training begins."""
        if self._lock.held and size >= SMALL_BUFFER:
            self.saving_thread().prepare(size + size // SPARE_SHARE)

    def retire(self, retire: Retire) -> None:
        """Delete the checkpoints that a rule chooses."""
        self._check_open("delete checkpoints")
        self._wait_for_saves()
        self._retire(retire)

    def start_afresh(self) -> Path | None:
        """Move what earlier runs saved here into a subfolder; return it, or None if there was nothing."""
        self._check_open("start afresh")
        self._wait_for_saves()
        if not self._log.manifest.entries:
            return None
        with self._wrap_errors(f"move earlier checkpoints out of {self.folder}"):
            used = [path.name.removeprefix(SET_ASIDE) for path in self.folder.glob(f"{SET_ASIDE}*")]
            target = self.folder / f"{SET_ASIDE}{max((int(n) for n in used if n.isdigit()), default=0) + 1}"
            self._log.move_to(target)
        return target

    def entries(self) -> list[Entry]:
        """Return what the manifest lists, in the order it was saved."""
        return list(self._current_manifest().entries)

    def verify(self, entry: Entry) -> str | None:
        """Return why the content of this entry cannot be used, or None."""
        return why_unusable(self.folder / entry.name, entry)

    def candidates(self) -> list[Entry]:
        """Return what may be resumed from, best first; raise an error where a damaged manifest hides it."""
        self._wait_for_saves()
        entries = self._manifest_with_found().newest_first()
        if not entries:
            self._fail_after_damage()
        return entries

    def newest(self) -> Path | None:
        """Return the newest checkpoint by iteration that verifies; None if nothing was ever saved."""
        entries = self.candidates()
        if not entries:
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
        """Load the state in a file, verified first if our manifest lists it; never run code in the file.

        The state of a sharded checkpoint comes with whole tensors.
        """
        path = Path(path)
        if path.is_dir():
            from ignite_hooks.store.sharded.loading import load_tensors

            return load_tensors(self.load_shards(path), path)
        self._wait_for_saves()
        with self._wrap_errors(f"load {path}"):
            ours = self._contains(path)
            with open_regular(path, follow_links=not ours) as file:
                entry = self._find_entry(path.name) if ours else None
                if entry and (reason := mismatch(file, entry)):
                    raise CheckpointError(f"cannot load {path}: {reason}")
                return read_state(file, path)

    def load_shards(self, path: Path, share: tuple[int, int] = (0, 1)) -> dict[str, Any]:
        """Load a sharded checkpoint without its shards.

        Args:
            path: its folder.
            share: index and count: this rank verifies every count-th file, starting at the index.
        """
        self._wait_for_saves()
        with self._wrap_errors(f"load {path}"):
            ours = self._contains(path)
            if ours and path.is_symlink():
                raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path))
            entry = self._find_entry(path.name) if ours else None
            if entry and (reason := why_unusable(path, entry, share)):
                raise CheckpointError(f"cannot load {path}: {reason}")
            with open_regular(path / STATE) as file:
                return read_state(file, path / STATE)

    def accept(self, temporary: Path, entry: Entry) -> Path:
        """Give a checkpoint that came from elsewhere, complete and verified, the name of its entry, and list it."""
        self._check_open(f"save {entry.name}")
        self._wait_for_saves()
        with self._wrap_errors(f"save {entry.name}"):
            self._place.check()
            self._log.commit(temporary, entry)
        return self.folder / entry.name

    def begin_folder(self, name: str) -> Path:
        """Make a temporary folder, which `commit_folder` gives this name and `drop_folder` removes."""
        check_name(name)
        self._check_open(f"save {name}")
        self._wait_for_saves()
        with self._wrap_errors(f"save {name}"):
            self._place.go_back()
            temporary = temporary_path(self.folder, name)
            temporary.mkdir()
            return temporary

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
        """Give a folder, whose files are on the disk, its name; when it returns, it survives a crash."""
        self._check_open(f"save {name}")
        with self._wrap_errors(f"save {name}"):
            make_entry = _entry_factory(kind, epoch, iteration, metrics, self.run)
            entry = make_entry(name, *content_of(tuple(files)))
            entry = replace(entry, files=tuple(sorted(files, key=lambda file: file.name)))
            if strange := sorted({path.name for path in temporary.iterdir()} ^ {file.name for file in files}):
                raise CheckpointError(f"cannot save {name}: {explain_files(strange, temporary)}")
            for file in files:
                if (size := (temporary / file.name).stat().st_size) != file.size:
                    raise CheckpointError(f"cannot save {name}: {file.name} has {size} bytes, not {file.size}")
            host.sync_folder(temporary)
            self._place.check()
            self._log.commit(temporary, entry)
            self._place.check()
        if retire is not None:
            self._retire(retire, entry)
        return self.folder / entry.name

    def drop_folder(self, temporary: Path) -> None:
        """Remove a temporary folder."""
        discard(temporary)

    def _contains(self, path: Path) -> bool:
        return path.parent.resolve() == self.folder.resolve()

    def close(self) -> None:
        """Wait for the saves that are under way and release the lock; may be called twice."""
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

    def saving_thread(self) -> SavingThread:
        """Return the thread that writes beside the training; a rank that has not opened the folder has one, too."""
        if self._writer is None:
            self._writer = SavingThread()
        return self._writer

    def _wait_for_saves(self) -> None:
        if self._writer is not None:
            self._writer.settle()

    def _write(
        self,
        name: str,
        plain: dict[str, Any],
        make_entry: Callable[[str, int, str], Entry],
        retire: Retire | None,
        image: Image | None = None,
    ) -> Path:
        temporary = temporary_path(self.folder, name_with_hash(name))
        with self._wrap_errors(f"save {name}", plain):
            self._place.go_back()
            try:
                # Names with a hash, and files that are handed on, are compared with what sha256sum prints.
                size, checksum = write_state(temporary, plain, image, "sha256" if HASH in name else FAST)
                entry = make_entry(name_with_hash(name, digits_of(checksum)), size, checksum)
                self._place.check()
                self._log.commit(temporary, entry)
                self._place.check()
            except BaseException:
                remove_temporary(temporary)
                raise
        if retire is not None:
            self._retire(retire, entry)
        return self.folder / entry.name

    def _retire(self, retire: Retire, saved: Entry | None = None) -> None:
        try:
            going = [entry for entry in retire(self.entries()) if saved is None or entry.name != saved.name]
            with self._wrap_errors("delete checkpoints"):
                self._place.check()
                self._log.delete(going)
        except Exception:
            # Older files that stay do no harm.
            logger.exception("%s could not be deleted", not_deleted(saved.name if saved else None, self.folder))

    def _current_manifest(self) -> Manifest:
        return self._log.manifest if self._lock.held else self._log.read()

    def _manifest_with_found(self) -> Manifest:
        """Return the manifest; a reader, who lists nothing, takes what it does not list into account."""
        manifest = self._current_manifest()
        if self._lock.held or not self.folder.is_dir():
            return manifest
        return manifest.with_found(find_unlisted(self.folder, {entry.name for entry in manifest.entries}))

    def _find_entry(self, name: str) -> Entry | None:
        try:
            return self._current_manifest().find(name)
        except DamagedManifestError as error:
            logger.warning("%s cannot be verified: %s", name, error)
            return None

    def _fail_after_damage(self) -> None:
        damaged = sorted(path.name for path in self.folder.glob(f"{FILE_NAME}.damaged-*"))
        if damaged:
            raise CheckpointError(
                f"nothing in {self.folder} can be verified: its manifest was damaged ({damaged[-1]}); "
                f"name the file to resume from, or remove {damaged[-1]} to start a new run"
            )

    def _check_open(self, what: str) -> None:
        if not self._lock.held:
            raise CheckpointError(f"cannot {what}: {self.folder} is not open for writing: call open() first")

    @contextlib.contextmanager
    def _wrap_errors(self, what: str, plain: object = None) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            needed = 0 if plain is None else size_in_bytes(plain)
            raise CheckpointError(f"cannot {what}: {explain(error, self.folder, needed)}") from error


def write_state(
    path: Path, plain: dict[str, Any], image: Image | None = None, algorithm: str = FAST
) -> tuple[int, str]:
    """Write a plain state into a new file, on the disk when it returns; return its size and checksum."""
    with new_file(path, algorithm) as file:
        write_archive(file, plain, image)
    return file.size, file.checksum


def _entry_factory(
    kind: Kind, epoch: int, iteration: int, metrics: Mapping[str, float] | None, run: str
) -> Callable[[str, int, str], Entry]:
    numbers = {key: float(value) for key, value in (metrics or {}).items()}
    return lambda name, size, checksum: Entry(name, size, checksum, epoch, iteration, numbers, kind, run=run)


@functools.cache
def _closed_in_forked_children() -> weakref.WeakSet[FolderStore]:
    # Otherwise a DataLoader worker would keep the lock after its parent was killed.
    stores: weakref.WeakSet[FolderStore] = weakref.WeakSet()

    def close_all() -> None:
        for store in list(stores):
            # The thread and its saves are in the parent.
            store._writer = None
            store.close()

    host.after_fork_in_child(close_all)
    return stores
