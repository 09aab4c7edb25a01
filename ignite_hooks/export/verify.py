"""Compare what a model and its exported form return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ignite_hooks.errors import ExportError

TOLERANCES: Final[Mapping[torch.dtype, float]] = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""How far an output of an exported model may be from that of the original, relative to the largest value above 1."""


def outputs_of(found: Any) -> list[Tensor]:
    """Return the tensors of an output, in order: of a tensor, a list, a mapping or a registered class of these."""
    if isinstance(found, Mapping):
        found = dict(found)
    leaves = [torch.as_tensor(each) for each in pytree.tree_leaves(found) if isinstance(each, (Tensor, int, float))]
    if not leaves:
        raise ExportError(f"the model returns no tensor but {type(found).__name__}")
    return [_real(each.detach().cpu()) for each in leaves]


def difference(wanted: list[Tensor], found: list[Tensor]) -> float:
    """Return the largest difference of two lists of outputs, relative to the largest value above 1.

    Raises:
        ExportError: If number or shapes differ.

    Example:
        >>> difference([torch.tensor([10.0, 0.0])], [torch.tensor([11.0, 0.0])])
        0.1
    """
    shapes = [[tuple(each.shape) for each in outputs] for outputs in (wanted, found)]
    if shapes[0] != shapes[1]:
        raise ExportError(f"it returns outputs of the shapes {shapes[1]}, and the model {shapes[0]}")
    return max((_difference(one.double(), other.double()) for one, other in zip(wanted, found, strict=True)), default=0)


def _difference(wanted: Tensor, found: Tensor) -> float:
    if not wanted.numel():
        return 0.0
    same = (wanted == found) | (wanted.isnan() & found.isnan())
    if bool(same.all()):
        return 0.0
    finite = wanted[wanted.isfinite()].abs()
    largest = max(1.0, float(finite.max()) if finite.numel() else 1.0)
    return float((wanted - found).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)[~same].max()) / largest


def _real(value: Tensor) -> Tensor:
    return torch.view_as_real(value) if value.is_complex() else value
