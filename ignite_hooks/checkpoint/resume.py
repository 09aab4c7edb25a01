"""Which checkpoint a run continues from, and the way back to its position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.changed_settings import (
    Change,
    ScheduleChange,
    apply,
    changes_since,
    optimizer_settings,
    refuse,
    scheduler_settings,
)
from ignite_hooks.checkpoint.find import find_checkpoint
from ignite_hooks.checkpoint.left_out import missing_parts
from ignite_hooks.checkpoint.newest import Search
from ignite_hooks.checkpoint.script.state import holds_weights
from ignite_hooks.distributed.launcher import restarted
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.manifest import is_run_id

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


GIVEN = Path("load_state_dict()")
"""The name of a state that is no file."""


def resume_run(runner: Runner, wanted: str | Path | bool | dict[str, Any]) -> None:
    """Continue from a checkpoint; where none was named and nothing was saved, start from the beginning.

    Args:
        runner: The run, before its first iteration.
        wanted: The path of the checkpoint, absolute or below the work directory; ``True`` or ``"auto"`` for the newest,
            ``"required"`` for the newest, which must exist; or what a checkpoint holds.
    """
    if isinstance(wanted, dict):
        _resume_from(runner, GIVEN, wanted)
        return
    # A path is never one of these words: a file called `required` is `./required`.
    if isinstance(wanted, bool) or (isinstance(wanted, str) and wanted in ("auto", "required")):
        chosen = Search(runner).newest()
        if chosen is None:
            _start_anew(runner, required=wanted == "required")
            return
        try:
            _resume_from(runner, chosen.path)
        finally:
            chosen.discard()
    else:
        _resume_from(runner, find_checkpoint(runner, wanted))


def _resume_from(runner: Runner, path: Path, given: dict[str, Any] | None = None) -> None:
    checkpoints, logger = runner.checkpoints, runner.logger
    mode, changes = checkpoints.resume_settings, list[Change | ScheduleChange]()
    today = runner.state.first_settings or optimizer_settings(runner.optimizer)
    schedulers = runner.state.first_schedulers
    schedulers = scheduler_settings(runner) if schedulers is None else schedulers

    def check(state: dict[str, Any]) -> None:
        if "delivered" in state.get("meta", {}):
            raise CheckpointError(
                f"{path} holds weights alone, which the run has delivered: resume from last.pth, or load them with "
                "runner.load_checkpoint()"
            )
        changes.extend(changes_since(state, today, schedulers))
        refuse(changes, mode, path)

    loaded = checkpoints.load_file(path, check, given)
    apply(runner, changes, mode, path, loaded)
    runner.state.first_settings = loaded["meta"]["optimizer"] if changes and mode == "checkpoint" else today
    keeps = changes and mode == "checkpoint"
    runner.state.first_schedulers = loaded["meta"].get("schedulers", schedulers) if keeps else schedulers
    runner.state.resumed_from, runner.state.epoch_complete = path if given is None else None, True
    run = loaded.get("meta", {}).get("run")
    runner.state.run_id = run if is_run_id(run) else ""
    state = runner.trainer.state
    logger.info("resumed from %s: epoch %d, iteration %d", path, state.epoch, state.iteration)
    if not holds_weights(loaded):
        logger.warning(
            "%s holds no weights: those of this run are as the script has made them; pass model=... to attach_hooks()",
            path.name,
        )
    ends = state.max_epochs
    if loaded.get("trainer", {}).get("terminated") is True and (ends is None or state.epoch < ends):
        logger.warning(
            "the script had ended this run by terminate() at iteration %d, and it goes on now: do not run it again if "
            "it was to end there",
            state.iteration,
        )
    writers = loaded.get("writers")
    runner.writer.load_state_dict(writers if isinstance(writers, Mapping) else {})
    runner.writer.resumed(int(state.iteration))
    checkpoints.script.resume(loaded, path)
    checkpoints.position.resume(loaded, path, doubts(loaded))


def _start_anew(runner: Runner, *, required: bool) -> None:
    """Start from the beginning, as there is no checkpoint; raise an error if one is required."""
    if required:
        raise CheckpointError(
            f"resume: required: {runner.work_dir} has no checkpoint that verifies: name the folder of the run "
            "(work_dir), or say resume: auto to start from the beginning"
        )
    if (count := restarted()) is not None:
        runner.logger.warning(
            "nothing to resume from in %s, although %s says that this run has been restarted: STARTING FROM THE "
            "BEGINNING; use a work_dir that outlives the machine, or say resume: required to fail instead",
            runner.work_dir,
            count,
        )
    else:
        runner.logger.info("nothing to resume from in %s: starting from the beginning", runner.work_dir)
    runner.writer.began_anew()


def doubts(state: Mapping[str, Any]) -> list[str]:
    """Return why a run cannot continue exactly from a checkpoint, besides its position in the data."""
    found = []
    if missing := missing_parts(state):
        found.append(f"it does without {', '.join(missing)}, which no checkpoint can hold")
    script = state.get("script")
    iterated = script.get("iterated") if isinstance(script, Mapping) else None
    if isinstance(iterated, list) and iterated:
        found.append(f"the script was drawing from {', '.join(map(str, iterated))} itself, which begins anew")
    return found
