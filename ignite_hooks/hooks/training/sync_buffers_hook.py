"""Makes the buffers of the model the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.distributed.collectives import average, world_size
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.wrapping import unwrapped

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class SyncBuffersHook(BaseHook):
    """Average the buffers of the model over all ranks before anything evaluates or saves them.

    Running statistics become their mean; whole numbers become those of rank 0. Alone, it does nothing.

    Reads: model.
    """

    may_end_a_run: ClassVar[bool] = False
    collective: ClassVar[bool] = True

    # Before an evaluation or a checkpoint of the epoch, and before averaged weights are swapped in.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train_epoch": 95, "before_val_epoch": 30}

    def __post_init__(self) -> None:
        self._synced_at = -1

    def before_run(self, runner: Runner, model: Any = None) -> None:
        self._synced_at = -1
        if model is None:
            runner.logger.info("no model was given to attach_hooks: its buffers are not synchronised")

    def after_train_epoch(self, runner: Runner, model: Any = None) -> None:
        self._sync(runner, model)

    def before_val_epoch(self, runner: Runner, model: Any = None) -> None:
        self._sync(runner, model)

    def _sync(self, runner: Runner, model: Any) -> None:
        # Once for a step: in the evaluation of an epoch, averaged weights may already sit in the model.
        if model is None or world_size() == 1 or self._synced_at == runner.global_step:
            return
        self._synced_at = runner.global_step
        average(list(unwrapped(model).buffers()))
