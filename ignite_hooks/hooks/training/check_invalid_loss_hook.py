"""Looks whether losses are numbers."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.distributed.collectives import all_gather, all_reduce_max, rank, world_size
from ignite_hooks.errors import CheckpointError, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, Situation, settings
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each
from ignite_hooks.model.rollback import Rollback
from ignite_hooks.model.wrapping import unwrapped, weights_not_finite
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.store.files import write_whole
from ignite_hooks.store.plain import to_plain
from ignite_hooks.text import did_you_mean

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

MOST_IN_A_ROW = 10
"""The number of bad batches in a row after which the batches are no longer to blame."""


@dataclass
class InvalidLossState:
    """The state of this hook, which checkpoints hold."""

    skipped: int = 0
    in_a_row: int = 0


@settings
class CheckInvalidLossHook(BaseHook):
    """Look whether every loss is finite, and end the run, or leave out the batch, where one is not.

    All losses are looked at together, which waits for the device once. Several ranks decide together.

    With ``skip`` the weights, buffers and the optimizer are as if the iteration had not been, whatever the step did;
    schedulers are not turned back. A step that ends several iterations is left out as a whole, of an earlier one only
    the gradients of the bad batch. It takes a copy of the weights in each iteration that is looked at, which is every
    one unless ``interval`` is given. After 10 bad batches in a row it raises.

    It also looks at every iteration that is saved, and at the weights: what is not finite is never saved.

    Args:
        interval: The number of iterations between two checks; 1 for ``skip``.
        keys: The losses; by default those at ``loss=`` of attach_hooks, else all that the step returns with "loss" in
            their names, else all numbers.
        action: What happens: the run fails (raise), it ends in order (stop), or the batch is left out (skip).
        save_batch: Whether the first bad batch is saved as bad_batch.pt, for ``torch.load(weights_only=True)``.

    Reads: what the step returns, optimizer, model.
    Writes: bad_batch.pt.
    Saves: how many batches were left out.
    """

    interval: Annotated[int, Ge(1)] = 50
    keys: list[str] | None = None
    action: Literal["raise", "stop", "skip"] = "raise"
    save_batch: bool = False
    state: InvalidLossState = field(init=False, default_factory=InvalidLossState)

    collective: ClassVar[bool] = True

    # Before anything uses the new weights, such as a moving average.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train_iter": 98, "on_exception": 98}

    def __post_init__(self) -> None:
        if self.action == "skip" and not self.given & {"interval", "frequency", "every"}:
            self.interval = 1
        self._rollback: Rollback | None = None
        self._has_saved = self._has_failed = False
        self._looked_at = -1

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.action == "skip" and situation.complete and "optimizer" not in situation.services:
            yield "action", "to leave out a batch takes the optimizer: pass optimizer=... to attach_hooks()"

    def before_run(self, runner: Runner) -> None:
        self._leave()
        self._has_saved = self._has_failed = False
        self._looked_at = -1
        if runner.global_step == 0:
            self.state = InvalidLossState()

    def before_train(self, runner: Runner) -> None:
        if self.action != "skip":
            return
        if not self.when.always:
            runner.logger.warning("bad batches are left out %s only; any other one changes the weights", self.when)
        model = None if runner.model is None else unwrapped(runner.model)
        self._rollback = Rollback(model, each(runner.optimizer), lambda: runner.global_step)

    @scheduled
    def before_train_iter(self, runner: Runner) -> None:
        if self._rollback is not None:
            self._rollback.begin()

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._looked_at = runner.global_step
        losses = self._losses(runner)
        is_bad = not all_finite(losses.values())
        if not (any(all_reduce_max([int(is_bad)])) if world_size() > 1 else is_bad):
            self.state.in_a_row = 0
            if self._rollback is not None:
                self._rollback.end()
            return
        self._act(runner, self._described(runner, losses, is_bad))

    def before_save_checkpoint(self, runner: Runner) -> None:
        """Look at what is saved, unless the run has failed: then the weights alone decide, and are looked at."""
        if self._has_failed or runner.global_step == 0 or runner.trainer.state.output is None:
            return
        losses = {} if self._looked_at == runner.global_step else self._losses(runner)
        weights = [f"the weight {name}" for model in each(runner.model) for name in weights_not_finite(model)]
        is_bad = bool(weights) or not all_finite(losses.values())
        if not (any(all_reduce_max([int(is_bad)])) if world_size() > 1 else is_bad):
            return
        what = self._described(runner, {**losses, **dict.fromkeys(weights[:1], math.nan)}, is_bad)
        if self.action == "stop":
            runner.stop(what)
            raise CheckpointError(what)
        raise FloatingPointError(f"{what}; it is not saved")

    def on_exception(self) -> None:
        self._has_failed = True

    def cleanup(self) -> None:
        self._leave()

    def findings(self) -> list[str]:
        """Return what stands out, in words."""
        count = self.state.skipped
        return [f"{count} {'batch' if count == 1 else 'batches'} left out, as the loss was not finite"] if count else []

    def _losses(self, runner: Runner) -> dict[str, Any]:
        output, source = runner.trainer.state.output, runner.loss_source
        if self.keys is not None or source.where is None:
            return losses_in(output, self.keys)
        if not (losses := source.of(output)):
            raise ValueError(source.remedy(output))
        return losses

    def _described(self, runner: Runner, losses: Mapping[str, Any], is_bad: bool) -> str:
        """Return what is wrong on the first rank where something is; each rank saves its own batch."""
        rates = distinct_learning_rates(runner.optimizer)
        values = {name: _value(loss) for name, loss in losses.items()}
        bad = {name: value for name, value in values.items() if not math.isfinite(value)}
        words = ", ".join(f"{name} is {value}" for name, value in bad.items())
        words += f" in epoch {int(runner.trainer.state.epoch)}, iteration {runner.global_step}"
        words += f", learning rate {', '.join(f'{rate:g}' for rate in rates)}" if rates else ""
        if is_bad and self.save_batch and not self._has_saved:
            self._has_saved = True
            words += f"; the batch is in {self._save(runner, values, rates)}"
        said = all_gather(words if is_bad else None)
        first = next(number for number, what in enumerate(said) if what is not None)
        return str(said[first]) if len(said) == 1 else f"on rank {first} {said[first]}"

    def _act(self, runner: Runner, what: str) -> None:
        if self.action == "raise":
            raise FloatingPointError(what)
        if self.action == "stop":
            runner.stop(what)
            return
        assert self._rollback is not None
        runner.checkpoints.wait_for_staging()
        self._rollback.restore()
        self.state.skipped += 1
        self.state.in_a_row += 1
        if self.state.in_a_row >= MOST_IN_A_ROW:
            raise FloatingPointError(f"{what}, and so it was {MOST_IN_A_ROW} times in a row: it is not the batch")
        runner.logger.warning("batch left out: %s", what)

    def _save(self, runner: Runner, losses: Mapping[str, float], rates: Sequence[float]) -> Path:
        import torch

        number = rank()
        path = runner.work_dir / ("bad_batch.pt" if number == 0 else f"bad_batch_rank_{number}.pt")
        found = {
            "iteration": runner.global_step,
            "epoch": int(runner.trainer.state.epoch),
            "rank": number,
            "losses": dict(losses),
            "learning_rates": list(rates),
            "batch": replayable(runner.data_batch),
        }
        content = io.BytesIO()
        torch.save(found, content)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())
        return path

    def _leave(self) -> None:
        if self._rollback is not None:
            self._rollback.detach()
            self._rollback = None


def losses_in(output: Any, keys: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the losses in the output of a step, unchanged; those of a list or mapping are named by their path.

    Example:
        >>> losses_in(0.5), losses_in({"loss_box": [1.0, 2.0], "lr": 0.1})
        ({'loss': 0.5}, {'loss_box[0]': 1.0, 'loss_box[1]': 2.0})
        >>> losses_in({"box": {"l1": 1.0}, "lr": 0.1}, ["box"])
        {'box.l1': 1.0}
    """
    found = dict(_numbers_in(output, "" if isinstance(output, (Mapping, list, tuple)) else "loss"))
    if keys is None:
        named = {name: value for name, value in found.items() if "loss" in name.lower()}
        chosen = named or {name: value for name, value in found.items() if _size(value) == 1}
        if not chosen:
            kind = type(output).__name__
            raise ValueError(f"there is no loss in what the step returns ({kind}): return it, or a mapping that has it")
        return chosen
    chosen = {}
    for key in keys:
        below = {name: value for name, value in found.items() if name == key or name.startswith((f"{key}.", f"{key}["))}
        if not below:
            hint = did_you_mean(key, found) or f"; it returns {', '.join(found) or 'no numbers'}"
            raise SettingError("keys", f"the step returns no {key!r}{hint}")
        chosen |= below
    return chosen


def _numbers_in(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers_in(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _numbers_in(item, f"{name}[{number}]")
    elif isinstance(value, torch.Tensor) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        yield name, value


def _size(value: Any) -> int:
    return int(value.numel()) if hasattr(value, "numel") else 1


def all_finite(losses: Iterable[Any]) -> bool:
    """Return whether all of these numbers and tensors are finite, waiting for the device once.

    Example:
        >>> import torch
        >>> all_finite([1.0, torch.ones(2)]), all_finite([torch.tensor(1.0), torch.tensor([0.0, float("inf")])])
        (True, False)
    """
    import torch

    losses = list(losses)
    tensors = [loss.detach() for loss in losses if isinstance(loss, torch.Tensor)]
    if not all(math.isfinite(loss) for loss in losses if not isinstance(loss, torch.Tensor)):
        return False
    if not tensors:
        return True
    device = tensors[0].device
    return bool(torch.cat([tensor.isfinite().reshape(-1).to(device) for tensor in tensors]).all())


def _value(loss: Any) -> float:
    """Return a loss as one number: of several the first that is not finite, else their sum."""
    import torch

    if not isinstance(loss, torch.Tensor):
        return float(loss)
    values = [float(value.real) for value in loss.detach().reshape(-1).cpu()]
    return next((value for value in values if not math.isfinite(value)), math.fsum(values))


def distinct_learning_rates(optimizer: Any) -> list[float]:
    """Return the learning rates of the groups of one or several optimizers, each once."""
    groups = param_groups(optimizer)
    return list(dict.fromkeys(float(group["lr"]) for group in groups if "lr" in group))


def replayable(value: Any) -> Any:
    """Return a copy of a batch as plain data and tensors: of objects their attributes, of anything else its type.

    Example:
        >>> replayable(("a", {"b": 1.0}, object()))
        ['a', {'b': 1.0}, 'left out: object']
    """
    try:
        return to_plain(value, clone=True)
    except CheckpointError:
        if isinstance(value, Mapping):
            return {str(key): replayable(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [replayable(item) for item in value]
        attributes = getattr(value, "__dict__", None)
        return replayable(dict(attributes)) if attributes else f"left out: {type(value).__name__}"
