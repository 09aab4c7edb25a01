"""The list of the checkpoints in a folder, and what each must contain."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.checksums import FAST, algorithm_of, checksum_of_bytes, digits_of, is_checksum, marked
from ignite_hooks.store.files import open_regular, write_whole
from ignite_hooks.store.names import MANIFEST, check_name
from ignite_hooks.text import indented_json

Kind = Literal["periodic", "best", "last", "manual", "exception", "published", "found", "delivered"]

FILE_NAME: Final = MANIFEST
FORMAT: Final = 2
KINDS: Final = get_args(Kind)
# At one iteration: what is saved for resuming first, then what the user asked for, then the rest.
PREFERENCE: Final[tuple[Kind, ...]] = (
    "last",
    "periodic",
    "manual",
    "found",
    "exception",
    "best",
    "published",
    "delivered",
)
NOT_FOR_RESUMING: Final[tuple[Kind, ...]] = ("published", "delivered")
LARGEST_MANIFEST: Final = 64 * 1024 * 1024
_RUN = re.compile(r"[0-9a-f]{0,64}")
STATE: Final = "state.pth"
"""The file of a sharded checkpoint that holds everything but the shards."""
# Those of torch.distributed.checkpoint, and ours.
_PART_NAME = re.compile(r"\.metadata|state\.pth|__[0-9]{1,9}_[0-9]{1,9}\.distcp")


@dataclass(frozen=True)
class CheckpointFile:
    """One file of a sharded checkpoint, and what it must contain."""

    name: str
    size: int
    checksum: str

    def __post_init__(self) -> None:
        if not _PART_NAME.fullmatch(str(self.name)):
            raise CheckpointError(f"{self.name!r} is not a name for a file of a sharded checkpoint")
        _check_content(self.name, self.size, self.checksum)


@dataclass(frozen=True)
class Entry:
    """One checkpoint: its name, what it must contain, and which moment of the run it holds.

    A sharded one is a folder that holds `files`; `size` is their sum and `checksum` that of their list.
    """

    name: str
    size: int
    checksum: str
    epoch: int
    iteration: int
    metrics: dict[str, float] = field(default_factory=dict, hash=False)
    kind: Kind = "periodic"
    files: tuple[CheckpointFile, ...] = ()
    run: str = ""
    """The id of the run that saved it; empty in files from before runs had ids."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if not is_run_id(self.run):
            raise CheckpointError(f"{self.name}: run is {self.run!r}, expected an id of a run")
        _check_content(self.name, self.size, self.checksum)
        for what in ("epoch", "iteration"):
            _check_number(self.name, what, getattr(self, what))
        if self.files and (self.size, self.checksum) != content_of(self.files):
            raise CheckpointError(f"{self.name}: size or checksum is not that of its files")
        if self.kind not in KINDS:
            raise CheckpointError(f"{self.name}: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        # JSON null stands for all that is not finite; with math.nan itself, equal entries compare equal.
        finite = {key: number if math.isfinite(number) else math.nan for key, number in self.metrics.items()}
        object.__setattr__(self, "metrics", finite)


def is_run_id(value: object) -> bool:
    """Return whether a value can be the id of a run, or the empty text of a file without one."""
    return isinstance(value, str) and _RUN.fullmatch(value) is not None


def content_of(files: Sequence[CheckpointFile]) -> tuple[int, str]:
    """Return the size of all files of a sharded checkpoint and a checksum of their checksums."""
    if len({file.name for file in files}) != len(files):
        raise CheckpointError("a file of a sharded checkpoint is listed twice")
    # As in the first version of the format, where it was one of sha256 alone.
    first = all(algorithm_of(file.checksum) == "sha256" for file in files)
    listed = sorted([file.name, file.size, digits_of(file.checksum) if first else file.checksum] for file in files)
    checksum = checksum_of_bytes(json.dumps(listed).encode(), "sha256" if first else FAST)
    return sum(file.size for file in files), checksum


def _check_content(name: str, size: object, checksum: object) -> None:
    _check_number(name, "size", size)
    if not is_checksum(checksum):
        raise CheckpointError(f"{name}: checksum is {checksum!r}, expected xxh3_128 or sha256, a colon and its digits")


def _check_number(name: str, what: str, number: object) -> None:
    if type(number) is not int or number < 0:
        raise CheckpointError(f"{name}: {what} is {number!r}, expected a whole number")


def resuming_order(entry: Entry) -> tuple[bool, int, int]:
    """Return a sort key, best checkpoint to resume from first; what a failing run saved is not exact and comes last."""
    return entry.kind == "exception", -entry.iteration, PREFERENCE.index(entry.kind)


@dataclass(frozen=True)
class Manifest:
    """The checkpoints of a folder, in the order they were saved.

    A crash can fall between two steps on disk, so each step is announced here first: `pending` is a file
    about to get its name, `deleting` are files about to be deleted. The next reader checks what has happened.
    """

    entries: tuple[Entry, ...] = ()
    pending: Entry | None = None
    deleting: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        if len(names) != len(set(names)):
            raise CheckpointError("a name is listed twice")

    def find(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def newest_first(self) -> list[Entry]:
        """Return the entries to resume from, best first; of two of one kind and iteration, the one saved last.

        Only those of the run that saved last: another run may have left its files here.
        """
        latest_first = [entry for entry in self.entries[::-1] if entry.kind not in NOT_FOR_RESUMING]
        return sorted((entry for entry in latest_first if entry.run in ("", self.run)), key=resuming_order)

    @property
    def run(self) -> str:
        """The id of the run that saved last; empty if none of the files has an id."""
        return next((entry.run for entry in reversed(self.entries) if entry.run), "")

    def with_found(self, entries: Iterable[Entry]) -> Manifest:
        """Return a manifest that lists these files too, as older than all others."""
        return replace(self, entries=(*entries, *self.entries))

    def announce(self, entry: Entry) -> Manifest:
        """Return a manifest that says that the file of this entry is about to get its name."""
        return Manifest(self.entries, entry, tuple(old for old in self.deleting if old.name != entry.name))

    def settle(self, happened: bool) -> Manifest:
        """Return a manifest that says whether the pending file got its name."""
        if self.pending is None or not happened:
            return replace(self, pending=None)
        others = tuple(entry for entry in self.entries if entry.name != self.pending.name)
        return replace(self, entries=(*others, self.pending), pending=None)

    def without(self, entries: Iterable[Entry]) -> Manifest:
        """Return a manifest that says that these files are about to be deleted."""
        going = {(entry.name, entry.checksum) for entry in entries}
        gone = tuple(entry for entry in self.entries if (entry.name, entry.checksum) in going)
        kept = tuple(entry for entry in self.entries if entry not in gone)
        return replace(self, entries=kept, deleting=(*self.deleting, *gone))

    def deleted(self, entry: Entry) -> Manifest:
        """Return a manifest that says that the file of this entry is deleted."""
        return replace(self, deleting=tuple(other for other in self.deleting if other is not entry))

    def save(self, folder: Path) -> None:
        """Write the manifest; a reader finds the old one or this one, never a part."""
        write_whole(folder / FILE_NAME, self.encode())

    def encode(self) -> bytes:
        """Return the content of its file."""
        content = {
            "format": FORMAT,
            "entries": [_to_json(entry) for entry in self.entries],
            "pending": _to_json(self.pending) if self.pending else None,
            "deleting": [_to_json(entry) for entry in self.deleting],
        }
        content["checksum"] = _checksum(content)
        return indented_json(content, allow_nan=False).encode()

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder: empty if there is none; raise an error if it cannot be trusted."""
        path = folder / FILE_NAME
        try:
            with open_regular(path) as file:
                return cls.decode(file.read(LARGEST_MANIFEST + 1), path)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error

    @classmethod
    def decode(cls, data: bytes, path: object) -> Manifest:
        """Return the manifest in the content of a file; raise an error that names its path if it cannot be trusted."""
        try:
            if len(data) > LARGEST_MANIFEST:
                raise ValueError(f"more than {LARGEST_MANIFEST} bytes")
            return _from_json(json.loads(data, parse_constant=_refuse_constant))
        except (ValueError, TypeError, OverflowError, RecursionError, CheckpointError) as error:
            raise DamagedManifestError(f"{path}: {error}") from error


class DamagedManifestError(CheckpointError):
    """A manifest that is not ours, or was changed after it was written."""


def entry_as_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data."""
    return _to_json(entry)


def entry_from_json(content: Any) -> Entry:
    """Return the entry in plain data; raise an error if it can be none."""
    return _entry(content)


def _to_json(entry: Entry) -> dict[str, Any]:
    metrics = {key: value if math.isfinite(value) else None for key, value in entry.metrics.items()}
    # Lists as in a file: one rank alone reads this without a file between.
    content = {**asdict(entry), "metrics": metrics, "files": [asdict(file) for file in entry.files]}
    if not entry.files:
        # Most checkpoints are one file; those from before ids have none.
        del content["files"]
    if not entry.run:
        del content["run"]
    return content


def _from_json(content: Any) -> Manifest:
    if not isinstance(content, dict) or content.get("format") not in (1, FORMAT):
        raise ValueError(f"not a manifest of format 1 or {FORMAT}")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise ValueError("wrong checksum")
    if set(content) != {"format", "entries", "pending", "deleting"}:
        raise ValueError(f"unexpected fields: {', '.join(sorted(content))}")
    pending = content["pending"]
    read = _entry if content["format"] == FORMAT else _first_entry
    return Manifest(
        tuple(read(entry) for entry in _list(content["entries"])),
        None if pending is None else read(pending),
        tuple(read(entry) for entry in _list(content["deleting"])),
    )


def _first_entry(content: Any) -> Entry:
    """Return an entry of the first version of the format, whose checksums were sha256 and not marked."""
    if isinstance(content, dict) and isinstance(content.get("files", []), list):
        files = [_with_marked_checksum(file) for file in content.get("files", [])]
        content = {**_with_marked_checksum(content), **({"files": files} if files else {})}
    return _entry(content)


def _with_marked_checksum(content: Any) -> Any:
    if not isinstance(content, dict) or "sha256" not in content:
        raise ValueError("an entry without sha256")
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return {**rest, "checksum": marked("sha256", str(content["sha256"]))}


def _entry(content: Any) -> Entry:
    if not isinstance(content, dict) or {*content, "files", "run"} != {each.name for each in fields(Entry)}:
        raise ValueError("an entry with missing or unknown fields")
    metrics = content["metrics"]
    if not isinstance(metrics, dict):
        raise ValueError("metrics are not a mapping")
    numbers = {key: _number(value) for key, value in metrics.items()}
    files = tuple(_part(file) for file in _list(content.get("files", [])))
    return Entry(**{**content, "metrics": numbers, "files": files})


def _part(content: Any) -> CheckpointFile:
    if not isinstance(content, dict) or set(content) != {each.name for each in fields(CheckpointFile)}:
        raise ValueError("a file with missing or unknown fields")
    return CheckpointFile(**content)


def _number(value: object) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise ValueError(f"metric {value!r} is not a number")
    return float(value)  # type: ignore[arg-type]


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("entries are not a list")
    return value


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
