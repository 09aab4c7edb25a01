"""Which checkpoints a tracker gets while a run goes on: names, times, and files that stay until they are sent."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.model.class_names import class_names_of
from ignite_hooks.store.manifest import Entry

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

FOLDER = ".uploads"
"""The folder below the work directory whose files are checkpoints that wait to be sent."""
LAST = "last"
"""The name of the newest checkpoint there."""


@dataclass
class Uploads:
    """Decides what is sent: the best when it is found, the last one from time to time and at the end.

    Args:
        every: Seconds between two checkpoints that are sent only because they are the newest.
        clock: Returns the time in seconds.

    Example:
        >>> entry = Entry("epoch_1.pth", 1, "xxh3_128:" + "0" * 32, 1, 10)
        >>> uploads = Uploads(every=60.0, clock=lambda: 0.0)
        >>> [name for name, _ in uploads.due({"best": entry, "last": entry})]
        ['best']
        >>> [name for name, _ in uploads.due({"best": entry, "last": entry}, at_end=True)]
        ['last']
    """

    every: float
    clock: Callable[[], float] = time.monotonic
    sent: dict[str, str] = field(default_factory=dict)
    """The checksum of what was given to the tracker last, by name."""
    _last_at: float | None = None

    def due(self, there: Mapping[str, Entry], *, at_end: bool = False) -> Iterator[tuple[str, Entry]]:
        """Yield what is to be sent now, and count it as sent."""
        now = self.clock()
        self._last_at = now if self._last_at is None else self._last_at
        for name, entry in there.items():
            waits = name == LAST and not at_end and now - self._last_at < self.every
            if waits or self.sent.get(name) == entry.checksum:
                continue
            self.sent[name] = entry.checksum
            if name == LAST:
                self._last_at = now
            yield name, entry


def named_checkpoints(runner: Runner, saved: Path | None) -> dict[str, tuple[Path, Entry]]:
    """Return the checkpoints that a tracker may have, by the names that they have there.

    Args:
        runner: The run.
        saved: The newest checkpoint.
    """
    files: dict[str, Path | None] = {}
    for metric, record in runner.best.items():
        name = "best" if len(runner.best) == 1 else f"best {metric.replace('/', '_')}"
        files[name] = runner.work_dir / record.file if record.file else None
    delivered = runner.state.delivered
    if delivered is not None and delivered.file and runner.work_dir / delivered.file not in files.values():
        files["delivered"] = runner.work_dir / delivered.file
    files[LAST] = saved
    found = {}
    for name, path in files.items():
        # A sharded one is a folder, which a tracker takes only as an archive.
        if path is not None and path.is_file() and (entry := _entry_of(runner, path)) is not None:
            found[name] = path, entry
    return found


def _entry_of(runner: Runner, path: Path) -> Entry | None:
    store = runner.checkpoints.store(path.parent)
    return next((entry for entry in store.entries() if entry.name == path.name), None)


def kept_for_sending(work_dir: Path, path: Path, name: str, iteration: int) -> Path:
    """Return a second name of a file, which holds its content until it is sent, whatever becomes of the first.

    What waits under the same name is dropped, since only the newest is of use. Where the disk has no second names, it
    is the file itself.
    """
    folder = work_dir / FOLDER
    kept = folder / f"{name}-{iteration}{path.suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{name}-*{path.suffix}"):
            old.unlink()
        os.link(path, kept)
    except OSError:
        return path
    return kept


def forget_sent(work_dir: Path, kind: str) -> None:
    """Remove what waits to be sent, unless records wait as well."""
    if not any(work_dir.glob(f"{kind}*.spool")):
        with contextlib.suppress(OSError):
            shutil.rmtree(work_dir / FOLDER)


def details_of(runner: Runner, name: str, entry: Entry) -> dict[str, Any]:
    """Return what a tracker shows of a checkpoint, and what verifies it."""
    classes = class_names_of(runner) or ()
    return {
        "iteration": entry.iteration,
        "epoch": entry.epoch,
        "run": entry.run,
        "size": entry.size,
        "checksum": entry.checksum,
        "file": entry.name,
        "metrics": dict(entry.metrics),
        "tags": [name.partition(" ")[0]],
        "labels": {str(label): number for number, label in enumerate(classes)},
    }
