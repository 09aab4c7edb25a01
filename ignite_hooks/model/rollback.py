"""Takes an iteration back: parameters, buffers, gradients and the state of the optimizers as they were before it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.model.eager_hook import EagerHook

if TYPE_CHECKING:
    from torch import Tensor


class Undo:
    """Keeps what an iteration may change, and puts it back.

    What an optimizer changes is copied at its first step of the iteration, so that an iteration without a step costs
    no copy of the weights. The copies use the same memory again and again.

    Args:
        model: Its buffers are kept, and its gradients; None where there is none.
        optimizers: Their parameters and what they remember are kept.
        iteration: Tells which iteration is running.
    """

    def __init__(self, model: Any, optimizers: Iterable[Any], iteration: Callable[[], int]) -> None:
        self._model, self._iteration = model, iteration
        self._kept = [_Kept(optimizer) for optimizer in optimizers]
        self._buffers = _Copies()
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self._keeping = False
        self._stepped_at = 0
        self._watches = []
        for kept in self._kept:
            register = getattr(kept.optimizer, "register_step_pre_hook", None)
            kept.is_watched = register is not None
            if register is not None:
                self._watches.append(register(EagerHook(self._before_step_of(kept))))

    def begin(self) -> None:
        """Before the forward pass."""
        self._keeping = True
        self._buffers.take([] if self._model is None else list(self._model.buffers()))
        for kept in self._kept:
            kept.forget()
            if not kept.is_watched:
                kept.take()
        accumulating = self._stepped_at != self._iteration() - 1
        self._gradients = [(p, p.grad.clone()) for p in self._parameters() if p.grad is not None and accumulating]

    def back(self) -> None:
        """After the step: as if this iteration had not been; a step that was taken in it was taken for nothing."""
        stepped = any(kept.has_taken for kept in self._kept)
        self._buffers.put_back()
        for kept in self._kept:
            kept.put_back()
        for parameter in self._parameters():
            parameter.grad = None
        if not stepped:
            for parameter, gradient in self._gradients:
                parameter.grad = gradient
        self.end()

    def end(self) -> None:
        """After the step, which may stay."""
        self._keeping, self._gradients = False, []

    def leave(self) -> None:
        """Let go of the optimizers."""
        while self._watches:
            self._watches.pop().remove()

    def _parameters(self) -> list[Any]:
        found = [] if self._model is None else list(self._model.parameters())
        found += [parameter for kept in self._kept for parameter in kept.parameters()]
        return list(dict.fromkeys(found))

    def _before_step_of(self, kept: _Kept) -> Callable[..., None]:
        def before_step(*_: Any) -> None:
            self._stepped_at = self._iteration()
            if self._keeping and not kept.has_taken:
                kept.take()

        return before_step


class _Kept:
    """What one optimizer changes in a step."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.is_watched = self.has_taken = False
        self._weights, self._tensors = _Copies(), _Copies()
        self._state: dict[Any, dict[Any, Any]] = {}

    def parameters(self) -> list[Any]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def forget(self) -> None:
        self.has_taken = False
        self._state = {}

    def take(self) -> None:
        import torch

        self.has_taken = True
        self._weights.take(self.parameters())
        tensors = []
        for key, entry in getattr(self.optimizer, "state", {}).items():
            self._state[key] = {}
            for name, value in entry.items():
                is_tensor = isinstance(value, torch.Tensor)
                self._state[key][name] = value if is_tensor else copy.deepcopy(value)
                tensors += [value] if is_tensor else []
        self._tensors.take(tensors)

    def put_back(self) -> None:
        if not self.has_taken:
            return
        self._weights.put_back()
        self._tensors.put_back()
        state = getattr(self.optimizer, "state", {})
        for key in list(state):
            if key not in self._state:
                del state[key]
        for key, entry in self._state.items():
            state[key].clear()
            state[key].update(entry)
        self.forget()


class _Copies:
    """Copies of tensors, in memory that is used again as long as they are the same tensors."""

    def __init__(self) -> None:
        self._of: list[Tensor] = []
        self._copies: list[Tensor] = []

    def take(self, tensors: Sequence[Any]) -> None:
        import torch

        local = [_local(tensor) for tensor in tensors]
        with torch.no_grad():
            if len(local) == len(self._of) and all(a is b for a, b in zip(local, self._of, strict=True)):
                _copy(self._copies, local)
            else:
                self._of, self._copies = local, [tensor.detach().clone() for tensor in local]

    def put_back(self) -> None:
        import torch

        with torch.no_grad():
            _copy(self._of, self._copies)


def _local(tensor: Any) -> Any:
    """The part of a sharded tensor that this process has."""
    return getattr(tensor, "_local_tensor", tensor)


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    import torch

    if to:
        torch._foreach_copy_(to, of)
