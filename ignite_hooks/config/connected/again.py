"""Where the task of an agent has its files, and what it goes on from if it is run again."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process
from ignite_hooks.errors import CheckpointError
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.store.checksums import is_checksum
from ignite_hooks.store.manifest import Entry
from ignite_hooks.store.names import MANIFEST
from ignite_hooks.store.verify import why_unusable_file
from ignite_hooks.writers.trackers.clearml_models import LAST, fetched
from ignite_hooks.writers.trackers.clearml_task import WORK_DIR, folder_of_task, task_of_agent

FETCHED = ".fetched"
"""The folder below the work directory for checkpoints that come from the server."""


def place_of_task(named: str | Path | None, stem: str, resume: Any) -> tuple[Path, Any]:
    """Return the work directory of the task that an agent runs, and what the run resumes from.

    A task that has checkpoints of its own, here or as its output model, goes on from these, whatever its configuration
    names: an agent that runs it again uses the same command. The folder bears the id of the task, so a clone finds none
    of its parent.

    Args:
        named: The work directory that the configuration or the script names.
        stem: What a run is called that names none.
        resume: What the configuration or the script says, as for ``attach_hooks``.
    """
    folder = folder_of_task(named, stem)

    def look() -> Any:
        if not is_main_process():
            return None
        # A search of ClearML plays the agent on this machine, and removes nothing.
        played = os.environ.get("CLEARML_SIMULATE_REMOTE_TASK")
        if not folder.is_absolute() and not os.environ.get(WORK_DIR) and not played:
            logging.getLogger(LOGGER_NAME).warning(
                "files go to %s, which the agent removes before its next task: set %s on its machine, or name an "
                "absolute work_dir",
                folder.absolute(),
                WORK_DIR,
            )
        if any(folder.rglob(MANIFEST)):
            return "auto"
        # The machine may be another one. A clone has no models of its parent.
        found = fetched(task_of_agent(), LAST, folder / FETCHED)
        return resume if found is None else str(verified(*found))

    return folder, broadcast_object(fail_on_all_ranks(look))


def verified(path: Path, address: str) -> Path:
    """Return a checkpoint that comes from the server, if it is the one that was saved.

    Args:
        path: The checkpoint.
        address: Its address there, whose last part ends with its checksum.

    Raises:
        CheckpointError: It is another one.
    """
    found = re.search(r"-([a-z0-9_]+)-([0-9a-f]+)\.\w+$", address)
    checksum = f"{found[1]}:{found[2]}" if found else ""
    why = f"{address} has no checksum in its name"
    if is_checksum(checksum):
        why = why_unusable_file(path, Entry(path.name, path.stat().st_size, checksum, 0, 0)) or ""
    if why:
        path.unlink()
        raise CheckpointError(f"the model {path.stem!r} of the ClearML task is not what was saved: {why}")
    logging.getLogger(LOGGER_NAME).warning("goes on from the model %r of the ClearML task: %s", path.stem, address)
    return path
