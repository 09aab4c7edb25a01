"""Optimizers of a run: one or several, their parameter groups and learning rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ignite_hooks.model.parts import each, parts_of


def param_groups(optimizer: Any) -> list[dict[str, Any]]:
    """Return the parameter groups of one or several optimizers.

    Example:
        >>> from types import SimpleNamespace
        >>> one, two = (SimpleNamespace(param_groups=[{"lr": rate}]) for rate in (0.1, 0.2))
        >>> param_groups([one, two]), param_groups(None)
        ([{'lr': 0.1}, {'lr': 0.2}], [])
    """
    return [group for one in each(optimizer) for group in getattr(one, "param_groups", ())]


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a parameter group; a tensor stays in place, as a compiled optimizer reads it."""
    if hasattr(group["lr"], "fill_"):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def learning_rates(optimizer: Any) -> dict[str, float]:
    """Return the learning rate of each parameter group: ``lr``, ``lr/1``, or by the group's name.

    Several optimizers come with their names: ``lr/g``, ``lr/g/1``.

    Example:
        >>> from types import SimpleNamespace
        >>> g = SimpleNamespace(param_groups=[{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3, "name": "head"}])
        >>> learning_rates(g)
        {'lr': 0.1, 'lr/1': 0.2, 'lr/head': 0.3}
        >>> learning_rates({"g": g, "d": SimpleNamespace(param_groups=[{"lr": 0.4}])})
        {'lr/g': 0.1, 'lr/g/1': 0.2, 'lr/g/head': 0.3, 'lr/d': 0.4}
    """
    rates = {}
    for part, one in parts_of(optimizer).items():
        for index, group in enumerate(getattr(one, "param_groups", ())):
            name = group.get("name", index or None)
            words = ["lr", *([part] if part else []), *([] if name is None else [str(name)])]
            rates["/".join(words)] = float(group["lr"])
    return rates


def when_stepping(optimizer: Any, before_step: Callable[[str], Callable[..., None]]) -> list[Any] | None:
    """Register a function before the steps of one or several optimizers; return the handles.

    None where one of them has no hooks, or there is none: then nothing is registered.

    Args:
        optimizer: One or several.
        before_step: Makes the function for an optimizer, by its name.
    """
    registers = {name: getattr(one, "register_step_pre_hook", None) for name, one in parts_of(optimizer).items()}
    if not registers or any(register is None for register in registers.values()):
        return None
    return [register(before_step(name)) for name, register in registers.items() if register is not None]


class StepHooks:
    """Functions that are called before the steps of one or several optimizers, by name."""

    def __init__(self) -> None:
        self.optimizer: Any = None
        self._handles: dict[str, list[Any]] = {}

    def add(self, name: str, function: Callable[..., None]) -> None:
        """Register a function at the optimizers that have hooks."""
        with_hooks = [one for one in each(self.optimizer) if hasattr(one, "register_step_pre_hook")]
        self._handles[name] = [one.register_step_pre_hook(function) for one in with_hooks]

    def remove(self, name: str) -> None:
        """Remove a function, if it is registered."""
        for handle in self._handles.pop(name, ()):
            handle.remove()

    def clear(self) -> None:
        """Remove all functions."""
        for name in list(self._handles):
            self.remove(name)
