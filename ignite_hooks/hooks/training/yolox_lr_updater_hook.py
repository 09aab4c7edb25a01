"""The learning rate of YOLOX: a quadratic warm-up, a cosine, and a constant end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.optimizers import param_groups, set_rate
from ignite_hooks.plan.schedule import When

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class YOLOXLrUpdaterHook(BaseHook):
    """Set the learning rate: it rises as a parabola, falls as a cosine, and stays for the last epochs.

    Every group of the optimizer has a separate curve, from its initial learning rate. The rate follows from
    the iteration alone, so a resumed run needs no state. Epochs and iterations are never added up: with ``by_epoch``
    the cosine is one of epochs and its rate changes with each, else one of iterations. The warm-up moves with every
    iteration in both.

    Args:
        num_last_epochs: How many epochs at the end have the lowest rate.
        by_epoch: Whether the cosine moves by epochs.
        warmup_iters: How long the warm-up is; 0 for none.
        warmup_by_epoch: Whether ``warmup_iters`` counts epochs.
        warmup_ratio: The share of the full rate that the warm-up ends with.
        min_lr_ratio: The lowest rate as a share of the full one.
        min_lr: The lowest rate itself, in place of the share.

    Reads: optimizer.
    """

    num_last_epochs: Annotated[int, Ge(0)] = 15
    by_epoch: bool = True
    warmup_iters: Annotated[int, Ge(0)] = 5
    warmup_by_epoch: bool = True
    warmup_ratio: Annotated[float, Ge(0)] = 1.0
    min_lr_ratio: Annotated[float, Ge(0)] = 0.05
    min_lr: Annotated[float, Ge(0)] | None = None

    changes_training: ClassVar[bool] = True
    may_end_a_run: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._length, self._max_iters = 1, 1

    @property
    def when(self) -> When:
        """At every iteration, whatever ``by_epoch`` says of the cosine."""
        return When()

    def before_train(self, runner: Runner, scheduler: Any = None) -> None:
        length = runner.trainer_state.epoch_length
        if length is None or runner.max_iters is None:
            raise ValueError("how long an epoch is has to be known: give trainer.run(..., epoch_length=...)")
        if scheduler is not None:
            runner.logger.warning(
                "there is a scheduler (%s) too: who steps it undoes this one", type(scheduler).__name__
            )
        self._length, self._max_iters = length, runner.max_iters
        warmup = self.warmup_iters / (1 if self.warmup_by_epoch else self._length)
        epochs = self._max_iters / self._length
        if epochs <= warmup + self.num_last_epochs:
            words = (
                "of %g epochs %g rise and the last %d have the lowest rate: none is left for the cosine between them"
            )
            runner.logger.warning(words, epochs, warmup, self.num_last_epochs)

    def before_train_iter(self, runner: Runner, optimizer: Any) -> None:
        # Read each time: loading a checkpoint replaces the groups, with their initial rates.
        for group in param_groups(optimizer):
            full = float(group.setdefault("initial_lr", float(group["lr"])))
            set_rate(group, self.rate_at(runner.global_step - 1, full))

    def rate_at(self, iteration: int, full: float) -> float:
        """Return the rate of an iteration, counted from 0, for a group with this full rate."""
        length, lowest = self._length, full * self.min_lr_ratio if self.min_lr is None else self.min_lr
        warmup = self.warmup_iters * (length if self.warmup_by_epoch else 1)
        if iteration < warmup:
            return float(full * self.warmup_ratio * ((iteration + 1) / warmup) ** 2)
        if self.by_epoch:
            end = self._max_iters / length - self.num_last_epochs
            return cosine(iteration // length, warmup / length, end, full, lowest)
        return cosine(iteration, warmup, self._max_iters - self.num_last_epochs * length, full, lowest)


def cosine(now: float, begin: float, end: float, full: float, lowest: float) -> float:
    """Return the rate on its way down; all three places are in one unit.

    Example:
        >>> [round(cosine(now, 2, 6, 1.0, 0.0), 3) for now in (2, 3, 4, 6, 9)]
        [1.0, 0.854, 0.5, 0.0, 0.0]
    """
    if now >= end:
        return lowest
    done = max(0.0, now - begin) / (end - begin)
    return lowest + (full - lowest) * (1 + math.cos(math.pi * done)) / 2
