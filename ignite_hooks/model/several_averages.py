"""Further averages of the same weights, each with its own momentum and name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from torch import Tensor
from torch.nn import Module

from ignite_hooks.model.averages import Averages
from ignite_hooks.model.parts import flat, nested

KEY: Final = "ema_state_dicts"
"""The entry of a checkpoint that holds them by name."""


class SeveralAverages:
    """Averages by name, which begin together.

    Args:
        momenta: The share of each average that is kept, by its name.
    """

    def __init__(self, momenta: Mapping[str, float]) -> None:
        self.momenta = dict(momenta)
        self._averages: dict[str, Averages] = {}

    def begin(self, model: Module, found: Mapping[str, Mapping[str, Any]], *, buffers: bool, broadcast: bool) -> None:
        """Begin as the weights of the model, or as what was found of each.

        Args:
            model: The model.
            found: States by name, such as those of a checkpoint.
            buffers: Whether floating-point buffers are averaged too.
            broadcast: Whether all ranks begin with the averages of rank 0.
        """
        for name in self.momenta:
            averages = self._averages[name] = Averages(model, buffers=buffers)
            if name in found:
                averages.load_state_dict(found[name])
            if broadcast:
                averages.broadcast()

    def forget(self) -> None:
        """Let go of them; they begin again."""
        self._averages = {}

    def update(self, momentum: Callable[[float], float]) -> None:
        """Move each of them towards the weights.

        Args:
            momentum: Returns the momentum of this step from the one that is reached in the end.
        """
        for name, averages in self._averages.items():
            averages.refresh()
            now = momentum(self.momenta[name])
            averages.buffers.update(now)
            averages.weights.update(now)

    @contextlib.contextmanager
    def in_model(self, name: str) -> Iterator[None]:
        """Have one of them in the model, for as long as the context lasts; before they begin nothing changes."""
        averages = self._averages.get(name)
        if averages is None or any(one.swapped for one in self._averages.values()):
            yield
            return
        averages.swap_in()
        try:
            yield
        finally:
            averages.swap_out()

    @property
    def swapped(self) -> Averages | None:
        """The one that is in the model now."""
        return next((one for one in self._averages.values() if one.swapped), None)

    def swap_out(self) -> None:
        """Give the model its weights back."""
        for averages in self._averages.values():
            averages.swap_out()

    def state_dict(self, names: list[str] | None) -> dict[str, Any]:
        """Return them as an entry of a checkpoint; nothing before they begin.

        Args:
            names: The names of the models, where there are several.
        """
        found = {name: nested(averages.state_dict(), names) for name, averages in self._averages.items()}
        return {KEY: found} if found else {}

    def load(self, found: Mapping[str, Any], names: list[str] | None) -> None:
        """Load what `state_dict` has returned."""
        for name, averages in self._averages.items():
            if name in found.get(KEY, {}):
                averages.load_state_dict(flat(found[KEY][name], names))

    def tensors(self) -> list[Tensor]:
        """Return the memory of the averages."""
        return [tensor for averages in self._averages.values() for tensor in averages.tensors()]
