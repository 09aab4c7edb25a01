"""A dict back into the run: model, optimizer, scheduler, services, hooks and trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.capture import ask, has_method, services_with_state
from ignite_hooks.checkpoint.rng_state import set_random_state
from ignite_hooks.distributed.collectives import fail_on_all_ranks, rank, world_size
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.wrapping import is_sharded, unwrapped
from ignite_hooks.plan.settings_digest import settings_of_hooks
from ignite_hooks.store.interface import ShardedStore

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Store

WITH_SHARDS = ("state_dict", "ema_state_dict", "optimizer", "gradients")
"""The entries of a checkpoint that may hold sharded tensors."""


def restore_objects(runner: Runner, objects: Mapping[str, Any], store: Store, path: Path) -> dict[str, Any]:
    """Put a checkpoint back into model, optimizer and scheduler, on every rank or on none.

    Args:
        runner: The run.
        objects: Its services.
        store: Where the checkpoint is.
        path: The checkpoint.

    Returns:
        The checkpoint, with what belongs to this rank.
    """
    state = _read(objects, store, path)
    fail_on_all_ranks(lambda: _restore_objects(runner, objects, state, path))
    return for_this_rank(state)


def restore_progress(runner: Runner, objects: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    """Put the rest of a checkpoint back: hooks, services, metrics, trainer and random generators."""
    try:
        _restore_progress(runner, objects, state, path)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error


def load_weights(runner: Runner, found: Mapping[str, Any]) -> None:
    """Give the model, and the hooks that hold weights besides, what `weights_of` returned."""
    runner.checkpoints.wait_for_staging()
    unwrapped(runner.model).load_state_dict(found["state_dict"])
    for hook in runner.hooks.registered.values():
        if (ask(hook, "weights") or {}).keys() & found.keys():
            hook.load_weights(found)


def for_this_rank(state: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with the random numbers and the data position of this rank, where it has those."""
    ranks, now = state.get("ranks"), world_size()
    saved = len(ranks) if isinstance(ranks, list) else 1
    if saved != now:
        doubt = f"it was saved by {saved} processes, and this run has {now}"
        data = state.get("data")
        return {**state, "data": {**data, "doubt": doubt}} if isinstance(data, dict) else state
    mine = ranks[rank()] if isinstance(ranks, list) else {}
    return {**state, **{key: mine[key] for key in ("data", "random") if isinstance(mine, dict) and key in mine}}


def _read(objects: Mapping[str, Any], store: Store, path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint, sharded as the model of this run is; all ranks read it, or none."""
    sharded = is_sharded(objects.get("model"))
    if not sharded and not path.is_dir():
        return fail_on_all_ranks(lambda: store.load(path))
    from ignite_hooks.store.sharded import load_tensors, run_on_all_ranks, shard_like

    def read() -> dict[str, Any]:
        if not path.is_dir():
            state = store.load(path)
            return state | shard_like({key: state[key] for key in WITH_SHARDS if key in state}, owner)
        if not isinstance(store, ShardedStore):
            raise CheckpointError(f"cannot load {path}: {type(store).__name__} has no sharded checkpoints")
        return load_tensors(store.load_shards(path, (rank(), world_size())), path, owner)

    owner = _owners(objects)
    return run_on_all_ranks(read)


def _owners(objects: Mapping[str, Any]) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that finds the tensor of this run to which a value of a checkpoint belongs, by its keys."""
    names = unwrapped(objects["model"]).state_dict() if "model" in objects else {}
    groups = objects["optimizer"].param_groups if "optimizer" in objects else []
    weights = dict(enumerate(weight for group in groups for weight in group["params"]))

    def owner(place: tuple[Any, ...]) -> Any:
        if place[:2] == ("optimizer", "state"):
            return weights.get(place[2])
        return weights.get(place[1]) if place[0] == "gradients" else names.get(place[-1])

    return owner


def _restore_objects(runner: Runner, objects: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    owners = {
        "state_dict": ("model", unwrapped(objects.get("model"))),
        "optimizer": ("optimizer", objects.get("optimizer")),
        "scheduler": ("scheduler", objects.get("scheduler")),
    }
    for key, (name, owner) in owners.items():
        if key in state and owner is not None:
            try:
                owner.load_state_dict(state[key])
            except Exception as error:
                raise CheckpointError(f"{path} does not fit the {name} of this run: {error}") from error
        elif name == "model" and owner is not None:
            keys = ", ".join(str(key) for key in list(state)[:10]) or "nothing"
            raise CheckpointError(f"{path} has no 'state_dict' for the model: it holds {keys}")
        elif name == "model" and key in state:
            raise CheckpointError(f"{path} holds a model and this run has none: pass model=... to attach_hooks()")
        elif key in state:
            runner.logger.warning("%s holds a %s and this run has none: it is left out", path, name)
        elif hasattr(owner, "load_state_dict"):
            runner.logger.warning("%s holds no %s: the one of this run stays as it is", path, name)


def _restore_progress(runner: Runner, objects: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    trainer = runner.trainer
    _restore_hooks(runner, state, path)
    if "optimizer" in state and "optimizer" in objects:
        _set_gradients(objects["optimizer"], state.get("gradients", {}))
    services = services_with_state(objects)
    for name, saved in state.get("services", {}).items():
        if name in services:
            services[name].load_state_dict(saved)
        else:
            runner.logger.warning("%s holds the state of %r, which was not given to this run", path, name)
    if "best" in state:
        runner.best.load_state_dict(state["best"])
    if "metrics" in state:
        runner.metrics.load_state_dict(state["metrics"])
    progress = state.get("trainer", {})
    trainer.state.iteration = int(progress.get("iteration", 0))
    trainer.state.epoch = int(progress.get("epoch", 0))
    for key, value in progress.get("user", {}).items():
        if key in trainer.state_dict_user_keys:
            setattr(trainer.state, key, value)
    before, now = progress.get("epoch_length"), trainer.state.epoch_length
    if before and now and before != now:
        runner.logger.warning("an epoch had %d iterations in %s and has %d now", before, path, now)
    if differences := _differences(runner, state.get("meta", {}).get("settings", {})):
        runner.logger.warning("settings differ from those of %s: %s", path.name, ", ".join(differences))
    if "random" in state:
        set_random_state(state["random"])


def _restore_hooks(runner: Runner, state: Mapping[str, Any], path: Path) -> None:
    hooks = runner.hooks
    unknown = []
    for name, saved in state.get("hooks", {}).items():
        # Also by the name of its class, where it is the only hook of this class.
        hook = hooks.registered[name] if name in hooks.registered else hooks.get(name)
        if hook is None:
            unknown.append(name)
        elif has_method(hook, "load_state_dict"):
            hook.load_state_dict(saved)
    if unknown:
        runner.logger.warning("%s holds the progress of hooks this run does not have: %s", path, ", ".join(unknown))


def _set_gradients(optimizer: Any, gradients: Mapping[int, Any]) -> None:
    for place, weight in enumerate(weight for group in optimizer.param_groups for weight in group["params"]):
        gradient = gradients.get(place)
        weight.grad = None if gradient is None else gradient.to(weight.device, copy=True)


def _differences(runner: Runner, before: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the settings that have changed, as text: a run keeps those of its configuration in any case."""
    found = []
    for name, now in settings_of_hooks(runner.hooks.registered).items():
        then = before.get(name, {})
        for setting in now.keys() & then.keys():
            old, new = then[setting], now[setting]
            if old != new:
                is_text = "text " in f"{old}{new}"
                found.append(f"{name}.{setting}" + ("" if is_text else f" {old} -> {new}"))
    return sorted(found)
