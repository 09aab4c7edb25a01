"""The inputs that a model is traced and checked with: batches of any size, made of the samples of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ignite_hooks.errors import ExportError
from ignite_hooks.model.mapped_batches import arguments_of, prepare_batch
from ignite_hooks.text import shown


@dataclass(frozen=True)
class Example:
    """The arguments of one call of a model, on the CPU."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    samples: int
    """The number of samples in the batch, the first dimension of its tensors."""

    @classmethod
    def of(cls, model: Any, inputs: Any) -> Example:
        """Return the example that the inputs of a batch are.

        Raises:
            ExportError: If they have no tensor with a dimension for samples.
        """
        try:
            args, kwargs = arguments_of(model, inputs)
        except ValueError as error:
            raise ExportError(str(error)) from error
        args, kwargs = pytree.tree_map(lambda each: _on_cpu(each), (args, kwargs))
        sizes = [len(each) for each in _tensors((args, kwargs)) if each.ndim]
        if not sizes or not sizes[0]:
            raise ExportError(f"a batch of tensors is needed to export a model, not {shown(inputs)}")
        return cls(args, kwargs, sizes[0])

    def resized(self, samples: int) -> Example:
        """Return a batch of this size: the first samples, again from the beginning if there are too few."""
        order = torch.arange(samples) % self.samples

        def chosen(value: Any) -> Any:
            return value[order].clone() if self._has_samples(value) else value

        args, kwargs = pytree.tree_map(chosen, (self.args, self.kwargs))
        return Example(args, kwargs, samples)

    def cast(self, dtype: torch.dtype | None) -> Example:
        """Return the batch with its floating point numbers in this type."""
        args, kwargs = pytree.tree_map(lambda each: as_type(each, dtype), (self.args, self.kwargs))
        return Example(args, kwargs, self.samples)

    def dynamic_shapes(self, batch: Any) -> tuple[Any, ...] | dict[str, Any]:
        """Return what `torch.export` asks for, where the first dimension of tensors with samples is this one."""

        def spec(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return None
            return {0: batch} if self._has_samples(value) else {}

        # Of a call, torch takes either.
        return tuple(pytree.tree_map(spec, list(self.args))) if self.args else pytree.tree_map(spec, dict(self.kwargs))

    def call(self, model: Any) -> Any:
        """Call a model, or what was made of it, with the batch."""
        return model(*self.args, **self.kwargs)

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the batch in the order of the arguments."""
        return _tensors((self.args, dict(self.kwargs)))

    def described(self) -> list[dict[str, Any]]:
        """Return shape and type of every tensor; the number of samples is ``batch``."""
        return [
            {
                "shape": [
                    "batch" if not place and self._has_samples(each) else size for place, size in enumerate(each.shape)
                ],
                "dtype": str(each.dtype).removeprefix("torch."),
            }
            for each in self.tensors()
        ]

    def _has_samples(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.ndim > 0 and len(value) == self.samples


def example_inputs(loader: Any) -> Any:
    """Return the inputs of the first batch of a loader.

    Raises:
        ExportError: If it has none, or what it yields is no pair and no mapping with a target.
    """
    batch = next(iter(loader), None)
    if batch is None:
        raise ExportError("the data has no batch: give ExportHook the setting inputs")
    try:
        return prepare_batch(batch, "cpu")[0]
    except (ValueError, TypeError) as error:
        raise ExportError(
            f"the inputs of a batch are not clear, give ExportHook the setting inputs: {error}"
        ) from error


def as_type(value: Any, dtype: torch.dtype | None) -> Any:
    """Return a tensor of floating point numbers in a type, and everything else as it is."""
    wanted = dtype is not None and isinstance(value, Tensor) and value.is_floating_point()
    return value.to(dtype) if wanted else value


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in pytree.tree_leaves(tree) if isinstance(each, Tensor)]
