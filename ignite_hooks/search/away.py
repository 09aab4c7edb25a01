"""A trial on another machine: its process, its questions on the way, and its files where the folder is not shared."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ignite_hooks.search.engines import PATIENCE, Job, environment_of_threads, give

LOOK_UP: Final = 0.5
"""Seconds after which a wait lets the thread be interrupted, which is how a cluster cancels what it runs."""


@dataclass(frozen=True)
class SentJob:
    """A job as it is sent to another machine."""

    job: Job
    text: bytes
    """Its configuration: the file may not be there."""
    folder: str
    """The current folder of the search, where modules of one's own may be."""
    threads: int


def run_trial(sent: SentJob, ask: Callable[[float, int], bool]) -> tuple[int, bytes | None]:
    """Run a trial in a process of this machine.

    Args:
        sent: What to run.
        ask: Reports a value at a step to the study, and returns whether the trial is pruned.

    Returns:
        The exit code of the process, and an archive of its files if this machine does not see the folder of the search.
    """
    if seen_here(sent):
        return _run(sent.job, sent, ask), None
    with tempfile.TemporaryDirectory(prefix="ignite-hooks-trial-") as place:
        name = sent.job.folder.name
        job = Job(
            sent.job.number,
            Path(place, f"{name}.yaml"),
            Path(place, name),
            Path(place, f"{name}.log"),
            sent.job.pruning,
        )
        job.config.write_bytes(sent.text)
        return _run(job, sent, ask), packed(job)


def seen_here(sent: SentJob) -> bool:
    """Return whether this machine sees the folder of the search: what the search wrote last is there."""
    try:
        return sent.job.config.read_bytes() == sent.text
    except OSError:
        return False


def packed(job: Job) -> bytes:
    """Return the folder of a trial and its log as an archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in (job.folder, job.log):
            if path.exists():
                archive.add(path, path.name)
    return file.getvalue()


def unpack(content: bytes, job: Job) -> None:
    """Write the files of a trial to where they would be if it had run on this machine.

    Raises:
        tarfile.TarError: It is no archive, or has a file that would lie outside of the folder of the trial.
    """
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for one in archive:
            top, _, name = one.name.partition("/")
            if one.name == job.log.name and one.isfile():
                archive.extract(one, job.log.parent, filter="data")
            elif top == job.folder.name and name:
                # Unpacked within that folder, and not beside it, so that nothing leaves it by its name or a link.
                target = one.linkname.partition("/")[2] if one.islnk() else one.linkname
                archive.extract(one.replace(name=name, linkname=target, deep=False), job.folder, filter="data")


def _run(job: Job, sent: SentJob, ask: Callable[[float, int], bool]) -> int:
    own, its = socket.socketpair()
    pruning = {name: job.pruning[name] for name in ("monitor", "mode")}
    wanted = {"config": str(job.config), "work_dir": str(job.folder), "pruning": pruning, "parent": os.getpid()}
    with own:
        with its, job.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ignite_hooks.search.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment_of_threads(sent.threads)},
                cwd=sent.folder if os.path.isdir(sent.folder) else None,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
            give(process, {**wanted, "line": its.fileno()})
        try:
            _answer(process, own, ask)
        except BaseException:
            # The search was interrupted, or cannot be asked: the trial may save.
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        return process.wait()


def _answer(process: subprocess.Popen[bytes], line: socket.socket, ask: Callable[[float, int], bool]) -> None:
    """Answer the questions of a trial until its process has ended, even if processes that it started go on."""
    with line.makefile("rb") as questions:
        while process.poll() is None:
            if not select.select([line], [], [], LOOK_UP)[0]:
                continue
            if not (question := questions.readline()):
                break
            asked = json.loads(question)
            line.sendall(json.dumps(ask(asked["value"], asked["step"])).encode() + b"\n")
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_UP)
