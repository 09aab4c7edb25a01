"""The run as a dict of plain types and tensors."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.all_or_nothing import OWNERS, owner_of, several_in
from ignite_hooks.checkpoint.changed_settings import optimizer_settings, scheduler_settings
from ignite_hooks.checkpoint.environment import environment
from ignite_hooks.checkpoint.formats import FORMAT
from ignite_hooks.checkpoint.left_out import without_methods
from ignite_hooks.checkpoint.script.state import local_objects
from ignite_hooks.distributed.collectives import all_gather, world_size
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import by_part, each, is_several, parts_of
from ignite_hooks.model.wrapping import plain_state
from ignite_hooks.plan.settings_digest import settings_of_hooks
from ignite_hooks.run.progress import progress_of
from ignite_hooks.store.plain import to_plain

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner


def user_state(trainer: Engine) -> dict[str, Any]:
    """Return what the script has added to the state of the trainer, as far as it is there.

    A handler of the start of the run may give it its first value, after the rehearsal.
    """
    return {key: getattr(trainer.state, key) for key in trainer.state_dict_user_keys if hasattr(trainer.state, key)}


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
    in_mid_epoch = runner.state.in_epoch if data is None else data["at"] == "iteration"
    script, missing = checkpoints.script.capture(in_mid_epoch=in_mid_epoch)
    services = _states_of_services(runner, objects, missing)
    ranks = None
    if world_size() > 1:
        ranks = all_gather({"data": data, "random": to_plain(random), "script": local_objects(script)})
    noted: dict[str, Any] = {
        "meta": {
            "format": FORMAT,
            "run": runner.state.run_id,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "epoch": progress.epoch,
            "iter": progress.iteration,
            "environment": environment(),
            "optimizer": runner.state.first_settings or optimizer_settings(runner.optimizer),
            "schedulers": _first_schedulers(runner),
            "hooks": {name: type(hook).__name__ for name, hook in hooks.items()},
            "settings": settings_of_hooks(hooks),
        },
        "trainer": {
            "iteration": progress.iteration,
            "epoch": progress.epoch,
            "epoch_length": trainer.state.epoch_length,
            "user": user_state(trainer),
            "terminated": bool(trainer.should_terminate) and runner.stop_reason is None,
        },
        "hooks": runner.installation.hook_states(),
        "services": services,
    }
    found: dict[str, Any] = {
        **_masked(runner, noted, missing),
        "best": runner.best.state_dict(),
        "metrics": runner.metrics.state_dict(),
        "data": data,
        "random": random,
    }
    if writers := runner.writer.state_dict():
        # On rank 0: the others write nothing.
        found["writers"] = writers
    if missing:
        found["meta"]["missing"] = missing
    if script:
        found["script"] = script
    if ranks is not None:
        found["ranks"] = ranks
    if "model" in objects:
        found["state_dict"] = plain_state(objects["model"])
    if optimizer and "optimizer" in objects:
        found["optimizer"] = by_part(_state_of, objects["optimizer"])
        if gradients := _gradients(objects["optimizer"], checkpoints.accumulating(progress)):
            found["gradients"] = gradients
    schedulers = owner_of(objects, "scheduler")
    if scheduler and any(hasattr(one, "state_dict") for one in each(schedulers)):
        found["scheduler"] = without_methods(by_part(_state_of, schedulers))
    if parts := several_in(objects, found):
        found["meta"]["parts"] = parts
    return found


def _first_schedulers(runner: Runner) -> dict[str, Any]:
    found = runner.state.first_schedulers
    return scheduler_settings(runner) if found is None else found


def _state_of(thing: Any) -> Any:
    return thing.state_dict()


def _gradients(optimizer: Any, accumulating: Collection[str]) -> dict[Any, Any]:
    """Return gradients that are yet to be used, by parameter index: several iterations may make one step.

    Args:
        optimizer: One or several optimizers.
        accumulating: The names of those that may have such gradients.
    """

    def of(one: Any) -> dict[int, Any]:
        weights = enumerate(weight for group in one.param_groups for weight in group["params"])
        return {place: weight.grad for place, weight in weights if weight.grad is not None}

    found = {name: of(one) for name, one in parts_of(optimizer).items() if name in accumulating}
    return {name: some for name, some in found.items() if some} if is_several(optimizer) else found.get("", {})


def services_with_state(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the services besides model, optimizer and scheduler whose progress belongs to the run.

    Args:
        objects: The services of the run by name, such as an AMP scaler; ``trainer.state.scaler`` is looked at too.
    """
    import torch
    from ignite.engine import Engine

    given = [objects.get(name) for name in OWNERS.values()]
    # A run is no part of its own state.
    no_services = Engine, type(objects.get("runner"))
    mine = [*given, *(one for thing in given for one in each(thing))]

    def counts(thing: Any) -> bool:
        frozen = isinstance(thing, torch.nn.Module) and not any(p.requires_grad for p in thing.parameters())
        both = has_method(thing, "state_dict", "load_state_dict")
        return both and not frozen and not isinstance(thing, no_services) and not any(thing is other for other in mine)

    known = {"scaler": getattr(objects["trainer"].state, "scaler", None), **objects}
    found = {}
    for name, thing in known.items():
        if name.endswith("loader") or any(thing is other for other in given):
            continue
        if counts(thing):
            found[name] = thing
        elif is_several(thing) and (several := {part: one for part, one in parts_of(thing).items() if counts(one)}):
            found[name] = several
    return found


def _states_of_services(runner: Runner, objects: Mapping[str, Any], missing: list[str]) -> dict[str, Any]:
    """Return the states of services; a service need not be made for checkpoints, and must not prevent them."""
    found = {}
    for name, thing in services_with_state(objects).items():
        plain, parts = runner.checkpoints.left_out.part(partial(by_part, _state_of, thing), f"services.{name}")
        missing += parts
        if plain is not None:
            found[name] = plain
    return found


def _masked(runner: Runner, noted: dict[str, Any], missing: list[str]) -> dict[str, Any]:
    """Return a part of the state with its secrets masked, and without what contains itself."""
    for _ in range(2):
        try:
            # By value only: a hook may save the key of something.
            return dict(runner.masks.tree(noted, by_name=False))
        except RecursionError:
            for name, state in noted["hooks"].items():
                noted["hooks"][name], parts = runner.checkpoints.left_out.part(partial(dict, state), f"hooks.{name}")
                missing += parts
    raise RecursionError("the state of the trainer contains itself")


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
    found = {} if model is None else {"state_dict": plain_state(model)}
    for hook in runner.hooks.registered.values():
        found |= ask(hook, "weights") or {}
    return found


def steady_tensors(optimizer: Any, hooks: Mapping[str, object]) -> list[Any]:
    """Return the tensors that do not change between one optimizer step and the next."""
    import torch

    found = [tensor for group in param_groups(optimizer) for tensor in group["params"]]
    for state in (entry for one in each(optimizer) for entry in one.state.values()):
        found += [value for value in state.values() if isinstance(value, torch.Tensor)]
    for hook in hooks.values():
        found += ask(hook, "steady_tensors") or []
    return found
