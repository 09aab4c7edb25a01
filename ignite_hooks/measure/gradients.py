"""Gradients and updates of the layers of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LayerGradient:
    """The gradient of one layer in one iteration.

    Args:
        gradient: Norm of the gradient.
        size: Number of weights.
        ratio: Norm of the update divided by that of the weights, if both are known.
    """

    gradient: float
    size: int
    ratio: float | None = None

    @property
    def per_weight(self) -> float:
        """The root mean square of the gradients of its weights."""
        return self.gradient / math.sqrt(self.size)


class GradientSample:
    """The norms of one iteration, left on the device until they are fetched together.

    Args:
        layers: The parameters of each layer.
        step: The iteration, counted from 1.
    """

    def __init__(self, layers: Mapping[str, Sequence[Any]], step: int) -> None:
        import torch

        self.step = step
        self.optimizers: list[Any] = []
        self._norm: Any = torch._foreach_norm
        self._layers = layers
        self._gradients: dict[Any, Any] = {}
        """Norms by parameter; None for a parameter without gradient."""
        self._before: list[tuple[Any, Any]] = []
        self._changes: dict[Any, tuple[Any, Any]] = {}
        """The norms of an update and of the weights before it, by parameter."""

    def note_gradients(self, chosen: Callable[[Any], bool], scale: Any = None, optimizer: Any = None) -> None:
        """Note the gradients of some parameters.

        Args:
            chosen: Return whether to note a parameter.
            scale: Factor by which the gradients were multiplied.
            optimizer: The optimizer about to update them; the weights are copied to measure the update.
        """
        every = [parameter for parameters in self._layers.values() for parameter in parameters if chosen(parameter)]
        found = [parameter for parameter in every if parameter.grad is not None]
        norms = list(self._norm([dense(parameter.grad) for parameter in found])) if found else []
        if scale is not None:
            norms = [norm / scale.to(norm.device) for norm in norms]
        self._gradients |= dict.fromkeys(every) | dict(zip(found, norms, strict=True))
        if optimizer is not None:
            self.optimizers.append(optimizer)
            self._before = [(parameter, parameter.detach().clone()) for parameter in found]

    def note_update(self) -> None:
        """Note how much the optimizer has changed the weights."""
        import torch

        before, self._before = self._before, []
        if before:
            weights = [old for _, old in before]
            changes = torch._foreach_sub([parameter.detach() for parameter, _ in before], weights)
            norms = zip(self._norm(changes), self._norm(weights), strict=True)
            self._changes |= {parameter: both for (parameter, _), both in zip(before, norms, strict=True)}

    def fetch(self) -> dict[str, LayerGradient]:
        """Return the norms by layer; wait for the device once."""
        import torch

        norms = [norm for norm in self._gradients.values() if norm is not None]
        norms += [norm for both in self._changes.values() for norm in both]
        numbers = iter(torch.stack([n.float().to(norms[0].device) for n in norms]).tolist() if norms else [])
        gradients = {p: 0.0 if norm is None else next(numbers) for p, norm in self._gradients.items()}
        changes = {parameter: (next(numbers), next(numbers)) for parameter in self._changes}
        found = {}
        for name, parameters in self._layers.items():
            here = [parameter for parameter in parameters if parameter in gradients]
            reached = [parameter for parameter in here if self._gradients[parameter] is not None]
            if not here:
                continue
            ratio = None
            if moved := [changes[parameter] for parameter in here if parameter in changes]:
                change, weight = (math.hypot(*values) for values in zip(*moved, strict=True))
                ratio = change / weight if weight > 0 else None
            size = sum(parameter.numel() for parameter in reached) or 1
            found[name] = LayerGradient(math.hypot(*(gradients[parameter] for parameter in here)), size, ratio)
        return found


class GradientFlow:
    """The gradients of each layer over a run, as sums of constant size."""

    def __init__(self) -> None:
        self.layers: dict[str, LayerHistory] = {}

    def add(self, found: Mapping[str, LayerGradient]) -> None:
        """Add the gradients of one iteration."""
        for name, gradient in found.items():
            self.layers.setdefault(name, LayerHistory()).add(gradient)

    def strengths(self) -> dict[str, tuple[float, float]]:
        """Return the mean and the largest gradient of a weight in each layer, in the order of the model."""
        return {name: (layer.mean, layer.largest) for name, layer in self.layers.items()}

    def ratios(self) -> dict[str, float]:
        """Return the mean share by which an update changes the weights of each layer."""
        return {name: layer.ratio for name, layer in self.layers.items() if layer.ratio is not None}


class LayerHistory:
    """The gradients of one layer over a run."""

    def __init__(self) -> None:
        self.samples = self.not_finite = 0
        self._sum, self.largest, self.smallest = 0.0, 0.0, math.inf
        self._ratios = 0
        self._ratio_sum = 0.0

    def add(self, gradient: LayerGradient) -> None:
        """Add one gradient."""
        self.samples += 1
        if not math.isfinite(gradient.per_weight):
            self.not_finite += 1
            return
        self._sum += gradient.per_weight
        self.largest = max(self.largest, gradient.per_weight)
        self.smallest = min(self.smallest, gradient.per_weight)
        if gradient.ratio is not None and math.isfinite(gradient.ratio):
            self._ratios += 1
            self._ratio_sum += gradient.ratio

    @property
    def mean(self) -> float:
        """The mean of the finite gradients."""
        finite = self.samples - self.not_finite
        return self._sum / finite if finite else 0.0

    @property
    def ratio(self) -> float | None:
        """The mean ratio of update to weights, if any is known."""
        return self._ratio_sum / self._ratios if self._ratios else None


def dense(gradient: Any) -> Any:
    """Return the values of a gradient, whether it is dense or sparse."""
    gradient = gradient.detach()
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def trained_parameters(optimizers: Sequence[Any]) -> set[Any]:
    """Return all parameters of some optimizers."""
    return {parameter for one in optimizers for group in one.param_groups for parameter in group["params"]}
