"""The weights of a model as files: safetensors, and a ``.pth`` of nothing but weights and what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, cast

import torch
from torch import Tensor

from ignite_hooks.errors import ExportError
from ignite_hooks.export.example import as_type
from ignite_hooks.store.files import new_file
from ignite_hooks.store.verify import loaded

FORMAT_OF_HUBS: Final = "pt"
"""The framework of a file of weights, which some readers want to know."""


def weights_of(state: Mapping[str, Any], dtype: torch.dtype | None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a state, tied ones once, and under which name each other of them is found.

    Args:
        state: The state of a model under its plain names.
        dtype: The type of floating point numbers; None leaves it.

    Example:
        >>> one = torch.zeros(2)
        >>> tensors, tied = weights_of({"head": one, "embedding": one}, None)
        >>> list(tensors), tied
        (['head'], {'embedding': 'head'})
    """
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            continue
        if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
            raise ExportError(f"{name} is no ordinary tensor with content, which an exported model needs")
        identity = (value.untyped_storage().data_ptr(), value.storage_offset(), tuple(value.shape), value.stride())
        kept = first.setdefault((*identity, value.dtype), name) if value.numel() else name
        if kept != name:
            tied[name] = kept
            continue
        # A copy, as another may be a view of the same memory.
        tensors[name] = as_type(value.detach(), dtype).cpu().clone(memory_format=torch.contiguous_format)
    return tensors, tied


def left_out_of(state: Mapping[str, Any]) -> list[str]:
    """Return the names in a state that hold no tensors, which a file of weights cannot have."""
    return [name for name, value in state.items() if not isinstance(value, Tensor)]


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], tied: Mapping[str, str], facts: Mapping[str, Any]
) -> None:
    """Write a file of safetensors; names of tied weights are in its metadata, as `safetensors.torch` writes them."""
    from safetensors.torch import save

    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}
    metadata = {**texts, **{name: kept for name, kept in tied.items() if name not in texts}}
    with new_file(path) as file:
        file.write(save(dict(tensors), {**metadata, "format": FORMAT_OF_HUBS}))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file, tied ones under each of their names."""
    from safetensors import safe_open
    from safetensors.torch import load

    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata() or {}
    found = load(path.read_bytes())
    return found | {name: found[kept] for name, kept in metadata.items() if kept in found and name not in found}


def write_slim(path: Path, tensors: Mapping[str, Tensor], tied: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Write a ``.pth`` with weights and what they are, which `torch.load` opens with ``weights_only=True``."""
    state = {**tensors, **{name: tensors[kept] for name, kept in tied.items()}}
    with new_file(path) as file:
        torch.save({"state_dict": state, "meta": json.loads(json.dumps(dict(facts)))}, cast("IO[bytes]", file))


def read_slim(path: Path) -> dict[str, Tensor]:
    """Return the weights of a slim ``.pth``."""
    found: dict[str, Tensor] = loaded(path)["state_dict"]
    return found
