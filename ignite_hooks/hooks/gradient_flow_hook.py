"""Follows the gradients through the layers."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from ignite_hooks.checkpoint import unwrapped
from ignite_hooks.drawing.profile import draw_gradient_flow, png
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.phases import Mark, each
from ignite_hooks.points import Priority
from ignite_hooks.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.runner import Runner

PICTURE = "gradient_flow.png"

VANISHING = 1e-4
"""The share of the strongest layer's gradient below which one is said to vanish."""

EXPLODING = 1e3
"""How many times the usual gradient of a layer one is said to explode."""

FAST, SLOW = 0.1, 1e-7
"""The shares of its weights that a layer changes by in an update that are remarkable."""


@settings
class GradientFlowHook(BaseHook):
    """Measure how large the gradient of each layer is, and how large an update beside the weights it changes.

    Where an optimizer is known, gradients are those it uses, after unscaling and clipping.

    Args:
        interval: How many iterations lie between two looks.
        layers: The layers to look at, by name or pattern such as ``encoder.*``; all by default.

    Reads: model, optimizer.
    Writes: grad_norm/<layer>, update_ratio/<layer>, grad_norm/all; visualization/gradient_flow.png.
    """

    interval: Annotated[int, Ge(1)] = 100
    layers: list[str] | None = None
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"

    def __post_init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._flow = Flow()
        self._parameters: dict[str, list[Any]] = {}
        self._watches: list[Any] = []
        self._due = False
        self._look: Look | None = None

    def before_run(self) -> None:
        self._leave()
        self._forget()

    def before_train(self, runner: Runner, model: Any) -> None:
        self._parameters = by_layer(model, self.layers)
        if not self._parameters:
            raise ValueError(f"layers: no layer of the model with parameters that are trained matches {self.layers}")
        for optimizer in each(runner.optimizer):
            if hasattr(optimizer, "register_step_post_hook"):
                self._watches.append(optimizer.register_step_pre_hook(Mark(self._before_update)))
                self._watches.append(optimizer.register_step_post_hook(Mark(self._after_update)))

    @scheduled
    def before_train_iter(self) -> None:
        self._due = self._look is None

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        if self._look is None and not self._watches:
            self._look = Look(self._parameters, runner.global_step)
        self._write(runner)

    def after_train(self, runner: Runner) -> None:
        self._write(runner)
        self._draw(runner)

    def cleanup(self) -> None:
        self._leave()

    def findings(self) -> list[str]:
        """What stands out, in words."""
        return self._flow.findings()

    def _write(self, runner: Runner) -> None:
        look, self._look = self._look, None
        if look is None:
            # Gradients are being accumulated: a later iteration brings the update, and is looked at.
            return
        found = look.fetch()
        self._flow.add(found)
        scalars = {f"grad_norm/{layer}": one.gradient for layer, one in found.items()}
        scalars |= {f"update_ratio/{layer}": one.ratio for layer, one in found.items() if one.ratio is not None}
        scalars["grad_norm/all"] = math.sqrt(sum(one.gradient**2 for one in found.values()))
        runner.writer.write_scalars(scalars, look.step, kind="train", epoch=int(runner.trainer.state.epoch))

    def _draw(self, runner: Runner) -> None:
        import ignite.distributed as idist

        if not self._flow.layers or idist.get_rank() != 0:
            return
        figure = draw_gradient_flow(self._flow.strengths(), self._flow.ratios())
        path = runner.get_service("visualization_dir") / PICTURE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(figure))
        runner.writer.write_figure("gradient_flow", figure, runner.global_step)

    def _leave(self) -> None:
        while self._watches:
            self._watches.pop().remove()
        self._look, self._due = None, False

    def _before_update(self, *_: Any) -> None:
        if self._due:
            self._due = False
            self._look = Look(self._parameters, self.runner.global_step, updates=True)

    def _after_update(self, *_: Any) -> None:
        if self._look is not None:
            self._look.updated()


@dataclass(frozen=True)
class Strength:
    """One layer at one look.

    Args:
        gradient: The norm of its gradient.
        size: How many weights it has.
        ratio: The norm of the update beside that of the weights, where both are known.
    """

    gradient: float
    size: int
    ratio: float | None = None

    @property
    def each(self) -> float:
        """The gradient of one weight, on average."""
        return self.gradient / math.sqrt(self.size)


class Look:
    """The norms of one iteration, left on the device until they are fetched together.

    Args:
        layers: The parameters of each layer.
        step: The iteration, counted from 1.
        updates: Whether weights are kept to see by how much they change.
    """

    def __init__(self, layers: Mapping[str, Sequence[Any]], step: int, *, updates: bool = False) -> None:
        import torch

        self.step = step
        self._norm: Any = torch._foreach_norm
        self._layers = {name: [p for p in parameters if p.grad is not None] for name, parameters in layers.items()}
        self._without = [name for name, parameters in self._layers.items() if not parameters]
        self._layers = {name: parameters for name, parameters in self._layers.items() if parameters}
        self._weights = [parameter.detach() for parameters in self._layers.values() for parameter in parameters]
        gradients = [parameter.grad for parameters in self._layers.values() for parameter in parameters]
        self._gradients = self._norm([dense(gradient) for gradient in gradients]) if gradients else []
        self._before = [weight.clone() for weight in self._weights] if updates else []
        self._norms: list[Any] = []
        self._updates: list[Any] = []

    def updated(self) -> None:
        """The optimizer has changed the weights."""
        import torch

        if self._before:
            self._updates = list(self._norm(torch._foreach_sub(self._weights, self._before)))
            self._norms = list(self._norm(self._before))
            self._before = []

    def fetch(self) -> dict[str, Strength]:
        """The norms by layer; waits for the device once."""
        import torch

        norms = [*self._gradients, *self._updates, *self._norms]
        numbers = torch.stack([n.float().to(norms[0].device) for n in norms]).tolist() if norms else []
        count = len(self._gradients)
        found, at = {}, 0
        for name, parameters in self._layers.items():
            here = slice(at, at + len(parameters))
            at += len(parameters)
            gradient = math.hypot(*numbers[:count][here])
            ratio = None
            if self._updates:
                weight = math.hypot(*numbers[2 * count :][here])
                ratio = math.hypot(*numbers[count : 2 * count][here]) / weight if weight > 0 else None
            found[name] = Strength(gradient, sum(parameter.numel() for parameter in parameters), ratio)
        return found | {name: Strength(0.0, 1) for name in self._without}


class Flow:
    """What was seen of each layer over a run; sums only, so that it does not grow.

    Example:
        >>> flow = Flow()
        >>> flow.add({"first": Strength(1e-9, 4), "last": Strength(1.0, 4)})
        >>> flow.findings()
        ['the gradient vanishes in first: 1e-09 of that of last; other activations, normalisation, skip connections or \
initial weights help']
    """

    def __init__(self) -> None:
        self.layers: dict[str, Seen] = {}

    def add(self, found: Mapping[str, Strength]) -> None:
        """Take up one look."""
        for name, strength in found.items():
            self.layers.setdefault(name, Seen()).add(strength)

    def strengths(self) -> dict[str, tuple[float, float]]:
        """The mean and the largest gradient of a weight in each layer, in the order of the model."""
        return {name: (seen.mean, seen.largest) for name, seen in self.layers.items()}

    def ratios(self) -> dict[str, float]:
        """The mean share by which an update changes the weights of each layer."""
        return {name: seen.ratio for name, seen in self.layers.items() if seen.ratio is not None}

    def findings(self) -> list[str]:
        """What stands out, in words."""
        found = []
        if broken := [name for name, seen in self.layers.items() if seen.broken]:
            found.append(f"the gradient is not finite in {listed(broken)}")
        usual = {name: seen.mean for name, seen in self.layers.items() if seen.looks > seen.broken}
        strongest = max(usual, key=lambda name: usual[name], default=None)
        if strongest is None or usual[strongest] == 0:
            return found
        if dead := [name for name, mean in usual.items() if mean == 0]:
            found.append(f"no gradient comes to {listed(dead)}: detached, frozen by mistake, or not used by the loss")
        weak = [name for name, mean in usual.items() if 0 < mean < VANISHING * usual[strongest]]
        if weak:
            weakest = min(weak, key=lambda name: usual[name])
            words = f"{usual[weakest] / usual[strongest]:.0e} of that of {strongest}"
            remedy = "other activations, normalisation, skip connections or initial weights help"
            found.append(f"the gradient vanishes in {listed(weak)}: {words}; {remedy}")
        sharp = [name for name, seen in self.layers.items() if seen.largest > EXPLODING * seen.smallest > 0]
        if sharp:
            found.append(f"the gradient explodes in {listed(sharp)}: clip it, or lower the learning rate")
        ratios = self.ratios()
        if fast := [name for name, ratio in ratios.items() if ratio > FAST]:
            found.append(f"an update changes {listed(fast)} by more than {FAST:.0%}: the learning rate is high")
        slow = [name for name, ratio in ratios.items() if 0 < ratio < SLOW]
        if slow:
            found.append(f"an update hardly changes {listed(slow)}: less than {SLOW:g} of the weights")
        return found


class Seen:
    """The looks at one layer."""

    def __init__(self) -> None:
        self.looks = self.broken = 0
        self._sum, self.largest, self.smallest = 0.0, 0.0, math.inf
        self._ratios = 0
        self._ratio_sum = 0.0

    def add(self, strength: Strength) -> None:
        """One more."""
        self.looks += 1
        if not math.isfinite(strength.each):
            self.broken += 1
            return
        self._sum += strength.each
        self.largest = max(self.largest, strength.each)
        self.smallest = min(self.smallest, strength.each)
        if strength.ratio is not None and math.isfinite(strength.ratio):
            self._ratios += 1
            self._ratio_sum += strength.ratio

    @property
    def mean(self) -> float:
        """Of those that were finite."""
        finite = self.looks - self.broken
        return self._sum / finite if finite else 0.0

    @property
    def ratio(self) -> float | None:
        """The mean, where any is known."""
        return self._ratio_sum / self._ratios if self._ratios else None


def by_layer(model: Any, patterns: Sequence[str] | None) -> dict[str, list[Any]]:
    """The parameters that are trained, by the module they belong to, under the names of the unwrapped model."""
    found: dict[str, list[Any]] = {}
    for name, parameter in unwrapped(model).named_parameters():
        layer = name.rpartition(".")[0] or name
        wanted = patterns is None or any(fnmatch.fnmatchcase(layer, pattern) for pattern in patterns)
        if parameter.requires_grad and wanted:
            found.setdefault(layer, []).append(parameter)
    return found


def dense(gradient: Any) -> Any:
    """A gradient whose norm can be taken together with others."""
    gradient = gradient.detach()
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in words.

    Example:
        >>> listed(["a", "b"]), listed(list("abcdefg"))
        ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
