"""Tells the model which epoch it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.parts import each
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
        models = [unwrapped(one) for one in each(model)]
        if not any(callable(getattr(one, "set_epoch", None)) for one in models):
            names = ", ".join(type(one).__name__ for one in models)
            runner.logger.warning("%s has no method set_epoch(epoch): it does not receive the epoch", names)

    def before_train_epoch(self, model: Any, epoch: int) -> None:
        for one in each(model):
            set_epoch = getattr(unwrapped(one), "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
