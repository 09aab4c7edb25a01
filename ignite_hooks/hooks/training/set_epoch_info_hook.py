"""Tells the model which epoch it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.wrapping import unwrapped

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class SetEpochInfoHook(BaseHook):
    """Call model.set_epoch(epoch) before every epoch, counted from 0.

    A model within DistributedDataParallel or DataParallel is found there.

    Reads: model.
    """

    may_end_a_run: ClassVar[bool] = False

    def before_train(self, runner: Runner, model: Any) -> None:
        if not callable(getattr(unwrapped(model), "set_epoch", None)):
            name = type(unwrapped(model)).__name__
            runner.logger.warning("%s has no method set_epoch(epoch): it does not receive the epoch", name)

    def before_train_epoch(self, model: Any, epoch: int) -> None:
        set_epoch = getattr(unwrapped(model), "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
