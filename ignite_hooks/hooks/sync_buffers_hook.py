"""Makes the buffers of the model the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.checkpoint import unwrapped
from ignite_hooks.hooks.base_hook import BaseHook, settings

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.runner import Runner


@settings
class SyncBuffersHook(BaseHook):
    """Average the buffers of the model over all ranks before anything evaluates or saves them.

    Running statistics become their mean; whole numbers become those of rank 0. Alone, it does nothing.

    Reads: model.
    """

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
        import ignite.distributed as idist

        # Once for a step: in the evaluation of an epoch, averaged weights may already sit in the model.
        if model is None or idist.get_world_size() == 1 or self._synced_at == runner.global_step:
            return
        self._synced_at = runner.global_step
        synchronise(list(unwrapped(model).buffers()))


def synchronise(buffers: Sequence[Tensor]) -> None:
    """Average floating-point buffers over all ranks and take all others from rank 0: two collectives at most."""
    import ignite.distributed as idist
    import torch

    buffers = [torch.view_as_real(buffer) if buffer.is_complex() else buffer for buffer in buffers]
    floating = [buffer for buffer in buffers if buffer.is_floating_point()]
    others = [buffer for buffer in buffers if not buffer.is_floating_point()]
    if floating:
        # In double precision equal values stay as they are to the bit, whatever the number of ranks.
        total = idist.all_reduce(_flat(floating, torch.float64))
        _spread(total / idist.get_world_size(), floating)
    if others:
        _spread(idist.broadcast(_flat(others, torch.int64), src=0), others)


def _flat(buffers: Sequence[Tensor], dtype: Any) -> Tensor:
    import ignite.distributed as idist
    import torch

    return torch.cat([buffer.detach().reshape(-1).to(idist.device(), dtype) for buffer in buffers])


def _spread(flat: Any, buffers: Sequence[Tensor]) -> None:
    import torch

    with torch.no_grad():
        for buffer, part in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(part.view_as(buffer))
