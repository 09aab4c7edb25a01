"""Tells samplers which epoch it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ignite_hooks.hooks.base_hook import BaseHook, settings

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class DistSamplerSeedHook(BaseHook):
    """Give the sampler of the training data the number of the epoch, so that each epoch has another order.

    Reads: the loader the trainer runs on.
    """

    may_end_a_run: ClassVar[bool] = False

    def before_train_epoch(self, runner: Runner, epoch: int) -> None:
        loader = runner.trainer.state.dataloader
        batch_sampler = getattr(loader, "batch_sampler", None)
        for sampler in (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)):
            set_epoch = getattr(sampler, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
                return
