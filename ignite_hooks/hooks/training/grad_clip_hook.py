"""Clips gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.parts import parts_of
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.run.runner import Runner


@settings
class GradClipHook(BaseHook):
    """Scale the gradients down right before each optimizer step whose gradients are larger than they may be.

    This needs no change to the step, whatever it does: it happens within ``optimizer.step()``, of gradients that are
    complete, and without the scale of an AMP scaler. Several optimizers are clipped each for itself; the names of what
    is written then end with theirs, as ``grad_norm/g``.

    Args:
        max_norm: The largest norm that is left alone.
        norm_type: Which norm of all gradients together; inf for the largest of them.
        interval: How many iterations lie between two writings of the norms.

    Reads: optimizer.
    Writes: grad_norm, grad_norm_max, and the share of steps that were clipped: grad_norm_clipped.
    """

    max_norm: Annotated[float, Gt(0)]
    norm_type: Annotated[float, Gt(0)] | Literal["inf"] = 2.0
    interval: Annotated[int, Ge(1)] = 50

    may_end_a_run: ClassVar[bool] = False
    changes_training: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._watches: list[Any] = []
        self._norms: dict[str, list[Tensor]] = {}

    def before_run(self, optimizer: Any) -> None:
        optimizers = parts_of(optimizer)
        for one in optimizers.values():
            if not hasattr(one, "register_step_pre_hook"):
                message = f"a torch optimizer is needed, which calls hooks at its steps, not {type(one).__name__}"
                raise ConfigError([Problem("optimizer", message)])
        self._leave()
        self._watches = [
            one.register_step_pre_hook(partial(self._before_step, name)) for name, one in optimizers.items()
        ]

    def before_train(self) -> None:
        self._norms.clear()

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._write(runner)

    def after_train(self, runner: Runner) -> None:
        """Write the rest of a run that is shorter than the interval."""
        self._write(runner)

    def cleanup(self) -> None:
        self._leave()
        self._norms.clear()

    def _before_step(self, name: str, optimizer: Any, arguments: Any, named: Any) -> Any:
        # The first argument is the optimizer itself.
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        if not callable(closure):
            self._clip(name, optimizer)
            return None

        def clipped() -> Any:
            # A step with a closure computes the gradients itself, perhaps several times.
            loss = closure()
            self._clip(name, optimizer)
            return loss

        return arguments[:1], {"closure": clipped}

    def _clip(self, name: str, optimizer: Any) -> None:
        norm = clip(optimizer, self.max_norm, float(self.norm_type))
        if norm is not None:
            self._norms.setdefault(name, []).append(norm)

    def _write(self, runner: Runner) -> None:
        norms, self._norms = self._norms, {}
        if norms:
            found = {
                f"{key}/{name}" if name else key: value
                for name, mine in norms.items()
                for key, value in norm_summary(norms_as_floats(mine), self.max_norm).items()
            }
            epoch = int(runner.trainer.state.epoch)
            runner.writer.write_scalars(found, runner.global_step, kind="train", epoch=epoch)

    def _leave(self) -> None:
        while self._watches:
            self._watches.pop().remove()


def clip(optimizer: Any, max_norm: float, norm_type: float) -> Tensor | None:
    """Scale the gradients an optimizer is about to use; return their norm before, on its device, if there are any."""
    import torch

    parameters = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
    if not parameters:
        return None
    norm = torch.nn.utils.get_total_norm([one.grad for one in parameters], norm_type)
    # A fused optimizer divides by the scale of AMP within its step: these gradients still have it.
    scale = getattr(optimizer, "grad_scale", None)
    norm = norm if scale is None else norm / scale.to(norm.device)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    whole: Callable[[], Tensor] | None = getattr(norm, "full_tensor", None)
    return norm if whole is None else whole()


def norms_as_floats(norms: list[Tensor]) -> list[float]:
    """Return the numbers, in one transfer."""
    import torch

    return torch.stack([norm.to(norms[0].device, torch.float32) for norm in norms]).tolist()


def norm_summary(norms: list[float], max_norm: float) -> dict[str, float]:
    """Return the mean and the largest of the finite norms, and the share of those that were too large.

    Example:
        >>> norm_summary([1.0, 2.0, float("inf"), 6.0], max_norm=1.5)
        {'grad_norm': 3.0, 'grad_norm_max': 6.0, 'grad_norm_clipped': 0.75}
    """
    finite = [norm for norm in norms if math.isfinite(norm)]
    found = {"grad_norm": sum(finite) / len(finite), "grad_norm_max": max(finite)} if finite else {}
    return found | {"grad_norm_clipped": sum(not norm <= max_norm for norm in norms) / len(norms)}
