"""The run as a dict of plain types and tensors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import all_gather, world_size
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.settings_digest import settings_of_hooks
from ignite_hooks.run.progress import progress_of
from ignite_hooks.store.plain import to_plain

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

FORMAT = 1


def capture(runner: Runner, *, optimizer: bool = True, scheduler: bool = True) -> dict[str, Any]:
    """Return everything that a run needs to continue as if it had not stopped.

    Args:
        runner: The run.
        optimizer: Whether the optimizer is part of it.
        scheduler: Whether the scheduler is part of it.
    """
    trainer, objects, progress = runner.trainer, runner.services, progress_of(runner)
    hooks, checkpoints = runner.hooks.registered, runner.checkpoints
    data, random = checkpoints.position.capture(progress)
    ranks = all_gather({"data": data, "random": to_plain(random)}) if world_size() > 1 else None
    noted = {
        "meta": {
            "format": FORMAT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "epoch": progress.epoch,
            "iter": progress.iteration,
            "hooks": {name: type(hook).__name__ for name, hook in hooks.items()},
            "settings": settings_of_hooks(hooks),
        },
        "trainer": {
            "iteration": progress.iteration,
            "epoch": progress.epoch,
            "epoch_length": trainer.state.epoch_length,
            "user": {key: getattr(trainer.state, key) for key in trainer.state_dict_user_keys},
        },
        "hooks": runner.installation.hook_states(),
        "services": _states_of_services(runner, objects),
    }
    found: dict[str, Any] = {
        # By value only: a hook may save the key of something.
        **runner.masks.tree(noted, by_name=False),
        "best": runner.best.state_dict(),
        "metrics": runner.metrics.state_dict(),
        "data": data,
        "random": random,
    }
    if ranks is not None:
        found["ranks"] = ranks
    if "model" in objects:
        found["state_dict"] = unwrapped(objects["model"]).state_dict()
    if optimizer and "optimizer" in objects:
        found["optimizer"] = objects["optimizer"].state_dict()
        if checkpoints.is_accumulating(progress) and (gradients := _gradients(objects["optimizer"])):
            found["gradients"] = gradients
    if scheduler and hasattr(objects.get("scheduler"), "state_dict"):
        found["scheduler"] = objects["scheduler"].state_dict()
    return found


def _gradients(optimizer: Any) -> dict[int, Any]:
    """Return gradients that the optimizer has yet to use, by parameter index: several iterations may make one step."""
    weights = enumerate(weight for group in optimizer.param_groups for weight in group["params"])
    return {place: weight.grad for place, weight in weights if weight.grad is not None}


def services_with_state(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the services besides model, optimizer and scheduler whose progress belongs to the run.

    Args:
        objects: The services of the run by name, such as an AMP scaler; ``trainer.state.scaler`` is looked at too.
    """
    import torch
    from ignite.engine import Engine

    mine = [objects.get(name) for name in ("model", "optimizer", "scheduler")]
    known = {"scaler": getattr(objects["trainer"].state, "scaler", None), **objects}
    found = {}
    for name, thing in known.items():
        if name.endswith("loader") or any(thing is other for other in mine):
            continue
        frozen = isinstance(thing, torch.nn.Module) and not any(p.requires_grad for p in thing.parameters())
        both = has_method(thing, "state_dict", "load_state_dict")
        if both and not frozen and not isinstance(thing, Engine):
            found[name] = thing
    return found


def _states_of_services(runner: Runner, objects: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, thing in services_with_state(objects).items():
        try:
            found[name] = to_plain(thing.state_dict(), f"services.{name}")
        except CheckpointError as error:
            # A service need not be made for checkpoints: it must not prevent them.
            if name not in runner.checkpoints.services_left_out:
                runner.checkpoints.services_left_out.add(name)
                runner.logger.warning("checkpoints do without the state of the service %r: %s", name, error)
    return found


def hook_state(hook: object) -> Mapping[str, Any]:
    """Return what a hook saves in checkpoints; third-party hooks may have no state."""
    return ask(hook, "state_dict") or {}


def ask(hook: object, method: str) -> Any:
    """Return what an optional method of a hook returns; None where it has no such method."""
    return getattr(type(hook), method)(hook) if has_method(hook, method) else None


def has_method(thing: object, *names: str) -> bool:
    """Return whether the class of a thing has all these methods."""
    # Not looked up on the thing itself: an Ignite Metric answers hasattr for any name.
    return all(callable(getattr(type(thing), name, None)) for name in names)


def weights_of(runner: Runner) -> dict[str, Any]:
    """Return the weights of the model and those that hooks hold besides; they are not copied."""
    model = runner.model
    found = {} if model is None else {"state_dict": unwrapped(model).state_dict()}
    for hook in runner.hooks.registered.values():
        found |= ask(hook, "weights") or {}
    return found


def steady_tensors(optimizer: Any, hooks: Mapping[str, object]) -> list[Any]:
    """Return the tensors that do not change between one optimizer step and the next."""
    import torch

    found = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    for state in optimizer.state.values():
        found += [value for value in state.values() if isinstance(value, torch.Tensor)]
    for hook in hooks.values():
        found += ask(hook, "steady_tensors") or []
    return found
