"""The run as a dict of plain types and tensors, and back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.manifest import PREFERENCE
from ignite_hooks.store.snapshot import random_state, set_random_state

if TYPE_CHECKING:
    from ignite_hooks.runner import Runner
    from ignite_hooks.store.manifest import Entry, Kind

FORMAT = 1


def unwrapped(model: Any) -> Any:
    """The model inside DataParallel or DistributedDataParallel."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    return model.module if isinstance(model, (DataParallel, DistributedDataParallel)) else model


def collect(runner: Runner, *, optimizer: bool = True, scheduler: bool = True) -> dict[str, Any]:
    """Everything a run needs to go on as if it had not stopped."""
    state = runner.trainer.state
    found: dict[str, Any] = {
        "meta": {
            "format": FORMAT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "epoch": finished_epochs(runner),
            "iter": int(state.iteration),
            "hooks": {name: type(hook).__name__ for name, hook in runner.hooks.items()},
        },
        "trainer": {
            "iteration": int(state.iteration),
            "epoch": finished_epochs(runner),
            "epoch_length": state.epoch_length,
        },
        "hooks": {name: dict(saved) for name, hook in runner.hooks.items() if (saved := hook_state(hook))},
        "best": runner.best.state_dict(),
        "metrics": runner.metrics.state_dict(),
        "random": random_state(),
    }
    if runner.model is not None:
        found["state_dict"] = unwrapped(runner.model).state_dict()
    if optimizer and runner.optimizer is not None:
        found["optimizer"] = runner.optimizer.state_dict()
    if scheduler and hasattr(runner.scheduler, "state_dict"):
        found["scheduler"] = runner.scheduler.state_dict()
    return found


def finished_epochs(runner: Runner) -> int:
    """How many epochs the weights have seen to their end; the epoch that ends now counts."""
    state = runner.trainer.state
    ended = runner.epoch_complete or runner.at_last_batch
    return int(state.epoch) if ended else max(0, int(state.epoch) - 1)


def hook_state(hook: object) -> Mapping[str, Any]:
    """What a hook wants to remember; hooks of other makes need not have anything to say."""
    # Looked up on the class: an Ignite Metric answers hasattr for any name.
    method = getattr(type(hook), "state_dict", None)
    return method(hook) or {} if callable(method) else {}


def save(
    runner: Runner,
    name: str,
    *,
    kind: Kind,
    folder: Path | None = None,
    optimizer: bool = True,
    scheduler: bool = True,
) -> Path:
    """Write a checkpoint; hooks may edit it before and learn its path after."""
    import ignite.distributed as idist

    state = collect(runner, optimizer=optimizer, scheduler=scheduler)
    runner.checkpoint = state
    try:
        runner.call_hook("before_save_checkpoint", checkpoint=state)
        path = (folder or runner.work_dir) / name
        if idist.get_rank() == 0:
            path = (
                runner.store(folder)
                .open()
                .save(
                    name,
                    state,
                    kind=kind,
                    epoch=state["meta"]["epoch"],
                    iteration=state["meta"]["iter"],
                    metrics={metric: entry["value"] for metric, entry in state["metrics"].items()},
                )
            )
        runner.call_hook("after_save_checkpoint", checkpoint=state, path=path)
    finally:
        runner.checkpoint = None
    return path


def newest(runner: Runner) -> Path | None:
    """The newest checkpoint that is whole, among the folders in which this run saves."""
    savers = [hook for hook in runner.hooks.values() if hasattr(type(hook), "out_dir")]
    folders = dict.fromkeys([*(runner.folder(getattr(hook, "out_dir", None)) for hook in savers), runner.work_dir])
    found: list[tuple[Entry, Path]] = []
    errors: list[CheckpointError] = []
    for folder in folders:
        store = runner.store(folder)
        try:
            path = store.newest()
        except CheckpointError as error:
            errors.append(error)
            continue
        found += [(entry, path) for entry in store.entries() if path and entry.name == path.name]
    if errors and not found:
        raise errors[0]
    for unusable in errors:
        runner.logger.warning("%s", unusable)
    found.sort(key=lambda item: (-item[0].iteration, PREFERENCE.index(item[0].kind)))
    return found[0][1] if found else None


def load(runner: Runner, path: Path) -> dict[str, Any]:
    """Put a checkpoint back into model, optimizer, scheduler, hooks and trainer."""
    state = runner.store(path.parent).load(path)
    runner.checkpoint = state
    try:
        _restore_objects(runner, state, path)
        try:
            _restore_progress(runner, state, path)
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error
        runner.call_hook("after_load_checkpoint", checkpoint=state, path=path)
    finally:
        runner.checkpoint = None
    return state


def _restore_objects(runner: Runner, state: Mapping[str, Any], path: Path) -> None:
    owners = {
        "state_dict": ("model", unwrapped(runner.model)),
        "optimizer": ("optimizer", runner.optimizer),
        "scheduler": ("scheduler", runner.scheduler),
    }
    for key, (name, owner) in owners.items():
        if key in state and owner is not None:
            try:
                owner.load_state_dict(state[key])
            except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise CheckpointError(f"{path} does not fit the {name} of this run: {error}") from error
        elif name == "model" and owner is not None:
            keys = ", ".join(str(key) for key in list(state)[:10]) or "nothing"
            raise CheckpointError(f"{path} has no 'state_dict' for the model: it holds {keys}")
        elif name == "model" and key in state:
            raise CheckpointError(f"{path} holds a model and this run has none: give attach_hooks model=...")
        elif key in state:
            runner.logger.warning("%s holds a %s and this run has none: it is left out", path, name)
        elif hasattr(owner, "load_state_dict"):
            runner.logger.warning("%s holds no %s: the one of this run stays as it is", path, name)


def _restore_progress(runner: Runner, state: Mapping[str, Any], path: Path) -> None:
    strangers = []
    for name, saved in state.get("hooks", {}).items():
        if name not in runner.hooks:
            strangers.append(name)
        elif callable(getattr(type(runner.hooks[name]), "load_state_dict", None)):
            runner.hooks[name].load_state_dict(saved)
    if strangers:
        runner.logger.warning("%s holds the progress of hooks this run does not have: %s", path, ", ".join(strangers))
    if "best" in state:
        runner.best.load_state_dict(state["best"])
    if "metrics" in state:
        runner.metrics.load_state_dict(state["metrics"])
    position, trainer = state.get("trainer", {}), runner.trainer.state
    trainer.iteration = int(position.get("iteration", 0))
    trainer.epoch = int(position.get("epoch", 0))
    before, now = position.get("epoch_length"), trainer.epoch_length
    if before and now and before != now:
        runner.logger.warning("an epoch had %d iterations in %s and has %d now", before, path, now)
    if "random" in state:
        set_random_state(state["random"])
