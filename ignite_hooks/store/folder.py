"""Checkpoints in a folder: whole or not there, verified before use, written by one run at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import logging
import os
import socket
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.archive import write_archive
from ignite_hooks.store.background import BackgroundSaving, BackgroundWriter
from ignite_hooks.store.copies import Copies
from ignite_hooks.store.files import (
    TEMPORARY,
    explain,
    new_file,
    open_regular,
    publish,
    remove_folder,
    remove_temporary,
    set_aside,
    sync_folder,
    temporary_path,
)
from ignite_hooks.store.interface import Retire, Saving
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

LOCK: Final = ".lock"
REPLACED: Final = ".replaced-"
NO_LOCKS_HERE: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK})

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
        self._manifest = Manifest()
        self._writer: BackgroundWriter | None = None
        self._release_lock: weakref.finalize[[int], FolderStore] | None = None

    def open(self) -> Self:
        """Make the folder, take its lock, check that it can be written, finish what a crash interrupted."""
        if self._release_lock is None:
            with self._explained(f"write checkpoints in {self.folder}"):
                _make_folder(self.folder)
                self._take_lock()
                try:
                    self._probe()
                    self._remove_temporary_files()
                    self._recover()
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

    def _delete(self, entries: Iterable[Entry]) -> None:
        manifest = self._manifest.without(entries)
        if not manifest.deleting:
            return
        with self._explained("delete checkpoints"):
            manifest.save(self.folder)
            self._manifest = manifest
            for entry in manifest.deleting:
                self._remove(entry)
                self._manifest = self._manifest.deleted(entry)

    def _remove(self, entry: Entry) -> None:
        path = self.folder / entry.name
        if not entry.files:
            path.unlink(missing_ok=True)
        elif path.is_dir() and not path.is_symlink():
            mine = {part.name for part in entry.files}
            if strange := sorted({found.name for found in path.iterdir()} - mine):
                logger.warning("%s stays for what is not ours in it: %s", path, ", ".join(strange))
                for name in mine:
                    (path / name).unlink(missing_ok=True)
            else:
                # Gone at once or not at all: nobody would know a part of it for ours.
                going = temporary_path(self.folder, entry.name)
                os.replace(path, going)
                remove_folder(going)

    def start_afresh(self) -> Path | None:
        """Move what earlier runs saved here into a folder of its own, so that a new run is not taken for them."""
        self._check_open("start afresh")
        self._settle()
        earlier = self._manifest
        if not earlier.entries:
            return None
        with self._explained(f"move earlier checkpoints out of {self.folder}"):
            used = [path.name.removeprefix("earlier-") for path in self.folder.glob("earlier-*")]
            target = self.folder / f"earlier-{max((int(n) for n in used if n.isdigit()), default=0) + 1}"
            _make_folder(target)
            # Listed there before anything moves: wherever a crash comes, every file is listed where it is.
            earlier.save(target)
            for entry in earlier.entries:
                if os.path.lexists(self.folder / entry.name):
                    os.replace(self.folder / entry.name, target / entry.name)
            sync_folder(target)
            self._manifest = Manifest()
            self._manifest.save(self.folder)
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
            self._commit(temporary, entry)
        if retire is not None:
            self._retire(retire, entry)
        return self.folder / entry.name

    def drop_folder(self, temporary: Path) -> None:
        """Remove a folder that does not get a name."""
        _discard(temporary)

    def _is_here(self, path: Path) -> bool:
        return path.parent.resolve() == self.folder.resolve()

    def close(self) -> None:
        """Wait for what is under way and give the lock back; may be called twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._release_lock is not None:
            self._release_lock()
            self._release_lock = None

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
                self._commit(temporary, entry)
            except BaseException:
                remove_temporary(temporary)
                raise
        if retire is not None:
            self._retire(retire, entry)
        return self.folder / entry.name

    def _retire(self, retire: Retire, saved: Entry) -> None:
        try:
            self._delete([entry for entry in retire(self.entries()) if entry.name != saved.name])
        except Exception:
            # The state is safe, which is what the save was for.
            logger.exception("%s is saved, but what it replaces could not be deleted", self.folder / saved.name)

    def _commit(self, temporary: Path, entry: Entry) -> None:
        path = self.folder / entry.name
        if os.path.lexists(path) and not self._manifest.find(entry.name):
            logger.warning("%s was not saved by us, renamed to %s", path, set_aside(path, "not-ours").name)
        announced = self._manifest.announce(entry)
        # No rename replaces a folder that holds something, nor a file by a folder.
        in_two = os.path.lexists(path) and (bool(entry.files) or path.is_dir())
        try:
            announced.save(self.folder)
            if in_two:
                _discard(self._replaced(entry.name))
                os.replace(path, self._replaced(entry.name))
            publish(temporary, path)
        except BaseException:
            self._put_back(entry.name)
            self._manifest = self._settled(announced)
            raise
        self._manifest = announced.settle(happened=True)
        self._manifest.save(self.folder)
        if in_two:
            _discard(self._replaced(entry.name))

    def _replaced(self, name: str) -> Path:
        """Where a checkpoint is while another takes its name."""
        return self.folder / f"{REPLACED}{name}"

    def _put_back(self, name: str) -> None:
        """Let a checkpoint have its name again if no other has taken it."""
        path = self.folder / name
        if os.path.lexists(self._replaced(name)) and not os.path.lexists(path):
            os.replace(self._replaced(name), path)
            sync_folder(self.folder)

    def _settled(self, manifest: Manifest) -> Manifest:
        if manifest.pending is None:
            return manifest
        return manifest.settle(happened=self.verify(manifest.pending) is None)

    def _current(self) -> Manifest:
        if self._release_lock is not None:
            return self._manifest
        return self._settled(Manifest.load(self.folder))

    def _listed(self, name: str) -> Entry | None:
        try:
            return self._current().find(name)
        except DamagedManifestError as error:
            logger.warning("%s cannot be verified: %s", name, error)
            return None

    def _recover(self) -> None:
        try:
            found = Manifest.load(self.folder)
        except DamagedManifestError as error:
            moved = set_aside(self.folder / FILE_NAME, "damaged")
            logger.warning("%s; renamed to %s, starting an empty one", error, moved.name)
            found = Manifest()
        replaced = [path.name.removeprefix(REPLACED) for path in self.folder.glob(f"{REPLACED}*")]
        for name in replaced:
            self._put_back(name)
        self._manifest = self._settled(found)
        for name in replaced:
            entry = self._manifest.find(name)
            if entry is not None and self.verify(entry) is None:
                _discard(self._replaced(name))
        for entry in self._manifest.deleting:
            # Only what we saved goes: somebody may have put another file there since.
            if self.verify(entry) is None:
                self._remove(entry)
            self._manifest = self._manifest.deleted(entry)
        if self._manifest != found:
            self._manifest.save(self.folder)

    def _refuse_to_forget(self) -> None:
        damaged = sorted(path.name for path in self.folder.glob(f"{FILE_NAME}.damaged-*"))
        if damaged:
            raise CheckpointError(
                f"nothing in {self.folder} can be verified: its manifest was damaged ({damaged[-1]}); "
                f"name the file to resume from, or remove {damaged[-1]} to start afresh"
            )

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.folder / LOCK, flags, 0o666)
        try:
            self._lock(descriptor)
            owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        # Also gives the lock back when a notebook forgets the store without closing it.
        self._release_lock = weakref.finalize(self, os.close, descriptor)
        _closed_in_forked_children().add(self)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(f"{self.folder} is in use by {_owner(descriptor)}") from error
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            logger.warning("%s cannot be locked (%s): let one run write there", self.folder, error.strerror)

    def _probe(self) -> None:
        written, renamed = temporary_path(self.folder, "probe"), temporary_path(self.folder, "probe")
        try:
            with new_file(written) as file:
                file.write(bytes(4096))
            os.replace(written, renamed)
            sync_folder(self.folder)
            os.unlink(renamed)
        except BaseException:
            remove_temporary(written)
            remove_temporary(renamed)
            raise

    def _remove_temporary_files(self) -> None:
        # Their writer is dead: we hold the lock.
        for found in list(os.scandir(self.folder)):
            if found.name.startswith(TEMPORARY):
                if found.is_dir(follow_symlinks=False):
                    remove_folder(Path(found.path))
                else:
                    os.unlink(found.path)

    def _check_open(self, what: str) -> None:
        if self._release_lock is None:
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


def _discard(path: Path) -> None:
    # It cannot be removed where the disk has just failed; the next open() of the folder does it.
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            path.unlink(missing_ok=True)


def _elsewhere(names: list[str], temporary: Path) -> str:
    if all((temporary / name).exists() for name in names):
        return f"{', '.join(names)} should not be in {temporary}"
    return f"{', '.join(names)} cannot be seen by rank 0: all ranks need {temporary.parent} on the same disk"


def _maker(
    kind: Kind, epoch: int, iteration: int, metrics: Mapping[str, float] | None
) -> Callable[[str, int, str], Entry]:
    numbers = {key: float(value) for key, value in (metrics or {}).items()}
    return lambda name, size, sha256: Entry(name, size, sha256, epoch, iteration, numbers, kind)


def _make_folder(folder: Path) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (ValueError, TypeError, KeyError, OSError):
        return "another process"


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
