"""Gradients and updates of the layers of a model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

RECENT, FEWEST_RECENT = 100, 10
"""The number of samples that say what is usual for a layer, and the number from which on they do."""

FALLS = 10.0
"""The factor below its median at which a layer counts as falling with the others."""


@dataclass(frozen=True)
class LayerGradient:
    """The gradient of one layer in one iteration.

    Args:
        gradient: Norm of the gradient.
        size: Number of weights.
        ratio: Norm of the update divided by that of the weights, if both are known.
        weight: Norm of the weights that have a gradient, if known.
    """

    gradient: float
    size: int
    ratio: float | None = None
    weight: float | None = None

    @property
    def per_weight(self) -> float:
        """The root mean square of the gradients of its weights."""
        return self.gradient / math.sqrt(self.size)

    @property
    def relative(self) -> float | None:
        """The norm of the gradient divided by that of the weights, where both are positive and finite."""
        known = self.weight and math.isfinite(self.weight) and self.gradient > 0 and math.isfinite(self.gradient)
        return self.gradient / self.weight if known and self.weight else None


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
        self._weights: dict[Any, Any] = {}
        """Norms of the weights before the update, by parameter with a gradient."""
        self._before: list[tuple[Any, Any]] = []
        self._changes: dict[Any, Any] = {}
        """The norms of an update, by parameter."""

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
        sizes = self._norm([parameter.detach() for parameter in found]) if found else []
        self._weights |= dict(zip(found, sizes, strict=True))
        if optimizer is not None:
            self.optimizers.append(optimizer)
            self._before = [(parameter, parameter.detach().clone()) for parameter in found]

    def note_update(self) -> None:
        """Note how much the optimizer has changed the weights."""
        import torch

        before, self._before = self._before, []
        if before:
            changes = torch._foreach_sub([parameter.detach() for parameter, _ in before], [old for _, old in before])
            self._changes |= {p: change for (p, _), change in zip(before, self._norm(changes), strict=True)}

    def fetch(self) -> dict[str, LayerGradient]:
        """Return the norms by layer; wait for the device once."""
        import torch

        norms = [norm for norm in self._gradients.values() if norm is not None]
        norms += [*self._weights.values(), *self._changes.values()]
        numbers = iter(torch.stack([n.float().to(norms[0].device) for n in norms]).tolist() if norms else [])
        gradients = {p: 0.0 if norm is None else next(numbers) for p, norm in self._gradients.items()}
        weights = {parameter: next(numbers) for parameter in self._weights}
        changes = {parameter: next(numbers) for parameter in self._changes}
        found = {}
        for name, parameters in self._layers.items():
            here = [parameter for parameter in parameters if parameter in gradients]
            reached = [parameter for parameter in here if self._gradients[parameter] is not None]
            if not here:
                continue
            ratio = None
            if moved := [parameter for parameter in here if parameter in changes]:
                before = math.hypot(*(weights[parameter] for parameter in moved))
                ratio = math.hypot(*(changes[parameter] for parameter in moved)) / before if before > 0 else None
            weight = math.hypot(*(weights[parameter] for parameter in reached)) if reached else None
            size = sum(parameter.numel() for parameter in reached) or 1
            gradient = math.hypot(*(gradients[parameter] for parameter in here))
            found[name] = LayerGradient(gradient, size, ratio, weight)
        return found


class GradientFlow:
    """The gradients of each layer over a run, as sums of constant size."""

    def __init__(self) -> None:
        self.layers: dict[str, LayerHistory] = {}
        self.kinds: dict[str, str] = {}
        """The kind of each layer, where it is known."""

    def add(self, found: Mapping[str, LayerGradient], kinds: Mapping[str, str] | None = None) -> None:
        """Add the gradients of one iteration.

        Args:
            found: The gradients by layer.
            kinds: The kinds of the layers, such as Linear; only layers of a kind are compared.
        """
        self.kinds |= kinds or {}
        factors = {}
        for name, gradient in found.items():
            history = self.layers.setdefault(name, LayerHistory())
            if (factor := history.add(gradient)) is not None:
                factors[name] = factor
        # If most of them fall together, the run has converged.
        falling = sum(factor * FALLS <= 1 for factor in factors.values()) > len(factors) / 2
        for name, factor in factors.items():
            layer = self.layers[name]
            layer.rise = max(layer.rise, factor)
            if not falling:
                layer.fall = min(layer.fall, factor)

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
        self._recent: deque[float] = deque(maxlen=RECENT)
        """The last gradients relative to the weights."""
        self.rise = self.fall = 1.0
        """The largest and the smallest gradient as a factor of the median of the samples before it."""

    def add(self, gradient: LayerGradient) -> float | None:
        """Add one gradient; return it as a factor of the median of the last ones, where these are known."""
        self.samples += 1
        if not math.isfinite(gradient.per_weight):
            self.not_finite += 1
            return None
        relative, usual = gradient.relative, self.level
        factor = relative / usual if relative and usual and len(self._recent) >= FEWEST_RECENT else None
        if relative:
            self._recent.append(relative)
        self._sum += gradient.per_weight
        self.largest = max(self.largest, gradient.per_weight)
        self.smallest = min(self.smallest, gradient.per_weight)
        if gradient.ratio is not None and math.isfinite(gradient.ratio):
            self._ratios += 1
            self._ratio_sum += gradient.ratio
        return factor

    @property
    def level(self) -> float | None:
        """The median of the last gradients relative to the weights, if any is known."""
        return median(self._recent) if self._recent else None

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
