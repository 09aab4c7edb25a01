"""Folders of runs that name none: each is promised to one run at a time, in this process and in all others."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import logging
import os
import re
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.files import make_folder, open_regular
from ignite_hooks.store.lock import LOCK, FolderLock
from ignite_hooks.system import host

CLAIM: Final = ".claim"
ROOT: Final = Path("work_dirs")
LARGEST_RECORD: Final = 4096
ATTEMPTS: Final = 100
"""To make a folder: others may make the same one at the same time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewFolder:
    """A folder that is still to be chosen, for a run that names none.

    Args:
        source: The path of its configuration, whose name the folder gets; ``run`` without one.
    """

    source: str = ""

    @property
    def stem(self) -> str:
        return Path(self.source).stem if self.source else "run"

    def number(self, folder: Path) -> int | None:
        """Return the number of a folder of this name, or None if it has another."""
        if folder.name == self.stem:
            return 1
        found = re.fullmatch(rf"{re.escape(self.stem)}-([1-9][0-9]*)", folder.name)
        return None if found is None else int(found[1])

    def existing(self) -> list[Path]:
        """Return the folders of this name that exist, the newest first."""
        paths = [path.absolute() for path in ROOT.iterdir() if path.is_dir()] if ROOT.is_dir() else []
        return sorted((path for path in paths if self.number(path)), key=lambda path: -(self.number(path) or 0))

    def unused(self) -> Path:
        """Return the folder of the next number; nothing is made."""
        promised = [claim.folder for claim in _claims() if claim.folder.parent == ROOT.absolute()]
        taken = [*(ROOT.iterdir() if ROOT.is_dir() else ()), *promised]
        number = max((self.number(path) or 0 for path in taken), default=0) + 1
        return ROOT.absolute() / (self.stem if number == 1 else f"{self.stem}-{number}")


class Claim:
    """A folder that is promised to one run, until `release`, or until this object or the process ends.

    Args:
        folder: The folder.
        lock: Its lock, held; None if it cannot be locked, or if the script has named it.
        record: What the folder says about its run.
        made: Whether it was made for this claim, so that it goes again if nothing is written.
        owner: Refers to what will run here; once that is gone, the folder is free for others in this process.
    """

    def __init__(
        self,
        folder: Path,
        lock: FolderLock | None = None,
        record: Record | None = None,
        *,
        made: bool = False,
        owner: Callable[[], object] | None = None,
    ) -> None:
        self.folder, self.record, self.made = folder, record, made
        self.ended = False
        """Whether its run has ended: it may begin again, or another run may continue here."""
        self._lock, self._owner = lock, owner
        self._give_back = weakref.finalize(self, _give_back, folder, lock, made)
        _claims().add(self)

    @property
    def living(self) -> bool:
        """Whether a run is to come here, or is in progress."""
        return self._give_back.alive and not self.ended and (self._owner is None or self._owner() is not None)

    @property
    def unused(self) -> bool:
        """Whether the folder was made for this claim and holds nothing."""
        return self._give_back.alive and self.made and _holds_nothing(self.folder)

    def release(self) -> None:
        """Give the folder back; if it was made for this claim and holds nothing, it is removed. May be called twice."""
        self._give_back()

    def hand_on(self) -> None:
        """Let the next run without a folder have this one: as its own if it is empty, or to resume."""
        self.ended = True

    def passed_to(self, owner: Callable[[], object] | None, record: Record) -> Claim:
        """Return a claim of another run on the same folder; this one ends."""
        self._give_back.detach()
        if self._lock is not None:
            self._lock.describe(record.as_json())
        return Claim(self.folder, self._lock, record, made=self.made, owner=owner)

    def forget(self) -> None:
        """Forget the claim in a forked child: the folder is that of the parent."""
        self._give_back.detach()
        if self._lock is not None:
            self._lock.release()


@dataclass(frozen=True)
class Record:
    """What a folder says about its run, so that two trainers of one script find their own folders again.

    Args:
        place: The first, second ... of the runs without a folder that a process had at the same time.
        model: The signature of the model; empty if there is none.
        session: The process.
    """

    place: int
    model: str
    session: str

    def as_json(self) -> dict[str, Any]:
        return {"place": self.place, "model": self.model, "session": self.session}


class RunFolder:
    """The folder of one run: what the script has named, or one that is made once its configuration is accepted.

    Args:
        wanted: The path, or what a new folder is called.
        resume: As for ``attach_hooks``.
        model: The signature of the model of the run.
        owner: Returns the trainer, or None once it is gone.
    """

    def __init__(
        self, wanted: str | Path | NewFolder, resume: object, model: str, owner: Callable[[], object] | None
    ) -> None:
        self._wanted, self._resume, self._model, self._owner = wanted, resume, model, owner
        self.claim: Claim | None = None
        self.path = wanted.unused() if isinstance(wanted, NewFolder) else Path(wanted).expanduser().absolute()
        """The folder; before `take`, a name that is free."""

    @property
    def is_named(self) -> bool:
        """Whether the script has named it."""
        return not isinstance(self._wanted, NewFolder)

    def take(self) -> None:
        """Promise the folder to the run; make it if it is new."""
        if isinstance(self._wanted, NewFolder):
            self.claim = claim_folder(self._wanted, self._resume, model=self._model, owner=self._owner)
            self.path = self.claim.folder
        else:
            self.claim = Claim(self.path, owner=self._owner)

    @contextlib.contextmanager
    def given_back_on_error(self) -> Iterator[None]:
        """Give the folder back if the run is refused."""
        try:
            yield
        except BaseException:
            if self.claim is not None:
                self.claim.release()
            raise


def claim_folder(wanted: NewFolder, resume: object, *, model: str, owner: Callable[[], object] | None) -> Claim:
    """Make a new folder and promise it to a run; to resume, take the newest that no living run holds.

    Args:
        wanted: The name it gets.
        resume: As for ``attach_hooks``: with a path, the folder of that checkpoint.
        model: The signature of the model of the run.
        owner: Returns the trainer, or None once it is gone.
    """
    if any(wanted.number(claim.folder) for claim in _claims()):
        # Engines are parts of cycles: a trainer that the script has dropped must not seem to live on.
        gc.collect()
    record = Record(_free_place(wanted), model, _session())
    if resume:
        records = _to_resume(wanted, resume)
        for folder in continued(records, record):
            if claim := _taken(folder, record, owner):
                _report_doubt(folder, records, record.place)
                return claim
    # What an attachment promised that never ran: a notebook whose cell is executed twice stays in one folder.
    idle = [claim for claim in _claims() if wanted.number(claim.folder) and not claim.living and claim.unused]
    if idle:
        return min(idle, key=lambda claim: wanted.number(claim.folder) or 0).passed_to(owner, record)
    return _made(wanted, record, owner)


def _made(wanted: NewFolder, record: Record, owner: Callable[[], object] | None) -> Claim:
    for _ in range(ATTEMPTS):
        folder = wanted.unused()
        with contextlib.suppress(OSError):
            make_folder(folder.parent)
            folder.mkdir()
            if (lock := _locked(folder, record)) is not None:
                return Claim(folder, lock, record, made=True, owner=owner)
    # A run may write nothing at all; what it cannot write fails where it writes.
    return Claim(wanted.unused(), record=record, owner=owner)


def _taken(folder: Path, record: Record, owner: Callable[[], object] | None) -> Claim | None:
    """Claim an existing folder; return None if a living run holds it, here or elsewhere."""
    mine = [claim for claim in _claims() if claim.folder == folder]
    if any(claim.living for claim in mine):
        return None
    # The checkpoints of a run that is being replaced may still be open.
    locked = [claim for claim in mine if claim._lock is not None and claim._give_back.alive]
    if not locked and not _is_free(folder, LOCK):
        return None
    if locked:
        before = locked[0].record
        if before is not None and before.model != record.model:
            # A script that trains two models in turn: the folder of one is not that of the other.
            return None
        logger.warning(
            "continuing in %s, which an earlier trainer of this process has used: "
            "pass work_dir=... to attach_hooks() if that is another run",
            folder,
        )
        return locked[0].passed_to(owner, record)
    lock = _locked(folder, record)
    return None if lock is None else Claim(folder, lock, record, owner=owner)


def _to_resume(wanted: NewFolder, resume: object) -> dict[Path, Record | None]:
    """Return the folders in which a run may continue, the newest first, and what they say."""
    existing = wanted.existing()
    if not isinstance(resume, bool) and resume not in ("auto", "required"):
        path = Path(str(resume))
        if path.exists():
            # A checkpoint from elsewhere begins a run of its own: it must not write among the files of another.
            existing = [folder for folder in existing if folder in path.absolute().parents]
        else:
            existing = [folder for folder in existing if (folder / path).exists()] or existing
    return {folder: read_record(folder) for folder in existing}


def continued(records: dict[Path, Record | None], mine: Record) -> list[Path]:
    """Return the folders of these in which a run may continue, the best first.

    First the folders that the trainer of the same place had, of these first those of the same model; then those of the
    same model that a trainer of another place had. Folders without a record are those of a first trainer.

    Args:
        records: What each folder says, the newest first.
        mine: What the run says.
    """
    places = {folder: 1 if record is None else record.place for folder, record in records.items()}
    same_place = [folder for folder in records if places[folder] == mine.place]
    same_model = [folder for folder, record in records.items() if record is None or record.model == mine.model]
    best = [folder for folder in same_place if folder in same_model]
    others = [folder for folder in same_place if folder not in same_model]
    elsewhere = [folder for folder in same_model if folder not in same_place]
    return [*best, *others, *elsewhere]


def _report_doubt(chosen: Path, records: dict[Path, Record | None], place: int) -> None:
    """Warn where it cannot be known which folder a trainer had."""
    before = records[chosen]
    alike = [folder.name for folder, record in records.items() if before is not None and record == before]
    doubt = ""
    if place > 1 and place != (before.place if before is not None else 1):
        doubt = f"which was not that of trainer {place} of a script, as this is"
    elif len(alike) > 1:
        doubt = f"the newest of {', '.join(alike)}, which one script filled in turn"
    if doubt:
        logger.warning(
            "continuing in %s, %s: pass work_dir=... to attach_hooks() if another run is meant", chosen, doubt
        )


def read_record(folder: Path) -> Record | None:
    """Return what a folder says about its run; None if it says nothing that is of use."""
    try:
        with open_regular(folder / CLAIM) as file:
            content = json.loads(file.read(LARGEST_RECORD))
        place, model, session = (content[name] for name in ("place", "model", "session"))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    fits = type(place) is int and isinstance(model, str) and isinstance(session, str)
    return Record(place, model, session) if fits else None


def _locked(folder: Path, record: Record) -> FolderLock | None:
    """Return the lock of a folder that is claimed, or None if another claims it or has just removed it."""
    lock = FolderLock(folder, CLAIM, record.as_json())
    try:
        lock.acquire()
    except (CheckpointError, FileNotFoundError):
        return None
    if lock.is_in_place():
        return lock
    lock.release()
    return None


def _is_free(folder: Path, name: str) -> bool:
    """Return whether nobody holds a lock of a folder."""
    if not (folder / name).exists():
        return True
    lock = FolderLock(folder, name)
    try:
        lock.acquire()
    except CheckpointError:
        return False
    except OSError:
        return True
    lock.release()
    return True


def _free_place(wanted: NewFolder) -> int:
    living = [claim for claim in _claims() if claim.living and wanted.number(claim.folder)]
    used = {claim.record.place for claim in living if claim.record is not None}
    return next(place for place in range(1, len(used) + 2) if place not in used)


def _holds_nothing(folder: Path) -> bool:
    return all(set(files) <= {CLAIM, LOCK} for _, _, files in os.walk(folder))


def _give_back(folder: Path, lock: FolderLock | None, made: bool) -> None:
    if made and _holds_nothing(folder):
        # Somebody may write there at this moment: then it stays.
        with contextlib.suppress(OSError):
            for path in _bottom_up(folder):
                os.rmdir(path)
            for name in (CLAIM, LOCK):
                (folder / name).unlink(missing_ok=True)
            os.rmdir(folder)
            os.rmdir(folder.parent)
    if lock is not None:
        lock.release()


def _bottom_up(folder: Path) -> Sequence[str]:
    return [path for path, _, _ in os.walk(folder, topdown=False) if Path(path) != folder]


@functools.cache
def _session() -> str:
    return secrets.token_hex(8)


@functools.cache
def _claims() -> weakref.WeakSet[Claim]:
    """Return the claims of this process."""
    claims: weakref.WeakSet[Claim] = weakref.WeakSet()

    def forget_all() -> None:
        for claim in list(claims):
            claim.forget()
        claims.clear()
        _session.cache_clear()

    host.after_fork_in_child(forget_all)
    return claims
