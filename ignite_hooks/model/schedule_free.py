"""Schedule-free optimizers: they train with some weights, and evaluate with averages of them that they can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import Module

from ignite_hooks.model.averages import Averages, state_of
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import local_part

MODE = "train_mode"
"""The entry of a parameter group, or the attribute of an optimizer, that says which weights are in the model."""


def is_schedule_free(optimizer: Any) -> bool:
    """Return whether one of the optimizers puts other weights into the model by ``eval()``, and these by ``train()``.

    Example:
        >>> is_schedule_free(torch.optim.SGD([torch.zeros(1)], lr=0.1))
        False
    """
    return any(_changes_weights(one) for one in each(optimizer))


def _changes_weights(one: Any) -> bool:
    methods = all(callable(getattr(type(one), name, None)) for name in ("train", "eval"))
    says_mode = any(MODE in group for group in param_groups(one)) or hasattr(one, MODE)
    return methods and says_mode and not isinstance(one, Module)


def trains(one: Any) -> bool:
    """Return whether a schedule-free optimizer has its training weights in the model."""
    own = getattr(one, MODE, None)
    return bool(own if isinstance(own, bool) else all(group.get(MODE, True) for group in param_groups(one)))


def set_training(optimizer: Any) -> None:
    """Let every schedule-free optimizer have its training weights in the model."""
    for one in each(optimizer):
        if _changes_weights(one) and not trains(one):
            one.train()


def say_training(optimizer: Any) -> None:
    """Tell optimizers whose mode is no part of their state that training weights have been loaded into the model."""
    for one in each(optimizer):
        if not _changes_weights(one) or trains(one) or any(MODE in group for group in param_groups(one)):
            continue
        weights = [weight for group in param_groups(one) for weight in group["params"]]
        with torch.no_grad():
            loaded = [local_part(weight).detach().clone() for weight in weights]
            one.train()
            for weight, value in zip(weights, loaded, strict=True):
                local_part(weight).detach().copy_(value)


class EvaluationWeights:
    """The evaluation weights of schedule-free optimizers, beside the model.

    An optimizer computes them in place and computes the way back, which is not exact. So the training weights are put
    back from a copy, and the optimizer never notices that an evaluation has seen others.

    Args:
        model: The model.
        optimizer: One or several optimizers.
    """

    def __init__(self, model: Module, optimizer: Any) -> None:
        # An evaluation may ask for them first, and what is made in inference mode cannot change later.
        with torch.inference_mode(False):
            self.averages = Averages(model)
        self._optimizers = [one for one in each(optimizer) if _changes_weights(one)]

    @property
    def are_in_model(self) -> bool:
        """Whether somebody else, such as the script, has called ``eval()`` of an optimizer."""
        return not all(trains(one) for one in self._optimizers)

    def refresh(self) -> None:
        """Compute them from the training weights, which are in the model now and afterwards, bit by bit."""
        with torch.inference_mode(False), torch.no_grad():
            self.averages.refresh()
            weights = [weight for one in self._optimizers for group in param_groups(one) for weight in group["params"]]
            own = [(local_part(weight), local_part(weight).detach().clone()) for weight in weights]
            try:
                for one in self._optimizers:
                    one.eval()
                self._take()
            finally:
                for one in self._optimizers:
                    one.train()
                for weight, before in own:
                    weight.detach().copy_(before)

    def of_training(self) -> tuple[dict[str, Any], Any]:
        """Return copies of the training weights while the others are in the model, and the states of the optimizers."""
        model = self.averages.model
        with torch.inference_mode(False), torch.no_grad():
            self._take()
            for one in self._optimizers:
                one.train()
            try:
                found = {
                    name: value.detach().clone() if isinstance(value, torch.Tensor) else value
                    for name, value in state_of(model).items()
                }
                return found, [one.state_dict() for one in self._optimizers]
            finally:
                for one in self._optimizers:
                    one.eval()
                for place in self.averages.weights.layout.places:
                    local_part(place.table[place.key]).detach().copy_(self.averages.weights.values[place.name])

    def state_dict(self) -> Mapping[str, Any]:
        """Return them by name, with the buffers of the model."""
        return self.averages.state_dict()

    def _take(self) -> None:
        values = self.averages.weights.values
        for place in self.averages.weights.layout.places:
            values[place.name].copy_(local_part(place.table[place.key]).detach())
