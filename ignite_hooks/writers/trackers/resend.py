"""``ignite-hooks send``: deliver later what could not be delivered during a run."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ignite_hooks.text import counted
from ignite_hooks.writers.trackers.spool import SUFFIX, UNSENT, Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Continued, Unreachable
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter
from ignite_hooks.writers.trackers.turn import Turn, every_turn

MEANWHILE = "has been delivered meanwhile"
NOTHING = "nothing was in it"
WANDB_HEAD = 7
"""The bytes with which a file of W&B begins, before its first record."""
logger = logging.getLogger("ignite_hooks")


def waiting(folder: Path, make: Callable[..., Any]) -> Iterator[tuple[Path, Callable[[], str]]]:
    """Yield each file that waits in a folder, with a function that sends it and returns a message, or raises an error.

    That of a run that still delivers is left to it: `NotOurTurnError`.

    Args:
        folder: The folder, which is searched with all folders in it.
        make: Returns the class of a writer by its name.
    """
    spools = sorted(folder.rglob(f"*{SUFFIX}"))
    first = [path for path in spools if not Spool(path).read_header().get("follows")]
    for path in first:
        yield path, lambda path=path: _send_spool(path, make)  # type: ignore[misc]
    for path in sorted(folder.rglob("clearml-offline-*.zip")):
        yield path, lambda path=path: _send_clearml(path)  # type: ignore[misc]
    of_wandb = [*folder.rglob("wandb/offline-run-*/*.wandb"), *folder.rglob("wandb/run-*/*.wandb")]
    for path in sorted(filter(_waits, of_wandb)):
        yield path, lambda path=path: _send_wandb(path)  # type: ignore[misc]
    for path in spools:
        if path not in first:
            yield path, lambda path=path: _send_spool(path, make)  # type: ignore[misc]


def _send_spool(path: Path, make: Callable[..., Any]) -> str:
    with Turn(path, "send").taken():
        return _send_records(path, make) if path.exists() else MEANWHILE


def _send_records(path: Path, make: Callable[..., Any]) -> str:
    spool = Spool(path)
    header = spool.read_header()
    if not header and not len(spool):
        # Its process was killed, or its disk full, before the first line.
        path.unlink()
        return NOTHING
    kind = make(str(header.get("writer")))
    if not (isinstance(kind, type) and issubclass(kind, TrackerWriter)):
        raise ValueError(f"it is for {header.get('writer')}, which cannot send records later")
    if _is_in_archive(path.parent, header.get("session")):
        spool.remove()
        return "the archive of ClearML beside it has the same"
    writer = kind(**header.get("settings", {}), mode="online", work_dir=path.parent)
    writer.run_id = header.get("run")
    if header.get("follows") and writer.has_unsent(str(writer.run_id)):
        raise ConnectionError("the run that it belongs to has not been sent, so it waits")
    writer.began = next((record.time for record in spool.records(pictures=False)), None)
    tracker = writer.connect()
    tracker.name = header["writer"]
    if header.get("run") and not header.get("follows"):
        tracker = Continued(tracker, tracker.delivered() if header.get("resumed") is True else tracker.arrived())
    # Kept now, so that a second attempt begins no other run and asks what has arrived by the first.
    spool.say(run=writer.run_id)
    writer.note_run(header.get("key"))
    sent = 0
    while batch := spool.next_batch():
        if tracker.vouches:
            spool.forget_taken()
        found = [at_home(record, str(header.get("folder")), path.parent) for record in batch]
        tracker.send([record for record in found if record is not None])
        sent += len(batch)
        spool.took()
    ended = header.get("ended")
    if not tracker.close(ended if ended in ("stopped", "failed") else "finished"):
        raise ConnectionError("it is not known whether everything has arrived")
    spool.forget_taken()
    return f"{counted(sent, 'record')} sent to {header['writer'].removesuffix('Writer')}"


def _is_in_archive(folder: Path, session: object) -> bool:
    """Return whether an offline session of ClearML has become an archive, which it may after nobody waited any more."""
    if not isinstance(session, str) or not re.fullmatch(r"offline-[0-9a-f]+", session):
        return False
    return any((folder / f"clearml-{session}{suffix}").is_file() for suffix in (".zip", ".sent"))


def at_home(record: TrackerRecord, written_in: str, folder: Path) -> TrackerRecord | None:
    """Return the record with the present path of its file, or None if the file is outside the work directory.

    Otherwise the author of a spool could choose any file of this machine to be sent.

    Args:
        record: The record that was read.
        written_in: The path of the work directory when the record was written.
        folder: The work directory.
    """
    if record.what != "artifact":
        return record
    given = Path(str(record.content.get("path")))
    path = (folder / (given.relative_to(written_in) if given.is_relative_to(written_in) else given)).resolve()
    if not path.is_relative_to(folder.resolve()):
        logger.warning("%s is not in %s, so it is not sent", given, folder)
        return None
    return replace(record, content={**record.content, "path": str(path)})


def _send_clearml(path: Path) -> str:
    with every_turn(path.parent, "clearml", "send"):
        return _send_session(path) if path.exists() else MEANWHILE


def _send_session(path: Path) -> str:
    from clearml import Task

    from ignite_hooks.writers.trackers.clearml import why_unreachable
    from ignite_hooks.writers.trackers.clearml_session import complete, unpack

    # The SDK would ask for many minutes, and say nothing.
    if reason := why_unreachable():
        raise Unreachable(reason)
    with tempfile.TemporaryDirectory(prefix="clearml-") as folder:
        metadata = unpack(path, Path(folder), Task._get_default_session().get_files_server_host())
        task = Task.import_offline_session(folder)
    if not task:
        raise ConnectionError("ClearML did not take it")
    path.rename(path.with_suffix(".sent"))
    note_new_name(path.parent, path.stem.removeprefix("clearml-"), str(task))
    complete(str(task), metadata)
    return f"sent to ClearML as task {task}"


def note_new_name(folder: Path, before: str, now: str) -> None:
    """Tell what waits for a run, and whoever goes on in it, that the run has got another name by being sent."""
    for path in folder.glob(f"*{SUFFIX}"):
        if (spool := Spool(path)).read_header().get("run") == before:
            spool.say(run=now)
    for path in folder.glob(".*.run"):
        with contextlib.suppress(OSError, ValueError):
            noted = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(noted, dict) and before in (noted.get("run"), noted.get("session")):
                path.write_text(json.dumps({"run": now, "key": noted.get("key")}), encoding="utf-8")


def _send_wandb(path: Path) -> str:
    with every_turn(path.parents[2], "wandb", "send"):
        return _sync(path) if _waits(path) else MEANWHILE


def _waits(path: Path) -> bool:
    """Return whether a file of W&B has not been sent."""
    if path.parent.name.startswith("offline-"):
        return not path.with_name(f"{path.name}.synced").exists()
    return path.with_name(f"{path.name}{UNSENT}").exists()


def _sync(path: Path) -> str:
    if path.stat().st_size <= WANDB_HEAD:
        # Its process was killed before the first record; W&B would call that an error.
        path.unlink()
        path.with_name(f"{path.name}{UNSENT}").unlink(missing_ok=True)
        return NOTHING
    from ignite_hooks.writers.trackers.wandb import why_unreachable

    # W&B would ask for minutes, and say nothing.
    if reason := why_unreachable():
        raise Unreachable(reason)
    # Otherwise W&B leaves a folder in the current one.
    environment = {**os.environ, "WANDB_MODE": "online", "WANDB_DIR": str(path.parents[2].absolute())}
    command = [sys.executable, "-m", "wandb", "sync", "--include-online", str(path.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    words = (done.stderr or done.stdout).strip().splitlines()
    if done.returncode or not path.with_name(f"{path.name}.synced").exists():
        raise ConnectionError(words[-1] if words else f"wandb sync ended with {done.returncode}")
    path.with_name(f"{path.name}{UNSENT}").unlink(missing_ok=True)
    return "sent to W&B"
