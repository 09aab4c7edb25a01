"""Makes the norm layers of the model the same on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.distributed.collectives import average, world_size
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.wrapping import unwrapped

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.run.runner import Runner


@settings
class SyncNormHook(BaseHook):
    """Average weights and running statistics of the batch norm layers over all ranks before an evaluation.

    Alone, or without such layers, it does nothing.

    Reads: model.
    """

    may_end_a_run: ClassVar[bool] = False
    collective: ClassVar[bool] = True

    # Before averaged weights are swapped in.
    point_priority: ClassVar[dict[str, int]] = {"before_val_epoch": 30}

    def before_val_epoch(self, runner: Runner, model: Any) -> None:
        if world_size() > 1 and (tensors := tensors_of_norms(unwrapped(model))):
            runner.checkpoints.wait_for_staging()
            average(tensors)


def tensors_of_norms(model: Any) -> list[Tensor]:
    """Return the weights and statistics of the batch norm layers of a model.

    Example:
        >>> import torch
        >>> [tuple(tensor.shape) for tensor in tensors_of_norms(torch.nn.BatchNorm1d(3))]
        [(3,), (3,), (3,), (3,), ()]
    """
    from torch.nn.modules.batchnorm import _NormBase

    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    return [tensor for norm in norms for tensor in norm.state_dict().values()]
