"""Where the checkpoints of a run are kept: the folders, on which machines, and their mirrors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ignite_hooks.checkpoint.machine_copies import writing_ranks
from ignite_hooks.checkpoint.machines import Machines
from ignite_hooks.distributed.collectives import all_gather, fail_on_all_ranks, is_main_process, rank, world_size
from ignite_hooks.distributed.launcher import command
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.wrapping import is_sharded
from ignite_hooks.store.mirror.mirror import Mirror

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Retire, Store

AFTER_SIGNAL = 10.0
"""Seconds for which the end of a run waits for a mirror after a signal: something else is waiting, too."""


class Homes:
    """The places that hold the checkpoints of a run.

    Args:
        runner: The run.
        store: Returns the store of a folder.
    """

    def __init__(self, runner: Runner, store: Callable[[Path], Store]) -> None:
        self._runner, self._store = weakref.ref(runner), weakref.WeakMethod(store)
        self.opened: set[Path] = set()
        """The folders that this rank writes to."""
        self.mirrors: dict[Path, Mirror] = {}
        """The mirrors of folders, on rank 0."""
        self.newest: Path | None = None
        """The checkpoint of this run that was committed last."""
        self._writers: dict[Path, list[int]] = {}
        self._machines: Machines | None = None

    def open(self, folder: Path, *, is_new_run: bool, per_machine: bool = False) -> None:
        """Open a folder for writing; a new run moves earlier checkpoints aside. All ranks have to call it.

        Args:
            folder: The folder.
            is_new_run: Whether earlier checkpoints are none of its own.
            per_machine: Whether every machine keeps the checkpoints.
        """
        writers = [0]
        if world_size() > 1:
            self._machines = self._machines or Machines.of_all_ranks()
            if per_machine:
                writers = writing_ranks(folder, self._machines)
        self._writers[folder] = writers
        moved = fail_on_all_ranks(lambda: self._open(folder, is_new_run) if rank() in writers else None)
        if moved is not None:
            self._run.logger.info("checkpoints of an earlier run are now in %s", moved)
        # A sharded model needs one folder that all of them see.
        several = self._machines is not None and self._machines.several and not is_sharded(self._run.model)
        if several and is_main_process() and self._machines is not None:
            self._tell_where(folder, self._machines, per_machine)

    def _open(self, folder: Path, is_new_run: bool) -> Path | None:
        store = self._store_of(folder).open()
        self.opened.add(folder)
        return store.start_afresh() if is_new_run else None

    def _tell_where(self, folder: Path, machines: Machines, per_machine: bool) -> None:
        hosts = [machines.hosts[number] for number in self._writers[folder]]
        if len(hosts) > 1:
            self._run.logger.info("checkpoints are kept in %s on %s; logs on %s", folder, ", ".join(hosts), hosts[0])
        elif per_machine:
            self._run.logger.info("all machines see %s: one copy of each checkpoint is kept there", folder)
        else:
            self._run.logger.info(
                "files on the first machine only: %s on %s; with copies: per_machine, or a mirror, the run can go on "
                "without it",
                folder,
                hosts[0],
            )

    @property
    def folders(self) -> list[Path]:
        """The folders that any rank writes to, in the same order on all ranks."""
        return list(self._writers)

    def check_shared(self, folder: Path) -> None:
        """Raise an error on all ranks if machines do not see one folder; all ranks have to call it."""
        if self._machines is None or not self._machines.several:
            return
        first, *others = writing_ranks(folder, self._machines)
        if others:
            one, other = self._machines.hosts[first], self._machines.hosts[others[0]]
            raise CheckpointError(
                f"a sharded model is saved by all machines together, but {folder} on {other} is not the one on {one}: "
                "put the work directory on a disk that all of them share"
            )

    def writes(self, folder: Path) -> bool:
        """Return whether this rank writes checkpoints in a folder."""
        return rank() in self._writers.get(folder, [0])

    def has_copies(self, folder: Path) -> bool:
        """Return whether several machines keep the checkpoints of a folder."""
        return len(self._writers.get(folder, [0])) > 1

    def agreed(self, folder: Path, error: CheckpointError | None) -> CheckpointError | None:
        """Return rank 0's error of a save, on every rank; it is told where another machine has failed."""
        if world_size() == 1:
            return error
        said = all_gather(None if error is None else str(error))
        for number in self._writers.get(folder, [0])[1:]:
            if said[number] is not None and is_main_process() and self._machines is not None:
                self._run.logger.warning("the copy%s is missing: %s", self._machines.on(number), said[number])
        if is_main_process():
            return error
        return None if said[0] is None else CheckpointError(f"rank 0: {said[0]}")

    def advice(self) -> str:
        """Return how a run that has lost a rank goes on: from which checkpoint, and with which command."""
        newest = self.newest or self._run.state.resumed_from
        words = "nothing was saved yet" if newest is None else f"the newest checkpoint is {newest}"
        if newest is not None and self._machines is not None:
            words += self._machines.on(self._machines.mine if self.has_copies(newest.parent) else 0)
        return f"; {words}; to go on, on all machines, with resume: auto: {command()}"

    # -- mirrors ----------------------------------------------------------------------------------------------

    def add_mirror(self, folder: Path, url: str, timeout: float) -> None:
        """Give a folder a mirror, which `begin_mirrors` starts; on rank 0."""
        if folder not in self.mirrors:
            run = self._run
            self.mirrors[folder] = Mirror(url, folder, run.work_dir, run.logger, timeout)

    def begin_mirrors(self) -> None:
        """Start copying to the mirrors that are not yet in use, once the id of the run is known."""
        for folder, mirror in self.mirrors.items():
            if not mirror.begun:
                mirror.begin(self._run.state.run_id, self._store_of(folder).entries())

    def committed(self, path: Path, rule: Retire | None) -> None:
        """Note that a checkpoint is there, and pass it on to the mirror of its folder."""
        self.newest = path
        mirror = self.mirrors.get(path.parent)
        if mirror is not None:
            entry = next((one for one in self._store_of(path.parent).entries() if one.name == path.name), None)
            if entry is not None:
                mirror.committed(entry, rule)

    def close(self) -> None:
        """Wait for the mirrors, for a time, and forget the places."""
        try:
            for mirror in self.mirrors.values():
                aborting = self._run.state.aborting
                mirror.finish(min(AFTER_SIGNAL, mirror.timeout) if aborting else mirror.timeout)
        finally:
            self.mirrors.clear()
            self.opened.clear()
            self._writers.clear()
            self._machines = self.newest = None

    @property
    def _run(self) -> Runner:
        runner = self._runner()
        if runner is None:
            raise ReferenceError("the run of these checkpoints is gone")
        return runner

    def _store_of(self, folder: Path) -> Store:
        store = self._store()
        if store is None:
            raise ReferenceError("the run of these checkpoints is gone")
        return store(folder)
