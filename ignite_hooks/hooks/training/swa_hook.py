"""Averages the weights of the last epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt

from ignite_hooks.checkpoint.delivered import deliver
from ignite_hooks.checkpoint.rng_state import preserve_rng
from ignite_hooks.distributed.collectives import average, fail_on_all_ranks
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.optimizers import param_groups, set_rate
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.event_schedule import schedule_given
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import AtEnd
from ignite_hooks.plan.schedule import When
from ignite_hooks.run.progress import planned_epochs
from ignite_hooks.run.state import Delivered
from ignite_hooks.text import counted, one_line

if TYPE_CHECKING:
    from ignite_hooks.model.averages import Averages
    from ignite_hooks.run.runner import Runner

KEY = "swa_state_dict"


@dataclass
class SWAState:
    """The state of this hook, which checkpoints hold."""

    taken: int = 0
    """The number of weights in the average."""
    rates_before: list[float] = field(default_factory=list)
    """The learning rates from which annealing began."""


@settings
class SWAHook(BaseHook):
    """Keep the plain mean of the weights at the ends of the last epochs (SWA), and give it to the model at the end.

    The training continues with its own weights, which ``state_dict`` holds in every checkpoint. Before the mean is
    saved for the last time, batch norms see the training data once more, as their statistics are of other weights.

    Args:
        start_epoch: The epochs that have to be over before the first is taken; below 1 it is a share of the run.
        interval: How many epochs lie between two that are taken.
        every: The same in words: '2 epoch'.
        swa_lr: The learning rate from start_epoch on, for which no scheduler may be active then; None leaves it alone.
        annealing_epochs: In how many epochs the learning rate comes to swa_lr, along a cosine.
        update_norms: Whether batch norms go through the training data at the end, where there are any.

    Reads: model, optimizer, train_loader, device.
    Saves: swa_state_dict in every checkpoint.
    """

    start_epoch: Annotated[int | float, Ge(0)] = 0.75
    interval: Annotated[int, Ge(1)] = 1
    every: str | None = None
    swa_lr: Annotated[float, Gt(0)] | None = None
    annealing_epochs: Annotated[int, Ge(0)] = 5
    update_norms: bool = True
    state: SWAState = field(init=False, default_factory=SWAState)

    collective: ClassVar[bool] = True
    changes_training: ClassVar[bool] = True
    delivers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.start_epoch, float) and self.start_epoch >= 1 and not self.start_epoch.is_integer():
            raise SettingError("start_epoch", f"{self.start_epoch:g}: a share below 1 or a number of epochs is needed")
        if self.every is not None:
            if "interval" in self.given:
                raise SettingError("every", "says the same as 'interval': give one of them")
            when = schedule_given(every=self.every)
            if when.unit != "epoch" or type(when) is not When or when.start > 1:
                raise SettingError(
                    "every", f"weights are taken at the ends of epochs: write '2 epoch', not {self.every!r}"
                )
            self.interval = int(when.interval)
        self._averages: Averages | None = None
        self._norms: dict[str, Any] = {}
        self._raw_norms: dict[str, Any] = {}

    @property
    def when(self) -> When:
        """Every epoch: the interval counts from the first averaged one, which only a run knows."""
        return When(1, "epoch")

    def how_often(self, method: str) -> str | None:
        if method != "after_train_epoch":
            return None
        begin = f"{self.start_epoch:g} of the run" if self.start_epoch < 1 else f"epoch {self.start_epoch:g}"
        return f"{When(self.interval, 'epoch')} after {begin}"

    def before_run(self, runner: Runner) -> None:
        if runner.global_step == 0:
            self.state, self._averages = SWAState(), None
        elif self._averages is not None and self._averages.swapped:
            # The previous run has left the mean in the model: this one continues with the weights.
            self._averages.swap_out()
            give(unwrapped(runner.model), self._raw_norms)

    def before_train_epoch(self, runner: Runner) -> None:
        begin = self._begins_after(runner)
        if self.swa_lr is None or runner.epoch < begin:
            return
        groups = param_groups(runner.optimizer)
        if not self.state.rates_before:
            self.state.rates_before = [float(group["lr"]) for group in groups]
        done = runner.epoch - begin + 1
        for group, before in zip(groups, self.state.rates_before, strict=True):
            set_rate(group, annealed(done, self.annealing_epochs, before, self.swa_lr))

    def after_train_epoch(self, runner: Runner) -> None:
        taken = When(self.interval, "epoch", start=self._begins_after(runner) + 1)
        if runner.state.epoch_complete and taken.due(runner.epoch + 1):
            self._take(runner)

    def before_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self._averages is not None and self.state.taken:
            checkpoint[KEY] = {**self._averages.state_dict(), **self._norms}

    def after_load_checkpoint(self, runner: Runner, checkpoint: Mapping[str, Any]) -> None:
        from ignite_hooks.model.averages import Averages

        self._averages, self._norms = None, {}
        found = checkpoint.get(KEY)
        if found is not None:
            self._averages = Averages(unwrapped(runner.model))
            self._averages.load_state_dict(found)
        elif self.state.taken:
            runner.logger.warning("the checkpoint holds no %s: the mean of the weights begins again", KEY)
            self.state.taken = 0

    @at("after_train", order=95)
    def after_train(self, runner: Runner) -> None:
        """Complete the mean before the last checkpoint is saved: batch norms have the statistics of other weights."""
        self._norms = {}
        if self._averages is None or not self.state.taken or runner.state.aborting:
            return
        module = unwrapped(runner.model)
        norms = norms_of(module)
        if not self.update_norms or not norms:
            return
        runner.checkpoints.wait_for_staging()
        data, raw = runner.trainer.state.dataloader, copies_of(norms)
        self._averages.swap_in()
        try:
            with preserve_rng(data):
                fail_on_all_ranks(lambda: renew_norms(module, data, runner.get_service("device")))
            average(list(norms.values()))
            self._norms = copies_of(norms)
        except Exception as error:
            # A failure so near the end must not lose the run.
            runner.logger.warning("batch norms keep the statistics of the weights before the mean: %s", one_line(error))
        finally:
            self._averages.swap_out()
            give(module, raw)

    @at("after_train", order=AtEnd.RESTORE)
    def put_mean_into_model(self, runner: Runner) -> None:
        """Put the mean into the model, after the last checkpoint; it is tested and saved then."""
        if self._averages is None or not self.state.taken or runner.state.aborting:
            return
        runner.checkpoints.wait_for_staging()
        module = unwrapped(runner.model)
        self._raw_norms = copies_of(norms_of(module))
        self._averages.swap_in()
        give(module, self._norms)
        what = f"the mean of the weights of {counted(self.state.taken, 'epoch')}"
        deliver(runner, Delivered(what, int(runner.trainer_state.epoch), runner.global_step))
        runner.logger.info("the model has %s", what)

    def _begins_after(self, runner: Runner) -> int:
        """Return the number of epochs before the first that is averaged."""
        epochs = planned_epochs(runner)
        if epochs is None and 0 < self.start_epoch < 1:
            raise SettingError(
                "start_epoch", f"{self.start_epoch:g} of an unknown number of epochs: say how many, as in 10"
            )
        return first_epoch(self.start_epoch, epochs)

    def _take(self, runner: Runner) -> None:
        from ignite_hooks.model.averages import Averages

        runner.checkpoints.wait_for_staging()
        if self._averages is None:
            self._averages = Averages(unwrapped(runner.model))
            self.state.taken = 1
            return
        self._averages.refresh()
        taken = self.state.taken
        if self._averages.weights.update(taken / (taken + 1)):
            self.state.taken += 1
        else:
            runner.logger.warning("the weights of epoch %d are not finite: they are not taken", runner.epoch + 1)


def first_epoch(start: float, max_epochs: int | None) -> int:
    """Return the number of epochs before the first that is averaged.

    Example:
        >>> first_epoch(0.75, 10), first_epoch(3, 10), first_epoch(0.75, 1)
        (7, 3, 0)
    """
    return int(start * (max_epochs or 0)) if start < 1 else int(start)


def annealed(done: int, epochs: int, before: float, after: float) -> float:
    """Return the learning rate of the epoch of this number, counted from 1.

    Example:
        >>> annealed(1, 2, 0.1, 0.02), annealed(2, 2, 0.1, 0.02), annealed(1, 0, 0.1, 0.02)
        (0.06, 0.02, 0.02)
    """
    share = 1.0 if done >= epochs else (1 - math.cos(math.pi * done / epochs)) / 2
    return round(before + (after - before) * share, 15)


def norms_of(module: Any) -> dict[str, Any]:
    """Return the running statistics of the batch norms of a module, by name."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, norm in module.named_modules()
        if isinstance(norm, _BatchNorm)
        for name, buffer in norm.named_buffers(recurse=False)
    }


def trained_norms(module: Any) -> list[Any]:
    """Return the batch norms of a module that update their statistics, now that it is in train()."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return [part for part in module.modules() if isinstance(part, _BatchNorm) and part.training]


def copies_of(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return independent copies by name."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def give(module: Any, statistics: Mapping[str, Any]) -> None:
    """Set the statistics of batch norms."""
    for name, value in norms_of(module).items():
        if name in statistics:
            value.copy_(statistics[name])


def renew_norms(module: Any, data: Any, device: Any) -> None:
    """Renew the statistics of the batch norms from all the data, and change nothing else.

    Not by ``torch.optim.swa_utils.update_bn``: it would empty those of norms that stay in eval() as well, frozen ones.
    """
    import torch

    if data is None or isinstance(data, Iterator):
        raise ValueError("the training data cannot be gone through again")
    before = [(part, part.training, getattr(part, "momentum", None)) for part in module.modules()]
    first = next(iter(module.parameters()), None)
    device = device or (None if first is None else first.device)
    try:
        module.train()
        for norm in trained_norms(module):
            norm.reset_running_stats()
            # All batches count equally.
            norm.momentum = None
        with torch.no_grad():
            for batch in data:
                inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
                module(inputs if device is None else inputs.to(device))
    finally:
        for part, mode, momentum in before:
            part.training = mode
            if hasattr(part, "momentum"):
                part.momentum = momentum
