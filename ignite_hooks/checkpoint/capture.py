"""The run as a dict of plain types and tensors, and back."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import (
    all_gather,
    broadcast_object,
    fail_on_all_ranks,
    is_main_process,
    rank,
    world_size,
)
from ignite_hooks.errors import CheckpointError
from ignite_hooks.plan.methods import method_of, own_method
from ignite_hooks.store.interface import ShardedStore
from ignite_hooks.store.manifest import resuming_order
from ignite_hooks.store.plain import set_random_state, to_plain

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.manifest import Entry

FORMAT = 1

WITH_SHARDS = ("state_dict", "ema_state_dict", "optimizer", "gradients")
"""Where a checkpoint holds tensors that may be sharded."""


def unwrapped(model: Any) -> Any:
    """The model inside DataParallel, DistributedDataParallel and what torch.compile made, in any order."""
    from torch.nn import Module
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while isinstance(model, Module):
        # By its attribute: to import the class of a compiled model takes longer than anything else here.
        wraps = isinstance(model, (DataParallel, DistributedDataParallel))
        inner = model.module if wraps else getattr(model, "_orig_mod", None)
        if not isinstance(inner, Module):
            break
        model = inner
    return model


def is_sharded(model: Any) -> bool:
    """Whether this process has only a part of some weights, as FSDP2 and tensor parallelism leave it."""
    import torch

    found = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    return any(hasattr(tensor, "_local_tensor") for tensor in found)


def name_for(runner: Runner, name: str) -> str:
    """What a checkpoint is called that would be a file of this name, if the model were not sharded."""
    return folder_name(name) if is_sharded(runner.model) else name


def folder_name(name: str) -> str:
    """The name of a folder in place of that of a file.

    Example:
        >>> folder_name("epoch_3.pth"), folder_name("before_lr_0.1")
        ('epoch_3', 'before_lr_0.1')
    """
    return name.removesuffix(".pth").removesuffix(".pt")


def collect(runner: Runner, *, optimizer: bool = True, scheduler: bool = True) -> dict[str, Any]:
    """Everything a run needs to go on as if it had not stopped."""
    trainer, iteration, epoch = runner.trainer, finished_iterations(runner), finished_epochs(runner)
    data, random = runner.position.saved(runner)
    ranks = all_gather({"data": data, "random": to_plain(random)}) if world_size() > 1 else None
    found: dict[str, Any] = {
        "meta": {
            "format": FORMAT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "epoch": epoch,
            "iter": iteration,
            "hooks": {name: type(hook).__name__ for name, hook in runner.hooks.items()},
            "settings": {name: settings_of(hook) for name, hook in runner.hooks.items()},
        },
        "trainer": {
            "iteration": iteration,
            "epoch": epoch,
            "epoch_length": trainer.state.epoch_length,
            "user": {key: getattr(trainer.state, key) for key in trainer.state_dict_user_keys},
        },
        "hooks": {name: dict(saved) for name, hook in runner.hooks.items() if (saved := hook_state(hook))},
        "services": _states_of_services(runner),
        "best": runner.best.state_dict(),
        "metrics": runner.metrics.state_dict(),
        "data": data,
        "random": random,
    }
    for part in ("meta", "trainer", "hooks", "services"):
        # By value alone: a hook may remember the key of something.
        found[part] = runner.masks.tree(found[part], by_name=False)
    if ranks is not None:
        found["ranks"] = ranks
    if runner.model is not None:
        found["state_dict"] = unwrapped(runner.model).state_dict()
    if optimizer and runner.optimizer is not None:
        found["optimizer"] = runner.optimizer.state_dict()
        if runner.accumulating and (gradients := _gradients(runner)):
            found["gradients"] = gradients
    if scheduler and hasattr(runner.scheduler, "state_dict"):
        found["scheduler"] = runner.scheduler.state_dict()
    return found


def _gradients(runner: Runner) -> dict[int, Any]:
    """What the optimizer has yet to use, by the place of its parameter: several iterations may make one step."""
    weights = enumerate(weight for group in runner.optimizer.param_groups for weight in group["params"])
    return {place: weight.grad for place, weight in weights if weight.grad is not None}


def _set_gradients(runner: Runner, gradients: Mapping[int, Any]) -> None:
    for place, weight in enumerate(weight for group in runner.optimizer.param_groups for weight in group["params"]):
        gradient = gradients.get(place)
        weight.grad = None if gradient is None else gradient.to(weight.device, copy=True)


def finished_iterations(runner: Runner) -> int:
    """How many iterations the weights have seen to their end."""
    return int(runner.trainer.state.iteration) - runner.in_step


def finished_epochs(runner: Runner) -> int:
    """How many epochs the weights have seen to their end; the epoch that ends now counts."""
    state, length = runner.trainer.state, runner.epoch_length
    ended = runner.state.epoch_complete or (
        length is not None and finished_iterations(runner) - runner.state.epoch_began_at >= length
    )
    return int(state.epoch) if ended else max(0, int(state.epoch) - 1)


def planned_epochs(runner: Runner) -> int | None:
    """How many epochs were asked for, or begin where iterations were; None where that is not known."""
    if runner.max_epochs is not None or runner.max_iters is None or not runner.epoch_length:
        return runner.max_epochs
    return -(-runner.max_iters // runner.epoch_length)


def services_with_state(runner: Runner) -> dict[str, Any]:
    """The objects beside model, optimizer and scheduler whose progress belongs to the run, such as an AMP scaler."""
    import torch
    from ignite.engine import Engine

    mine = (runner.model, runner.optimizer, runner.scheduler)
    known = {"scaler": getattr(runner.trainer.state, "scaler", None), **runner.services}
    found = {}
    for name, thing in known.items():
        if name.endswith("loader") or any(thing is other for other in mine):
            continue
        frozen = isinstance(thing, torch.nn.Module) and not any(p.requires_grad for p in thing.parameters())
        both = method_of(thing, "state_dict") and method_of(thing, "load_state_dict")
        if both and not frozen and not isinstance(thing, Engine):
            found[name] = thing
    return found


def _states_of_services(runner: Runner) -> dict[str, Any]:
    found = {}
    for name, thing in services_with_state(runner).items():
        try:
            found[name] = to_plain(thing.state_dict(), f"services.{name}")
        except CheckpointError as error:
            # A service need not have been meant for checkpoints: it must not prevent them.
            if name not in runner.left_out:
                runner.left_out.add(name)
                runner.logger.warning("checkpoints do without the state of the service %r: %s", name, error)
    return found


def settings_of(hook: object) -> dict[str, Any]:
    """The settings of a hook that can be compared later; of texts only a digest, as a text may be a secret."""
    fields = [f.name for f in dataclasses.fields(hook) if f.init] if dataclasses.is_dataclass(hook) else []
    values = {name: getattr(hook, name) for name in fields} or dict(getattr(hook, "config", None) or {})
    return {str(name): seen for name, value in values.items() if (seen := _comparable(value)) is not _NOTHING}


_NOTHING = object()


def _comparable(value: Any) -> Any:
    if value is None or (isinstance(value, (bool, int, float)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, (str, enum.Enum)):
        return f"text {hashlib.sha256(str(value).encode()).hexdigest()[:12]}"
    if isinstance(value, (list, tuple)):
        items = [_comparable(item) for item in value]
        return _NOTHING if any(item is _NOTHING for item in items) else items
    return _NOTHING


def hook_state(hook: object) -> Mapping[str, Any]:
    """What a hook wants to remember; hooks of other makes need not have anything to say."""
    function = method_of(hook, "state_dict")
    return function(hook) or {} if function else {}


def _asked(hook: object, method: str) -> Any:
    function = own_method(type(hook), method)
    return function(hook) if function else None


def weights_of(runner: Runner) -> dict[str, Any]:
    """The weights of the model, and those that hooks hold beside it; they are not copied."""
    found = {} if runner.model is None else {"state_dict": unwrapped(runner.model).state_dict()}
    for hook in runner.hooks.values():
        found |= _asked(hook, "weights") or {}
    return found


def load_weights(runner: Runner, found: Mapping[str, Any]) -> None:
    """Give the model, and the hooks that hold weights beside it, what `weights_of` found."""
    runner.wait_for_copy()
    unwrapped(runner.model).load_state_dict(found["state_dict"])
    for hook in runner.hooks.values():
        if (_asked(hook, "weights") or {}).keys() & found.keys():
            hook.load_weights(found)


def steady_tensors(runner: Runner) -> list[Any]:
    """The tensors that nobody changes between one optimizer step and the next."""
    import torch

    optimizer = runner.optimizer
    found = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    for state in optimizer.state.values():
        found += [value for value in state.values() if isinstance(value, torch.Tensor)]
    for hook in runner.hooks.values():
        found += _asked(hook, "steady_tensors") or []
    return found


def newest(runner: Runner) -> Path | None:
    """The newest checkpoint that is whole, among the folders in which this run saves; rank 0 chooses for all."""
    found = fail_on_all_ranks(lambda: str(_newest(runner) or "") if is_main_process() else "")
    chosen = str(broadcast_object(found))
    return Path(chosen) if chosen else None


def _newest(runner: Runner) -> Path | None:
    savers = [hook for hook in runner.hooks.values() if hasattr(type(hook), "out_dir")]
    folders = dict.fromkeys(
        [*(runner.work_dir / (getattr(hook, "out_dir", None) or "") for hook in savers), runner.work_dir]
    )
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
    found.sort(key=lambda item: resuming_order(item[0]))
    if not found:
        return None
    chosen, path = found[0]
    further = [other for folder in folders for other in runner.store(folder).entries() if other.kind == "exception"]
    for other in further:
        if other.iteration > chosen.iteration:
            runner.logger.info(
                "%s is %d iterations further than %s, but a failing run saved it: name it to go on from it",
                other.name,
                other.iteration - chosen.iteration,
                chosen.name,
            )
    return path


def load(runner: Runner, path: Path) -> dict[str, Any]:
    """Put a checkpoint back into model, optimizer, scheduler, hooks and trainer."""
    runner.wait_for_copy()
    state = _read(runner, path)
    fail_on_all_ranks(lambda: _restore_objects(runner, state, path))
    state = for_this_rank(state)
    runner.checkpoint = state
    try:
        try:
            _restore_progress(runner, state, path)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error
        runner.call_hook("after_load_checkpoint", checkpoint=state, path=path)
    finally:
        runner.checkpoint = None
    return state


def for_this_rank(state: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint with the random numbers and the place in the data of this rank, where it has those."""
    ranks = state.get("ranks")
    saved = len(ranks) if isinstance(ranks, list) else 1
    if saved != world_size():
        doubt = f"it was saved by {saved} processes, and this run has {world_size()}"
        data = state.get("data")
        return {**state, "data": {**data, "doubt": doubt}} if isinstance(data, dict) else state
    mine = ranks[rank()] if isinstance(ranks, list) else {}
    return {**state, **{key: mine[key] for key in ("data", "random") if isinstance(mine, dict) and key in mine}}


def _read(runner: Runner, path: Path) -> dict[str, Any]:
    """The state in a checkpoint, sharded as the model of this run is; all ranks read it, or none."""
    store, sharded = runner.store(path.parent), is_sharded(runner.model)
    if not sharded and not path.is_dir():
        return fail_on_all_ranks(lambda: store.load(path))
    from ignite_hooks.store.sharded import filled, sharded_like, together

    def read() -> dict[str, Any]:
        if not path.is_dir():
            state = store.load(path)
            return state | sharded_like({key: state[key] for key in WITH_SHARDS if key in state}, owner)
        if not isinstance(store, ShardedStore):
            raise CheckpointError(f"cannot load {path}: {type(store).__name__} has no sharded checkpoints")
        return filled(store.load_shards(path, (rank(), world_size())), path, owner)

    owner = _owners(runner)
    return together(read)


def _owners(runner: Runner) -> Callable[[tuple[Any, ...]], Any]:
    """Finds the tensor of this run to which a value of a checkpoint belongs, by the keys that lead to the value."""
    names = {} if runner.model is None else unwrapped(runner.model).state_dict()
    groups = [] if runner.optimizer is None else runner.optimizer.param_groups
    weights = dict(enumerate(weight for group in groups for weight in group["params"]))

    def owner(place: tuple[Any, ...]) -> Any:
        if place[:2] == ("optimizer", "state"):
            return weights.get(place[2])
        return weights.get(place[1]) if place[0] == "gradients" else names.get(place[-1])

    return owner


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
            except Exception as error:
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
        elif method_of(runner.hooks[name], "load_state_dict"):
            runner.hooks[name].load_state_dict(saved)
    if strangers:
        runner.logger.warning("%s holds the progress of hooks this run does not have: %s", path, ", ".join(strangers))
    if "optimizer" in state and runner.optimizer is not None:
        _set_gradients(runner, state.get("gradients", {}))
    services = services_with_state(runner)
    for name, saved in state.get("services", {}).items():
        if name in services:
            services[name].load_state_dict(saved)
        else:
            runner.logger.warning("%s holds the state of %r, which was not given to this run", path, name)
    if "best" in state:
        runner.best.load_state_dict(state["best"])
    if "metrics" in state:
        runner.metrics.load_state_dict(state["metrics"])
    position, trainer = state.get("trainer", {}), runner.trainer
    trainer.state.iteration = int(position.get("iteration", 0))
    trainer.state.epoch = int(position.get("epoch", 0))
    for key, value in position.get("user", {}).items():
        if key in trainer.state_dict_user_keys:
            setattr(trainer.state, key, value)
    before, now = position.get("epoch_length"), trainer.state.epoch_length
    if before and now and before != now:
        runner.logger.warning("an epoch had %d iterations in %s and has %d now", before, path, now)
    if differences := _differences(runner, state.get("meta", {}).get("settings", {})):
        runner.logger.warning("settings differ from those of %s: %s", path.name, ", ".join(differences))
    if "random" in state:
        set_random_state(state["random"])


def _differences(runner: Runner, before: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The settings that have changed, as text: a run keeps its configuration's, whatever a checkpoint says."""
    found = []
    for name, hook in runner.hooks.items():
        now, then = settings_of(hook), before.get(name, {})
        for setting in now.keys() & then.keys():
            old, new = then[setting], now[setting]
            if old != new:
                is_text = "text " in f"{old}{new}"
                found.append(f"{name}.{setting}" + ("" if is_text else f" {old} -> {new}"))
    return sorted(found)
