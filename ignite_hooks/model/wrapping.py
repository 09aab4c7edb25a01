"""The model behind its wrappers, and whether this process holds all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


def unwrapped(model: Any) -> Any:
    """Return the model inside DataParallel, DistributedDataParallel and ``torch.compile``, in any order."""
    from torch.nn import Module
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while isinstance(model, Module):
        # By its attribute: importing the class of a compiled model takes longer than everything else here.
        wraps = isinstance(model, (DataParallel, DistributedDataParallel))
        inner = model.module if wraps else getattr(model, "_orig_mod", None)
        if not isinstance(inner, Module):
            break
        model = inner
    return model


def is_sharded(model: Any) -> bool:
    """Return whether this process has only a part of some weights, as with FSDP2 and tensor parallelism."""
    import torch

    found = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    return any(map(is_dtensor, found))


def is_lazy_model(model: Module) -> bool:
    """Return whether there are parameters that have no size before the first forward pass."""
    from torch.nn.parameter import is_lazy

    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))


def is_dtensor(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor, of which this process has a part."""
    return hasattr(tensor, "_local_tensor")


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process has."""
    found: Tensor = getattr(tensor, "_local_tensor", tensor)
    return found
