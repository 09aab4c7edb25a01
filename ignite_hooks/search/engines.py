"""What runs trials: processes on this machine, or machines of others. `makers.py` says which there are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ignite_hooks.system.host import usable_cores
from ignite_hooks.trainer.search_section import SearchSection

PATIENCE: Final = 30.0
"""The seconds that trials have to save when the search is interrupted."""


@dataclass(frozen=True)
class Job:
    """One trial that is to run."""

    number: int
    config: Path
    """The file of its configuration, which trains as it is."""
    folder: Path
    """Its work directory, which has `result.json` when the trial has ended."""
    log: Path
    """The file of what it says."""
    pruning: Mapping[str, Any]
    """The settings of the `PruningHook` that asks the study in its storage."""
    source: str = ""
    """The file of the search, which another machine may have in a repository."""


@dataclass(frozen=True)
class Ended:
    """A trial that no longer runs."""

    number: int
    code: int = 0
    """Exit code of its process."""
    killed: str = ""
    """What killed its process or its machine: such a trial is repeated."""
    reason: str = ""
    """Why it has failed, where its folder does not say it."""
    pruned: str = ""
    """Why the engine has stopped it, where the pruner is asked by the engine."""
    value: float | None = None
    """The best value of the metric, where no hook of the trial has kept it."""


class Engine(Protocol):
    """What runs trials for a search, which starts at most ``search.jobs`` of them at a time."""

    def start(self, job: Job) -> None:
        """Let a trial begin, without waiting for it."""

    def ended(self) -> Sequence[Ended]:
        """Return the trials that have ended since the last call, without waiting for others."""

    def close(self) -> None:
        """Let what is still running save and stop, and kill what does not."""


class LocalProcesses:
    """Trials in processes of this machine, which share its cores and its GPUs.

    Args:
        section: What every trial may have.
    """

    def __init__(self, section: SearchSection) -> None:
        self._section = section
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}

    def start(self, job: Job) -> None:
        """Start a process."""
        wanted = {
            "config": str(job.config),
            "work_dir": str(job.folder),
            "pruning": dict(job.pruning),
            "parent": os.getpid(),
        }
        # Its place among those that run at the same time decides on its GPUs.
        taken = {place for _, place in self._running.values()}
        place = next(i for i in range(len(taken) + 1) if i not in taken)
        with job.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ignite_hooks.search.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment_of(self._section, place)},
                # Ctrl-C is for the search, which then asks its trials to stop.
                start_new_session=True,
            )
        give(process, wanted)
        self._running[job.number] = process, place

    def ended(self) -> list[Ended]:
        """Return the trials whose processes have ended."""
        codes = {number: process.poll() for number, (process, _) in self._running.items()}
        found = [ended_with(number, code) for number, code in codes.items() if code is not None]
        for each in found:
            del self._running[each.number]
        return found

    def close(self) -> None:
        """End the processes."""
        for process, _ in self._running.values():
            process.terminate()
        until = time.monotonic() + PATIENCE
        for process, _ in self._running.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def give(process: subprocess.Popen[bytes], wanted: Mapping[str, Any]) -> None:
    """Tell the process of a trial what to do; one that has died already is seen to have ended."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as given:
        given.write(json.dumps(wanted).encode())


def ended_with(number: int, code: int) -> Ended:
    """Return the end of a trial by the exit code of its process, which a signal makes negative."""
    return Ended(number, killed=f"killed by {signal.Signals(-code).name}") if code < 0 else Ended(number, code)


def threads_of(section: SearchSection) -> int:
    """Return the number of threads of a trial; of other machines it is not known how many cores they have."""
    if section.cpus is not None or section.engine_name != "local":
        return section.cpus or 1
    return max(1, usable_cores() // section.jobs)


def environment_of_threads(threads: int) -> dict[str, str]:
    """Return the variables that give a process its threads."""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def environment_of(section: SearchSection, place: int) -> dict[str, str]:
    """Return the variables of a trial on this machine: its threads, and its GPUs."""
    told = environment_of_threads(threads_of(section))
    if (share := section.gpus) is not None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        all_of_them = visible.split(",") if visible else [str(i) for i in range(share * section.jobs)]
        told["CUDA_VISIBLE_DEVICES"] = ",".join(all_of_them[place * share : (place + 1) * share])
    return told
