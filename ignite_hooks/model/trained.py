"""What a script trains or updates beside its model: weights of other modules, and loose ones of its optimizers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import is_dtensor, unwrapped

if TYPE_CHECKING:
    import torch
    from torch.nn import Module

MOST_SAMPLES = 64
"""Of how many tensors of a module one number is looked at, to see whether it has changed."""


def tensors_of(things: Iterable[Any]) -> set[int]:
    """Return the ids of the parameters and buffers of all modules among these things."""
    from torch.nn import Module

    modules = [thing for thing in things if isinstance(thing, Module)]
    return {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}


def weights_of(optimizer: Any) -> dict[str, Any]:
    """Return the weights of one optimizer by the places of their groups and their places there."""
    return {
        f"{group}.{place}": weight
        for group, entry in enumerate(param_groups(optimizer))
        for place, weight in enumerate(entry["params"])
    }


def is_optimizer(thing: Any) -> bool:
    """Return whether a thing is an optimizer of torch, or a wrapper of one."""
    from torch.optim import Optimizer

    return isinstance(thing, Optimizer)


def drives_the_same(one: Any, others: Any) -> bool:
    """Return whether an optimizer has the groups of one of several others, as what wraps an optimizer has."""
    known = {id(group) for other in each(others) for group in param_groups(other)}
    return any(id(group) in known for group in param_groups(one))


class OtherModule:
    """A module of the script that is not its model, without the tensors that are saved in another way.

    Args:
        module: The module.
        known: The ids of these tensors.
        trained: The ids of the weights that some optimizer has.
    """

    def __init__(self, module: Module, known: Collection[int], trained: Collection[int]) -> None:
        self.module = unwrapped(module)
        named = _named_tensors(self.module)
        self._known = {name for name, tensor in named if id(tensor) in known}
        self._mine = [tensor for _, tensor in named if id(tensor) not in known]
        self.is_empty = not self._mine
        """Whether all of it is saved in another way."""
        self.is_trained = any(id(tensor) in trained for tensor in self._mine)
        """Whether an optimizer trains some of it."""
        self.is_sharded = any(is_dtensor(tensor) for tensor in self._mine)
        """Whether this process has only a part of it."""

    def state_dict(self) -> dict[str, Any]:
        """Return what is not saved in another way, by name."""
        return {name: value for name, value in self.module.state_dict().items() if name not in self._known}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put back what `state_dict` returned, all of it or nothing."""
        from torch.nn.parameter import is_lazy

        everything = self.module.state_dict()
        now = {name: value for name, value in everything.items() if name not in self._known}
        if saved.keys() != now.keys():
            names = ", ".join(sorted(saved.keys() ^ now.keys())[:5])
            raise ValueError(f"it has other weights: {names}")
        for name, value in now.items():
            before, after = _shape(saved[name]), _shape(value)
            if before != after and not is_lazy(value):
                raise ValueError(f"{name} had the shape {before} and has {after} now")
        self.module.load_state_dict({**everything, **saved})

    def mark(self) -> Mark:
        """Return what tells whether values of the module have changed since, at little cost."""
        import torch
        from torch.nn.parameter import is_lazy

        mine = [tensor.detach() for tensor in self._mine if not is_lazy(tensor) and not tensor.is_meta]
        versions = [0 if tensor.is_inference() else tensor._version for tensor in mine]
        numbers = [tensor for tensor in mine if tensor.is_floating_point() and tensor.numel()]
        # By `.data` a script changes values and no version.
        samples = [tensor[(-1,) * tensor.dim()] for tensor in numbers[:: max(1, len(numbers) // MOST_SAMPLES)]]
        by_device: dict[torch.device, list[torch.Tensor]] = {}
        for sample in samples:
            by_device.setdefault(sample.device, []).append(sample.float())
        values = [value for some in by_device.values() for value in torch.stack(some).tolist()]
        return Mark(tuple(versions), tuple(map(str, values)))


class Mark(NamedTuple):
    """What a module was like: the numbers of changes that torch counts, and some values."""

    versions: tuple[int, ...]
    values: tuple[str, ...]


class LooseWeights:
    """Weights of an optimizer that belong to no module that is saved, by group and place.

    Args:
        optimizer: The optimizer.
        known: The ids of the weights that are saved in another way.
    """

    def __init__(self, optimizer: Any, known: Collection[int]) -> None:
        self.weights = {place: weight for place, weight in weights_of(optimizer).items() if id(weight) not in known}

    def state_dict(self) -> dict[str, Any]:
        """Return the weights."""
        return {place: weight.detach() for place, weight in self.weights.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put back what `state_dict` returned, all of it or nothing."""
        now = {place: tuple(weight.shape) for place, weight in self.weights.items()}
        before = {place: tuple(getattr(value, "shape", ())) for place, value in saved.items()}
        if before != now:
            raise ValueError(f"the optimizer had weights of the shapes {before} and has {now} now")
        import torch

        with torch.no_grad():
            for place, weight in self.weights.items():
                weight.copy_(saved[place])


def _named_tensors(module: Module) -> list[tuple[str, torch.Tensor]]:
    parameters, buffers = module.named_parameters, module.named_buffers
    return [*parameters(remove_duplicate=False), *buffers(remove_duplicate=False)]


def _shape(value: Any) -> tuple[int, ...] | None:
    import torch
    from torch.nn.parameter import is_lazy

    return tuple(value.shape) if isinstance(value, torch.Tensor) and not is_lazy(value) else None
