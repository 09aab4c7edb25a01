"""Rollback of an iteration: parameters, buffers, gradients and optimizer states as they were before it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.model.wrapping import local_part

if TYPE_CHECKING:
    from torch import Tensor


class Rollback:
    """Keep a copy of all that an iteration may change, and restore it.

    Weights and optimizer states are copied at the first step of the optimizer in the iteration, so that an iteration
    without a step copies no weights. The copies reuse their memory.

    Args:
        model: The model, whose buffers and gradients are kept; None if there is none.
        optimizers: The optimizers, whose parameters and states are kept.
        iteration: Returns the number of the running iteration.
    """

    def __init__(self, model: Any, optimizers: Iterable[Any], iteration: Callable[[], int]) -> None:
        self._model, self._iteration = model, iteration
        self._kept = [_Kept(optimizer) for optimizer in optimizers]
        self._buffers = _Copies()
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self._in_iteration = False
        self._stepped_at = 0
        self._watches = []
        for kept in self._kept:
            register = getattr(kept.optimizer, "register_step_pre_hook", None)
            kept.is_watched = register is not None
            if register is not None:
                self._watches.append(register(self._before_step_of(kept)))

    def begin(self) -> None:
        """Begin an iteration; call it before the forward pass."""
        self._in_iteration = True
        self._buffers.copy([] if self._model is None else list(self._model.buffers()))
        for kept in self._kept:
            kept.clear()
            if not kept.is_watched:
                kept.copy()
        accumulating = self._stepped_at != self._iteration() - 1
        self._gradients = [(p, p.grad.clone()) for p in self._parameters() if p.grad is not None and accumulating]

    def restore(self) -> None:
        """Restore everything as it was before this iteration, which includes its optimizer step."""
        stepped = any(kept.has_copy for kept in self._kept)
        self._buffers.restore()
        for kept in self._kept:
            kept.restore()
        for parameter in self._parameters():
            parameter.grad = None
        if not stepped:
            for parameter, gradient in self._gradients:
                parameter.grad = gradient
        self.end()

    def end(self) -> None:
        """End an iteration whose step stays."""
        self._in_iteration, self._gradients = False, []

    def detach(self) -> None:
        """Remove the hooks of the optimizers."""
        while self._watches:
            self._watches.pop().remove()

    def _parameters(self) -> list[Any]:
        found = [] if self._model is None else list(self._model.parameters())
        found += [parameter for kept in self._kept for parameter in kept.parameters()]
        return list(dict.fromkeys(found))

    def _before_step_of(self, kept: _Kept) -> Callable[..., None]:
        import torch

        def before_step(*_: Any) -> None:
            if torch.compiler.is_compiling():
                return  # this must not become a part of a compiled graph
            self._stepped_at = self._iteration()
            if self._in_iteration and not kept.has_copy:
                kept.copy()

        return before_step


class _Kept:
    """A copy of what one optimizer changes in a step."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.is_watched = self.has_copy = False
        self._weights, self._tensors = _Copies(), _Copies()
        self._state: dict[Any, dict[Any, Any]] = {}

    def parameters(self) -> list[Any]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def clear(self) -> None:
        self.has_copy = False
        self._state = {}

    def copy(self) -> None:
        import torch

        self.has_copy = True
        self._weights.copy(self.parameters())
        tensors = []
        for key, entry in getattr(self.optimizer, "state", {}).items():
            self._state[key] = {}
            for name, value in entry.items():
                is_tensor = isinstance(value, torch.Tensor)
                self._state[key][name] = value if is_tensor else copy.deepcopy(value)
                tensors += [value] if is_tensor else []
        self._tensors.copy(tensors)

    def restore(self) -> None:
        if not self.has_copy:
            return
        self._weights.restore()
        self._tensors.restore()
        state = getattr(self.optimizer, "state", {})
        for key in list(state):
            if key not in self._state:
                del state[key]
        for key, entry in self._state.items():
            state[key].clear()
            state[key].update(entry)
        self.clear()


class _Copies:
    """Copies of tensors, whose memory is reused for the same tensors."""

    def __init__(self) -> None:
        self._of: list[Tensor] = []
        self._copies: list[Tensor] = []

    def copy(self, tensors: Sequence[Any]) -> None:
        import torch

        local = [local_part(tensor) for tensor in tensors]
        with torch.no_grad():
            if len(local) == len(self._of) and all(a is b for a, b in zip(local, self._of, strict=True)):
                _copy(self._copies, local)
            else:
                self._of, self._copies = local, [tensor.detach().clone() for tensor in local]

    def restore(self) -> None:
        import torch

        with torch.no_grad():
            _copy(self._of, self._copies)


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    import torch

    if to:
        torch._foreach_copy_(to, of)
