"""Measures gradients and updates layer by layer."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.drawing.profile import draw_gradient_flow, png
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.eager_hook import EagerHook
from ignite_hooks.measure.findings import some_of
from ignite_hooks.measure.gradient_findings import gradient_findings
from ignite_hooks.measure.gradients import GradientFlow, GradientSample, trained_parameters
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

PICTURE = "gradient_flow.png"


@settings
class GradientFlowHook(BaseHook):
    """Measure the gradient of each layer, and the size of an update relative to the weights it changes.

    If an optimizer is known, gradients are those it uses, after unscaling and clipping. Relative to its weights, the
    gradient of a layer stands out where it is 1000 times the median of the layers of its class or a thousandth of it,
    or 100 times its own median of the last 100 samples.

    Args:
        interval: Number of iterations between two measurements.
        layers: Layers to measure, by name or pattern such as ``encoder.*``; all by default.

    Reads: model, optimizer.
    Writes: grad_norm/<layer>, update_ratio/<layer>, grad_norm/all; visualization/gradient_flow.png.
    """

    interval: Annotated[int, Ge(1)] = 100
    layers: list[str] | None = None
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._flow = GradientFlow()
        self._handles: list[Any] = []
        self._optimizers: list[Any] = []
        self._due: set[Any] = set()
        self._samples: dict[int, GradientSample] = {}

    def before_run(self) -> None:
        self._remove_handles()
        self._reset()

    def before_train(self, runner: Runner, model: Any) -> None:
        if not by_layer(model, self.layers, trained=False):
            there = some_of(list(by_layer(model, None, trained=False))) or "none"
            raise SettingError("layers", f"no layer with parameters matches {self.layers}: the model has {there}")
        for optimizer in each(runner.optimizer):
            if hasattr(optimizer, "register_step_post_hook"):
                self._optimizers.append(optimizer)
                self._handles.append(optimizer.register_step_pre_hook(EagerHook(self._before_update)))
                self._handles.append(optimizer.register_step_post_hook(EagerHook(self._after_update)))

    @scheduled
    def before_train_iter(self) -> None:
        waiting = {optimizer for sample in self._samples.values() for optimizer in sample.optimizers}
        self._due.update(optimizer for optimizer in self._optimizers if optimizer not in waiting)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        if not self._handles:
            self._sample().note_gradients(lambda _: True)
        self._write(runner)

    def after_train(self, runner: Runner) -> None:
        self._write(runner)
        self._draw(runner)

    def cleanup(self) -> None:
        self._remove_handles()

    def findings(self) -> list[str]:
        """Return what stands out."""
        return gradient_findings(self._flow)

    def _write(self, runner: Runner) -> None:
        # No sample yet while gradients are accumulated: the later iteration with the update is measured.
        samples, self._samples = self._samples, {}
        for sample in samples.values():
            found = sample.fetch()
            if not found:
                continue
            self._flow.add(found, kinds_of(runner.model, found))
            scalars = {f"grad_norm/{layer}": one.gradient for layer, one in found.items()}
            scalars |= {f"update_ratio/{layer}": one.ratio for layer, one in found.items() if one.ratio is not None}
            scalars["grad_norm/all"] = math.sqrt(sum(one.gradient**2 for one in found.values()))
            runner.writer.write_scalars(scalars, sample.step, kind="train", epoch=int(runner.trainer.state.epoch))

    def _draw(self, runner: Runner) -> None:
        if not self._flow.layers or not is_main_process():
            return
        figure = draw_gradient_flow(self._flow.strengths(), self._flow.ratios())
        path = runner.get_service("visualization_dir") / PICTURE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(figure))
        runner.writer.write_figure("gradient_flow", figure, runner.global_step)

    def _remove_handles(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._optimizers, self._due, self._samples = [], set(), {}

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        # For optimizers that unscale themselves, a GradScaler sets the scale and whether to skip the update.
        overflow = getattr(optimizer, "found_inf", None)
        if optimizer not in self._due or (overflow is not None and bool(overflow)):
            return
        self._due.remove(optimizer)
        own = trained_parameters([optimizer])
        # Parameters of no optimizer, perhaps forgotten, are measured with the first.
        known = trained_parameters(self._optimizers)
        is_first = optimizer is self._optimizers[0]
        self._sample().note_gradients(
            lambda parameter: parameter in own or (is_first and parameter not in known),
            scale=getattr(optimizer, "grad_scale", None),
            optimizer=optimizer,
        )

    def _after_update(self, *_: Any) -> None:
        for sample in self._samples.values():
            sample.note_update()

    def _sample(self) -> GradientSample:
        step = self.runner.global_step
        if step not in self._samples:
            self._samples[step] = GradientSample(by_layer(self.runner.model, self.layers), step)
        return self._samples[step]


def kinds_of(model: Any, layers: Iterable[str]) -> dict[str, str]:
    """Return the names of the classes of layers; a parameter without a module of its own has none."""
    modules = dict(unwrapped(model).named_modules())
    return {layer: type(modules[layer]).__name__ for layer in layers if layer in modules}


def by_layer(model: Any, patterns: Sequence[str] | None, *, trained: bool = True) -> dict[str, list[Any]]:
    """Return the parameters that are trained now, or all, by the names of their modules in the unwrapped model.

    Args:
        model: The model.
        patterns: Names or patterns of the modules; None for all.
        trained: Whether to leave out parameters that need no gradient.
    """
    found: dict[str, list[Any]] = {}
    for name, parameter in unwrapped(model).named_parameters():
        layer = name.rpartition(".")[0] or name
        wanted = patterns is None or any(fnmatch.fnmatchcase(layer, pattern) for pattern in patterns)
        if wanted and (parameter.requires_grad or not trained):
            found.setdefault(layer, []).append(parameter)
    return found
