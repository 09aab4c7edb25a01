"""Where the task of an agent has its files, and what it goes on from if it is run again."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.store.names import MANIFEST
from ignite_hooks.writers.trackers.clearml_task import WORK_DIR, folder_of_task


def place_of_task(named: str | Path | None, stem: str, resume: Any) -> tuple[Path, Any]:
    """Return the work directory of the task that an agent runs, and what the run resumes from.

    A task that has checkpoints of its own goes on from these, whatever its configuration names: an agent that runs it
    again uses the same command. The folder bears the id of the task, so a clone finds none of its parent.

    Args:
        named: The work directory that the configuration or the script names.
        stem: What a run is called that names none.
        resume: What the configuration or the script says, as for ``attach_hooks``.
    """
    folder = folder_of_task(named, stem)

    def look() -> Any:
        if not is_main_process():
            return None
        if not folder.is_absolute() and not os.environ.get(WORK_DIR):
            logging.getLogger(LOGGER_NAME).warning(
                "files go to %s, which the agent removes before its next task: set %s on its machine, or name an "
                "absolute work_dir",
                folder.absolute(),
                WORK_DIR,
            )
        return "auto" if any(folder.rglob(MANIFEST)) else resume

    return folder, broadcast_object(fail_on_all_ranks(look))
