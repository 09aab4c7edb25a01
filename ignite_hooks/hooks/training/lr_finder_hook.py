"""Looks for a learning rate."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Lt

from ignite_hooks.checkpoint.capture import services_with_state
from ignite_hooks.checkpoint.rng_state import preserve_rng
from ignite_hooks.distributed.collectives import all_gather, is_main_process
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.measure.trend import line_through
from ignite_hooks.model.optimizers import param_groups, set_rate
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.priority import Priority

if TYPE_CHECKING:
    from ignite_hooks.measure.loss_source import LossSource
    from ignite_hooks.run.runner import Runner

FEWEST = 10
"""A curve of fewer points says nothing."""


@settings
class LRFinderHook(BaseHook):
    """Try learning rates from small to large before a run begins, and tell which would suit it.

    Each of some training steps, on the run's own data, is made with a larger rate, until the loss explodes. Then the
    weights, the optimizer and whatever else has a state are as before, random numbers included: the run that follows
    is the run there would have been without. What a step or a data set counts in its own variables is not restored,
    and a step that accumulates gradients uses each batch alone. A run that is resumed tries nothing.

    Args:
        start_lr: The smallest rate.
        end_lr: The largest rate.
        num_iter: How many steps lead from one to the other.
        smoothing: How much of the losses before belongs to the smoothed one that is judged.
        diverge: The trial ends when the smoothed loss is this many times the smallest.
        apply: Whether the run begins with the rate that is found, the rates of several groups in their proportion.
        show: Whether the picture is shown as well.
        save: Whether the picture becomes a file.
        out_dir: The folder of the file; ``visualization`` in the work directory by default.

    Reads: model, optimizer, the loader the trainer runs on.
    Writes: lr_finder, lr_finder/suggestion.
    Saves: lr_finder.png in visualization.
    """

    start_lr: Annotated[float, Gt(0)] = 1e-7
    end_lr: Annotated[float, Gt(0)] = 10.0
    num_iter: Annotated[int, Ge(FEWEST)] = 100
    smoothing: Annotated[float, Ge(0), Lt(1)] = 0.9
    diverge: Annotated[float, Gt(1)] = 4.0
    apply: bool = False
    show: bool = False
    save: bool = True
    out_dir: Path | None = None
    # Before everything in a run except what decides how it is trained.
    priority: PriorityLike = Priority.VERY_HIGH

    may_end_a_run: ClassVar[bool] = False
    begins_with_run: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    one_model: ClassVar[str] = "remove the hook, or try the rates of one in a run that is given this model alone"
    collective: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.start_lr >= self.end_lr:
            raise SettingError("end_lr", f"{self.end_lr:g} is not above start_lr, which is {self.start_lr:g}")
        self.suggestion: float | None = None
        """The rate that was found; None before, or where the loss never fell."""
        self.points: list[tuple[float, float]] = []
        """The rates that were tried, with their smoothed losses."""

    @property
    def changes_training(self) -> bool:  # type: ignore[override]  # follows from a setting
        """Whether the learning rate that was found is used."""
        return self.apply

    def before_train(self, runner: Runner, model: Any, optimizer: Any) -> None:
        if runner.global_step > 0:
            return
        self.points = list(self._tried(runner))
        self.suggestion = suggested(self.points)
        if self.suggestion is None:
            words = "the loss falls at no learning rate from %g to %g"
            runner.logger.warning(words, self.start_lr, self.points[-1][0] if self.points else self.end_lr)
        else:
            runner.logger.info("suggested learning rate: %.2g", self.suggestion)
            runner.writer.write_scalars({"lr_finder/suggestion": self.suggestion}, 0, kind="train", epoch=0)
            if self.apply:
                begin_with(self.suggestion, optimizer, runner.scheduler)
        if self.points and is_main_process():
            self._draw(runner)

    def _tried(self, runner: Runner) -> Iterator[tuple[float, float]]:
        """Yield rates and smoothed losses during the trial; restore everything at its end."""
        trainer, optimizer, data = runner.trainer, runner.optimizer, runner.trainer.state.dataloader
        if data is None or isinstance(data, Iterator):
            raise ValueError(
                "needs training data that can be gone through again: run the trainer on a loader or a list"
            )
        before, batch_before = rates_of(optimizer), trainer.state.batch
        # A copy: a loader that keeps its workers would draw fewer random numbers in the run that follows.
        smooth, mine = Smooth(self.smoothing), copy.copy(data)
        trial = rates(self.start_lr, self.end_lr, self.num_iter)
        with preserve_rng(data), Kept(runner) as kept:
            try:
                for number, (rate, batch) in enumerate(zip(trial, endless(mine), strict=False), 1):
                    set_rates(optimizer, before, rate)
                    # A step that accumulates gradients would otherwise never update the weights.
                    kept.forget_gradients()
                    # As before the first iteration: a step may depend on the number.
                    trainer.state.batch = batch
                    loss = smooth.add(loss_of(trainer._process_function(trainer, batch), runner.loss_source))
                    yield rate, loss
                    if not loss <= self.diverge * smooth.least and number >= FEWEST:
                        return
            finally:
                trainer.state.batch = batch_before

    def _draw(self, runner: Runner) -> None:
        from ignite_hooks.drawing.thread import DrawingThread
        from ignite_hooks.drawing.training_curves import range_test

        folder = runner.get_service("visualization_dir") if self.out_dir is None else runner.work_dir / self.out_dir
        thread = DrawingThread(
            self.name or type(self).__name__,
            folder=folder if self.save else None,
            sink=runner.writer,
            show=self.show,
            logger=runner.logger,
        )
        try:
            title = "no learning rate found" if self.suggestion is None else f"learning rate {self.suggestion:.2g}"
            thread.draw("lr_finder", 0, partial(range_test, self.points, self.suggestion, title=title), replace=True)
        finally:
            thread.close()


class Kept:
    """Whatever a training step changes, put back at the end."""

    def __init__(self, runner: Runner) -> None:
        self._things = [unwrapped(runner.model), *each(runner.optimizer)]
        self._things += [thing for thing in each(runner.scheduler) if hasattr(thing, "state_dict")]
        self._things += services_with_state(runner.services).values()
        self._model = self._things[0]

    def __enter__(self) -> Kept:
        from ignite_hooks.model.wrapping import is_lazy_model

        if is_lazy_model(self._model):
            raise ValueError(
                "the model has parameters without a size before its first forward: make one before the run"
            )
        self._states = [state_copy(thing.state_dict()) for thing in self._things]
        self._modes = [(part, part.training) for part in self._model.modules()]
        # Including those that are in no state.
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]
        self._gradients = [(one, one.grad) for one in self._model.parameters()]
        self.forget_gradients()
        return self

    def forget_gradients(self) -> None:
        """Reset the gradients to what they are before the first step."""
        for one, _ in self._gradients:
            one.grad = None

    def __exit__(self, *_: object) -> None:
        for thing, state in zip(self._things, self._states, strict=True):
            groups = getattr(thing, "param_groups", None)
            thing.load_state_dict(state)
            if groups is not None and groups is not thing.param_groups:
                put_into(groups, thing.param_groups)
                thing.param_groups = groups
        for buffer, before in self._buffers:
            buffer.copy_(before)
        for part, mode in self._modes:
            part.training = mode
        for one, gradient in self._gradients:
            one.grad = gradient


def put_into(groups: Sequence[dict[str, Any]], loaded: Sequence[dict[str, Any]]) -> None:
    """Copy loaded values into the groups of an optimizer: loading a state would replace groups that a script holds."""
    for group, values in zip(groups, loaded, strict=True):
        rate = group["lr"]
        group.clear()
        group.update(values)
        if hasattr(rate, "fill_"):
            group["lr"] = rate.fill_(values["lr"])


def state_copy(value: Any) -> Any:
    """Return a copy of a state; ``deepcopy`` of fake tensors makes some that torch frees twice.

    Example:
        >>> import torch
        >>> state = {"weight": torch.zeros(1), "steps": [1]}
        >>> kept = state_copy(state)
        >>> state["weight"] += 1
        >>> kept
        {'weight': tensor([0.]), 'steps': [1]}
    """
    if hasattr(value, "detach"):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {name: state_copy(item) for name, item in value.items()}
    return [state_copy(item) for item in value] if isinstance(value, list) else copy.deepcopy(value)


class Smooth:
    """An exponential mean that is not biased towards zero.

    Example:
        >>> smooth = Smooth(0.5)
        >>> smooth.add(3.0), smooth.add(0.0), smooth.least
        (3.0, 1.0, 1.0)
    """

    def __init__(self, share: float) -> None:
        self._share, self._sum, self._weight = share, 0.0, 0.0
        self.least = math.inf
        """The smallest mean there was."""

    def add(self, value: float) -> float:
        """Add a value and return the mean."""
        self._sum = self._share * self._sum + (1 - self._share) * value
        self._weight = self._share * self._weight + (1 - self._share)
        mean = self._sum / self._weight
        self.least = min(self.least, mean)
        return mean


def suggested(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the middle of the rates in which the loss falls fastest, before its lowest point.

    Example:
        >>> falling = [(10.0 ** (n / 4 - 4), 3.0 if n < 6 else 3.0 - (n - 6) ** 2 / 20) for n in range(12)]
        >>> round(suggested([*falling, (1.0, 9.0)]), 4), suggested([(0.1, 1.0), (0.2, 2.0)] * 5)
        (0.0316, None)
    """
    finite = [(math.log(rate), loss) for rate, loss in points if math.isfinite(loss)]
    if len(finite) < FEWEST:
        return None
    lowest = min(range(len(finite)), key=lambda index: finite[index][1])
    # Lines through many points: two or three losses may be a matter of luck.
    width = max(3, len(finite) // 6)
    slopes = [line_through(finite[begin : begin + width])[0] for begin in range(lowest - width + 2)]
    steepest = min(range(len(slopes)), key=slopes.__getitem__, default=0)
    return math.exp(finite[steepest + width // 2][0]) if slopes and slopes[steepest] < 0 else None


def rates(start: float, end: float, count: int) -> Iterator[float]:
    """Return rates in equal proportion.

    Example:
        >>> [round(rate, 6) for rate in rates(0.001, 0.1, 3)]
        [0.001, 0.01, 0.1]
    """
    return (start * (end / start) ** (number / (count - 1)) for number in range(count))


def rates_of(optimizer: Any) -> list[float]:
    """Return the rate of each group."""
    return [float(group["lr"]) for group in param_groups(optimizer)]


def set_rates(optimizer: Any, before: Sequence[float], rate: float) -> None:
    """Set the rate of the first group, and those of the others in the same proportion as before."""
    groups = param_groups(optimizer)
    for group, own in zip(groups, before, strict=True):
        set_rate(group, rate * own / before[0] if before[0] else rate)


def begin_with(rate: float, optimizer: Any, scheduler: Any) -> None:
    """Make an optimizer and its schedulers as if built with a rate: schedulers remember the initial one."""
    before = rates_of(optimizer)
    set_rates(optimizer, before, rate)
    if not before[0]:
        return
    factor = rate / before[0]
    for group in param_groups(optimizer):
        if "initial_lr" in group:
            group["initial_lr"] = group["initial_lr"] * factor
    for one in each(scheduler):
        for part in (one, *getattr(one, "_schedulers", ())):
            if hasattr(part, "base_lrs"):
                part.base_lrs = [base * factor for base in part.base_lrs]


def endless(data: Any) -> Iterator[Any]:
    """Yield the batches of the data, again and again."""
    while True:
        empty = True
        for batch in data:
            empty = False
            yield batch
        if empty:
            return


def loss_of(output: Any, source: LossSource) -> float:
    """Return the loss of a step, as the mean of all ranks."""
    found = source.of(output)
    if "loss" not in found:
        raise ValueError(f"the step returns no loss: {source.remedy(output)}")
    losses: list[float] = all_gather(float(found["loss"]))
    return sum(losses) / len(losses)
