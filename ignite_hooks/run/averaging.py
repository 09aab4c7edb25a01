"""What averages of weights need in a run: their momentum, equal ranks, a thread, and what refuses a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ignite_hooks.distributed.collectives import all_gather, broadcast_tensors, world_size
from ignite_hooks.errors import CheckpointError, ConfigError, Problem, SettingError, refuse_other_momentum
from ignite_hooks.model.averaging_beside import Beside, Trial, Worker, why_not_by_itself
from ignite_hooks.model.averaging_thread import AveragingThread, why_no_thread
from ignite_hooks.model.parts import flat, problem_of_models, why_no_fit
from ignite_hooks.run.progress import at_last_batch

if TYPE_CHECKING:
    from ignite_hooks.model.averages import Averages, TensorAverages
    from ignite_hooks.model.optimizers import StepHooks
    from ignite_hooks.run.runner import Runner

PUT_BACK_FIRST: Final[Mapping[str, int]] = {
    "after_val_epoch": 95,
    "after_test_epoch": 95,
    "after_val": 95,
    "after_test": 95,
}
"""Priorities by which what follows an evaluation sees the weights that are trained."""


class RankSync:
    """Keeps the averages of all ranks equal.

    Args:
        mode: Whether the averages of rank 0 count, their mean does, or nothing is made equal.
    """

    def __init__(self, mode: str) -> None:
        self._mode, self._step, self._warned = mode, -1, False

    def begin(self, averages: Averages) -> None:
        """Begin with the averages of rank 0."""
        if self._mode != "none" and world_size() > 1:
            averages.broadcast()
        self._step = -1

    def is_due(self, step: int) -> bool:
        """Return whether there are several ranks, and averages that may differ since the last time."""
        return world_size() > 1 and self._step != step

    def share_buffers(self, averages: Averages) -> None:
        """Evaluate with the same buffers on all ranks; those that the ranks train with stay as they are."""
        if self._mode != "none" and world_size() > 1:
            broadcast_tensors(averages.copies.tensors())

    def synchronise(self, runner: Runner, averages: Averages, updates: int) -> None:
        """Make the averages of all ranks equal, and warn of ranks that have drifted."""
        self._step = runner.global_step
        digests = all_gather([updates, averages.digest()])
        drifted = [str(number) for number, digest in enumerate(digests) if digest != digests[0]]
        if drifted and not self._warned:
            self._warned = True
            words = "iteration %d: the averages of rank %s differ from those of rank 0 (sync: %s)"
            runner.logger.warning(words, runner.global_step, ", ".join(drifted), self._mode)
        if drifted and self._mode != "none":
            runner.checkpoints.wait_for_staging()
            averages.broadcast() if self._mode == "broadcast" else averages.average_over_ranks()


def check_models(wanted: tuple[str, ...] | None, known: list[str] | None, place: str) -> None:
    """Raise `ConfigError` if there are no models with these names."""
    if problem := problem_of_models(wanted, known):
        raise ConfigError([Problem(place, problem)])


def check_also(also: Mapping[str, float] | None, elsewhere: str) -> None:
    """Raise `SettingError` if further averages have names or momenta that they cannot have."""
    if also is not None and not also:
        raise SettingError("also", "is empty: name at least one, as in {slow: 0.99999}, or leave it out")
    for name, momentum in (also or {}).items():
        if not str(name).isidentifier() or name in ("raw", "ema"):
            raise SettingError("also", f"{name!r} is a part of names of metrics: use letters, digits and _, not raw")
        refuse_other_momentum(momentum, "average", elsewhere)


def averages_in(runner: Runner, file: str, names: list[str] | None) -> tuple[dict[str, Any], bool]:
    """Return the averages in a checkpoint, or its weights if it has none, and whether they are averages."""
    path = runner.work_dir / file
    found = runner.store(path.parent).load(path)
    weights = found.get("ema_state_dict", found.get("state_dict"))
    if weights is None:
        raise CheckpointError(f"resume_from: {path} has neither 'ema_state_dict' nor 'state_dict'")
    try:
        return flat_averages(weights, names), "ema_state_dict" in found
    except CheckpointError as error:
        raise CheckpointError(f"resume_from: {path}: {error}") from None


def flat_averages(found: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Return averages, or weights, of a checkpoint as one state; they have to be those of the models with these names.

    Example:
        >>> flat_averages({"g": {"weight": 1}, "d": {"weight": 2}}, ["g"])
        {'g.weight': 1}
    """
    saved = list(found) if found and all(isinstance(part, Mapping) for part in found.values()) else None
    if saved is not None and names is not None and not set(names) <= set(saved):
        raise CheckpointError(
            f"it holds averages of {', '.join(saved)}, and EMAHook averages {', '.join(names)}: "
            f"set its models to {saved}"
        )
    if (saved is None) != (names is None):
        raise CheckpointError(f"the averages do not fit: {why_no_fit('model', saved, names)}")
    return flat(found, names)


def updates_beside(
    runner: Runner, model: Any, step_hooks: StepHooks, overlap: bool | str, catch_up: Callable[[Any], None]
) -> Beside | None:
    """Return what makes updates beside the training, or None if all are made in line.

    Args:
        runner: The run.
        model: The model that is averaged.
        step_hooks: The functions before the steps of what trains it.
        overlap: Whether updates are made so; ``auto`` to try it where bits cannot depend on it.
        catch_up: Waits for an update and counts it.
    """
    if not overlap:
        return None
    reason, is_tried = why_no_thread(model, step_hooks.optimizer), overlap == "auto"
    if is_tried:
        reason = reason or why_not_by_itself(model, step_hooks.optimizer)
    elif reason is not None:
        runner.logger.info("overlap is off: %s", reason)
    if reason is not None:
        return None
    device = next((parameter.device for parameter in model.parameters()), None)
    if device is not None and device.type == "cuda":
        from ignite_hooks.model.averaging_stream import AveragingStream

        worker: Worker = AveragingStream(device)
    else:
        worker = AveragingThread()
    beside = Beside(worker, Trial() if is_tried else None, runner.logger)
    beside.attach(step_hooks, runner.checkpoints.staging.readers, lambda: catch_up(runner))
    return beside


def update_or_begin(part: TensorAverages, momentum: float, beside: Beside | None, runner: Runner) -> bool | None:
    """Update averages in line, or begin to do so beside the training, see `Beside.update`."""
    if beside is None:
        return part.update(momentum)
    # Between two epochs a script may change weights.
    at_end = runner.trainer_state.epoch_length is None or at_last_batch(runner)
    return beside.update(part, momentum, at_end=at_end)


def momentum_at(step: float, momentum: float, warm_up: int, power: float | None = None) -> float:
    """Return the momentum of an optimizer step, counted from 0.

    Example:
        >>> momentum_at(0, 0.9999, 100), momentum_at(98, 0.9999, 100), momentum_at(0, 0.9999, 0)
        (0.01, 0.5, 0.9999)
        >>> momentum_at(0, 0.9999, 0, power=1), momentum_at(1, 0.9999, 0, power=1)
        (0.0, 0.25)
    """
    if step == math.inf or (warm_up == 0 and power is None):
        return momentum
    warm = (1 + step) / (warm_up + step) if power is None else (step / (1 + step)) ** (power + 1)
    return warm if warm < momentum else momentum


def refuse_step(*_: Any) -> None:
    """Refuse an optimizer step while the averages are in the model."""
    raise RuntimeError("the averages are in the model: an optimizer step would change them, leave swap() before it")
