"""A dict back into the run: model, optimizer, scheduler, services, hooks and trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.all_or_nothing import OWNERS, Part, check_parts, load_all, owner_of, parts_saved
from ignite_hooks.checkpoint.capture import ask, has_method, services_with_state
from ignite_hooks.checkpoint.changed_settings import check_optimizer
from ignite_hooks.checkpoint.environment import environment_changes
from ignite_hooks.checkpoint.formats import upgraded
from ignite_hooks.checkpoint.left_out import missing_parts, with_todays
from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.checkpoint.script.state import of_this_rank
from ignite_hooks.distributed.collectives import fail_on_all_ranks, rank, world_size
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.parts import each, is_several, names_of, parts_of, why_no_fit, with_saved
from ignite_hooks.model.wrapping import is_sharded, load_plain, plain_state
from ignite_hooks.plan.settings_digest import settings_of_hooks
from ignite_hooks.store.interface import ShardedStore
from ignite_hooks.store.plain import to_plain

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Store

Check = Callable[[dict[str, Any]], None]

WITH_SHARDS = ("state_dict", "ema_state_dict", "optimizer", "gradients")
"""The entries of a checkpoint that may hold sharded tensors."""


def restore_objects(
    runner: Runner,
    objects: Mapping[str, Any],
    path: Path,
    check: Check | None = None,
    given: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Put a checkpoint back into model, optimizer and scheduler, on every rank or on none.

    Args:
        runner: The run.
        objects: Its services.
        path: The checkpoint.
        check: Looks at the state before anything is changed, and may raise an error.
        given: What it holds, where that is no file; the path is then its name in messages.

    Returns:
        The checkpoint, with what belongs to this rank.
    """
    state = upgraded(_read(objects, runner.store(path.parent), path) if given is None else given, path)

    def restore() -> None:
        try:
            if check is not None:
                check(state)
            _restore_objects(runner, objects, state, path)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error

    fail_on_all_ranks(restore)
    return for_this_rank(state)


def restore_progress(runner: Runner, objects: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    """Put the rest of a checkpoint back: hooks, services, metrics, trainer and random generators."""
    try:
        _restore_progress(runner, objects, state, path)
    except (CheckpointError, ReferenceError):  # a ReferenceError says that the trainer no longer exists
        raise
    except Exception as error:
        raise CheckpointError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error


def read_checkpoint(runner: Runner, path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, sharded as the model of this run is; all ranks read it, or none."""
    return upgraded(_read(runner.services, runner.store(path.parent), path), path)


def load_weights(runner: Runner, found: Mapping[str, Any]) -> None:
    """Give the model, and the hooks that hold weights besides, what `weights_of` returned."""
    runner.checkpoints.wait_for_staging()
    if reason := why_no_fit("model", parts_saved(found, "state_dict"), names_of(runner.model)):
        raise CheckpointError(f"the weights do not fit: {reason}")
    for _, model, weights in with_saved(runner.model, found["state_dict"]):
        load_plain(model, weights)
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
        state = of_this_rank(state, None)
        if isinstance(data, dict):
            state = {**state, "data": {**data, "doubt": doubt}}
        if rank() >= saved and "random" in state:
            # Two ranks with the same random numbers would drop the same units.
            state = {**state, "random": to_plain(random_state())}
        return state
    if not isinstance(ranks, list):
        return state
    mine = ranks[rank()]
    state = of_this_rank(state, mine.get("script") if isinstance(mine, dict) else None)
    return {**state, **{key: mine[key] for key in ("data", "random") if isinstance(mine, dict) and key in mine}}


def _read(objects: Mapping[str, Any], store: Store, path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint, sharded as the model of this run is; all ranks read it, or none."""
    sharded = is_sharded(objects.get("model"))
    if not sharded and not path.is_dir():
        return fail_on_all_ranks(lambda: store.load(path))
    from ignite_hooks.store.sharded.agreement import run_on_all_ranks
    from ignite_hooks.store.sharded.loading import load_tensors, shard_like

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
    model, optimizer = objects.get("model"), objects.get("optimizer")
    names = {name: plain_state(one) for name, one in parts_of(model).items()}
    weights = {
        name: dict(enumerate(weight for group in one.param_groups for weight in group["params"]))
        for name, one in parts_of(optimizer).items()
    }

    def owner(place: tuple[Any, ...]) -> Any:
        key, *rest = place
        several = is_several(optimizer if key in ("optimizer", "gradients") else model)
        part = rest.pop(0) if several else ""
        if key == "optimizer":
            return weights.get(part, {}).get(rest[1]) if rest[0] == "state" else None
        return weights.get(part, {}).get(rest[0]) if key == "gradients" else names.get(part, {}).get(place[-1])

    return owner


def _restore_objects(runner: Runner, objects: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    owners = {key: (name, owner_of(objects, name)) for key, name in OWNERS.items()}
    check_parts(objects, services_with_state(objects), state, path)
    check_optimizer(state, objects.get("optimizer"), path)
    found = {key: owner for key, (_, owner) in owners.items() if key in state and owner is not None}
    for key, (name, owner) in owners.items():
        if key in found:
            continue
        if name == "model" and owner is not None:
            keys = ", ".join(str(key) for key in list(state)[:10]) or "nothing"
            raise CheckpointError(f"{path} has no 'state_dict' for the model: it holds {keys}")
        if name == "model" and key in state:
            raise CheckpointError(f"{path} holds a model and this run has none: pass model=... to attach_hooks()")
        if key in state:
            runner.logger.warning("%s holds a %s and this run has none: it is left out", path, name)
        elif any(hasattr(one, "load_state_dict") for one in each(owner)):
            runner.logger.warning("%s holds no %s: the one of this run stays as it is", path, name)
    missing, parts, states = missing_parts(state), dict[Part, Any](), dict[Part, Any]()
    for key, owner in found.items():
        for name, one, saved in with_saved(owner, state[key]):
            part, place = Part(OWNERS[key], name), f"{key}.{name}" if name else key
            today = partial(plain_state, one) if part.is_model else one.state_dict
            parts[part], states[part] = one, with_todays(saved, place, missing, today)
    load_all(
        parts,
        states,
        lambda part, error: CheckpointError(f"{path} does not fit the {part} of this run: {error}"),
    )


def _restore_progress(runner: Runner, objects: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    trainer = runner.trainer
    _restore_hooks(runner, state, path)
    if "optimizer" in state and "optimizer" in objects:
        _set_gradients(objects["optimizer"], state.get("gradients", {}))
    services, missing = services_with_state(objects), missing_parts(state)
    for name, saved in state.get("services", {}).items():
        if name in services:
            service = services[name]
            for part, one, its in with_saved(service, saved):
                place = f"services.{name}.{part}" if part else f"services.{name}"
                one.load_state_dict(with_todays(its, place, missing, one.state_dict))
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
    runner.checkpoints.script.load(state, path)
    if told := environment_changes(state.get("meta", {}).get("environment")):
        runner.logger.warning("%s: %s", path.name, told)
    if "random" in state:
        set_random_state(state["random"])


def _restore_hooks(runner: Runner, state: Mapping[str, Any], path: Path) -> None:
    hooks, missing = runner.hooks, missing_parts(state)
    unknown = []
    for name, saved in state.get("hooks", {}).items():
        # Also by the name of its class, where it is the only hook of this class.
        hook = hooks.registered[name] if name in hooks.registered else hooks.get(name)
        if hook is None:
            unknown.append(name)
        elif has_method(hook, "load_state_dict"):
            hook.load_state_dict(with_todays(saved, f"hooks.{name}", missing, partial(ask, hook, "state_dict")))
    if unknown:
        runner.logger.warning("%s holds the progress of hooks this run does not have: %s", path, ", ".join(unknown))


def _set_gradients(optimizer: Any, gradients: Mapping[Any, Any]) -> None:
    for name, one in parts_of(optimizer).items():
        mine = gradients.get(name, {}) if is_several(optimizer) else gradients
        for place, weight in enumerate(weight for group in one.param_groups for weight in group["params"]):
            gradient = mine.get(place)
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
