"""Follows the gradients through the layers."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from ignite_hooks.checkpoint.capture import unwrapped
from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.drawing.profile import draw_gradient_flow, png
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.phases import Mark, each
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

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
        self._watches: list[Any] = []
        self._watched: list[Any] = []
        self._due: set[Any] = set()
        self._looks: dict[int, Look] = {}

    def before_run(self) -> None:
        self._leave()
        self._forget()

    def before_train(self, runner: Runner, model: Any) -> None:
        if not by_layer(model, self.layers, trained=False):
            there = listed(list(by_layer(model, None, trained=False))) or "none"
            raise SettingError("layers", f"no layer with parameters matches {self.layers}: the model has {there}")
        for optimizer in each(runner.optimizer):
            if hasattr(optimizer, "register_step_post_hook"):
                self._watched.append(optimizer)
                self._watches.append(optimizer.register_step_pre_hook(Mark(self._before_update)))
                self._watches.append(optimizer.register_step_post_hook(Mark(self._after_update)))

    @scheduled
    def before_train_iter(self) -> None:
        waiting = {optimizer for look in self._looks.values() for optimizer in look.optimizers}
        self._due.update(optimizer for optimizer in self._watched if optimizer not in waiting)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        if not self._watches:
            self._look().take(lambda _: True)
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
        # None where gradients are being accumulated: a later iteration brings the update, and is looked at.
        looks, self._looks = self._looks, {}
        for look in looks.values():
            found = look.fetch()
            if not found:
                continue
            self._flow.add(found)
            scalars = {f"grad_norm/{layer}": one.gradient for layer, one in found.items()}
            scalars |= {f"update_ratio/{layer}": one.ratio for layer, one in found.items() if one.ratio is not None}
            scalars["grad_norm/all"] = math.sqrt(sum(one.gradient**2 for one in found.values()))
            runner.writer.write_scalars(scalars, look.step, kind="train", epoch=int(runner.trainer.state.epoch))

    def _draw(self, runner: Runner) -> None:
        if not self._flow.layers or not is_main_process():
            return
        figure = draw_gradient_flow(self._flow.strengths(), self._flow.ratios())
        path = runner.get_service("visualization_dir") / PICTURE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(figure))
        runner.writer.write_figure("gradient_flow", figure, runner.global_step)

    def _leave(self) -> None:
        while self._watches:
            self._watches.pop().remove()
        self._watched, self._due, self._looks = [], set(), {}

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        # A scaler gives an optimizer that can do so itself what to divide by, and whether to leave the weights alone.
        overflow = getattr(optimizer, "found_inf", None)
        if optimizer not in self._due or (overflow is not None and bool(overflow)):
            return
        self._due.remove(optimizer)
        mine = parameters_of([optimizer])
        # What no optimizer has is looked at with the first, as it may have been forgotten.
        known = parameters_of(self._watched)
        forgotten = optimizer is self._watched[0]
        self._look().take(
            lambda parameter: parameter in mine or (forgotten and parameter not in known),
            scale=getattr(optimizer, "grad_scale", None),
            optimizer=optimizer,
        )

    def _after_update(self, *_: Any) -> None:
        for look in self._looks.values():
            look.updated()

    def _look(self) -> Look:
        step = self.runner.global_step
        if step not in self._looks:
            self._looks[step] = Look(by_layer(self.runner.model, self.layers), step)
        return self._looks[step]


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
    """

    def __init__(self, layers: Mapping[str, Sequence[Any]], step: int) -> None:
        import torch

        self.step = step
        self.optimizers: list[Any] = []
        self._norm: Any = torch._foreach_norm
        self._layers = layers
        self._gradients: dict[Any, Any] = {}
        """By parameter; None for one that has no gradient."""
        self._before: list[tuple[Any, Any]] = []
        self._changes: dict[Any, tuple[Any, Any]] = {}
        """The norms of an update and of the weights before it, by parameter."""

    def take(self, chosen: Callable[[Any], bool], scale: Any = None, optimizer: Any = None) -> None:
        """Note the gradients of some parameters.

        Args:
            chosen: Which of them.
            scale: What the gradients have been multiplied by.
            optimizer: What is about to update them: weights are kept to see by how much they change.
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

    def updated(self) -> None:
        """The optimizer has changed the weights."""
        import torch

        before, self._before = self._before, []
        if before:
            weights = [old for _, old in before]
            changes = torch._foreach_sub([parameter.detach() for parameter, _ in before], weights)
            norms = zip(self._norm(changes), self._norm(weights), strict=True)
            self._changes |= {parameter: both for (parameter, _), both in zip(before, norms, strict=True)}

    def fetch(self) -> dict[str, Strength]:
        """The norms by layer; waits for the device once."""
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
            found[name] = Strength(math.hypot(*(gradients[parameter] for parameter in here)), size, ratio)
        return found


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


def parameters_of(optimizers: Sequence[Any]) -> set[Any]:
    """All that some optimizers train."""
    return {parameter for one in optimizers for group in one.param_groups for parameter in group["params"]}


def by_layer(model: Any, patterns: Sequence[str] | None, *, trained: bool = True) -> dict[str, list[Any]]:
    """The parameters that are trained now, or all, by their modules, under the names of the unwrapped model."""
    found: dict[str, list[Any]] = {}
    for name, parameter in unwrapped(model).named_parameters():
        layer = name.rpartition(".")[0] or name
        wanted = patterns is None or any(fnmatch.fnmatchcase(layer, pattern) for pattern in patterns)
        if wanted and (parameter.requires_grad or not trained):
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
