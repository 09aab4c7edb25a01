"""Which checkpoint a run continues from, and the way back to its position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.manifest import resuming_order

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Store
    from ignite_hooks.store.manifest import Entry


def resume_run(runner: Runner, wanted: str | Path | bool) -> None:
    """Continue from a checkpoint; where none was named and nothing was saved, start from the beginning.

    Args:
        runner: The run, before its first iteration.
        wanted: The path of the checkpoint, absolute or below the work directory; ``True`` or ``"auto"`` for the newest.
    """
    checkpoints, logger = runner.checkpoints, runner.logger
    if isinstance(wanted, bool) or wanted == "auto":
        path = checkpoints.newest()
        if path is None:
            logger.info("nothing to resume from in %s: starting from the beginning", runner.work_dir)
            runner.writer.began_anew()
            return
    else:
        path = Path(wanted) if Path(wanted).exists() else runner.work_dir / str(wanted)
    loaded = checkpoints.load(path)
    runner.state.resumed_from, runner.state.epoch_complete = path, True
    state = runner.trainer.state
    logger.info("resumed from %s: epoch %d, iteration %d", path, state.epoch, state.iteration)
    runner.writer.resumed(int(state.iteration))
    checkpoints.position.resume(loaded, path)


def newest(runner: Runner, store: Callable[[Path], Store]) -> Path | None:
    """Return the newest intact checkpoint in the folders in which this run saves; rank 0 chooses for all."""
    found = fail_on_all_ranks(lambda: str(_newest(runner, store) or "") if is_main_process() else "")
    chosen = str(broadcast_object(found))
    return Path(chosen) if chosen else None


def _newest(runner: Runner, store: Callable[[Path], Store]) -> Path | None:
    savers = [hook for hook in runner.hooks.registered.values() if hasattr(type(hook), "out_dir")]
    folders = [*(runner.work_dir / (getattr(hook, "out_dir", None) or "") for hook in savers), runner.work_dir]
    found: list[tuple[Entry, Path]] = []
    listed: list[Entry] = []
    errors: list[CheckpointError] = []
    for place in map(store, dict.fromkeys(folders)):
        try:
            path = place.newest()
        except CheckpointError as error:
            errors.append(error)
            continue
        entries = place.entries()
        listed += entries
        found += [(entry, path) for entry in entries if path and entry.name == path.name]
    if errors and not found:
        raise errors[0]
    for unusable in errors:
        runner.logger.warning("%s", unusable)
    if not found:
        return None
    chosen, newest_path = min(found, key=lambda item: resuming_order(item[0]))
    for other in listed:
        if other.kind == "exception" and other.iteration > chosen.iteration:
            runner.logger.info(
                "%s is %d iterations further than %s, but a failing run saved it: name it to resume from it",
                other.name,
                other.iteration - chosen.iteration,
                chosen.name,
            )
    return newest_path
