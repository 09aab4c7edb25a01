"""The model behind its wrappers, and whether this process holds all of it."""

from __future__ import annotations

from typing import Any


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
    return any(hasattr(tensor, "_local_tensor") for tensor in found)
