"""What a run is measured by: losses, learning rates, memory, and what engines have measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

PLAIN = frozenset((int, float))


class Window:
    """The losses since the last line. Until ``means`` is asked for, nothing waits for a device.

    Example:
        >>> window = Window()
        >>> window.add(0.25)
        >>> window.add({"loss": 0.75, "aux": 1.0})
        >>> window.means()
        {'loss': 0.5, 'aux': 1.0}
    """

    def __init__(self) -> None:
        self._values: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, outputs: Any) -> None:
        """Take up what a step returned."""
        if type(outputs) is float:
            self._values["loss"].append(outputs)
            return
        # `losses_of` spelt out, as this comes at every iteration.
        for name, value in outputs.items() if isinstance(outputs, Mapping) else (("loss", outputs),):
            kind = type(value)
            if kind is float or (kind is not bool and isinstance(value, (int, float))):
                self._values[name].append(value)
            elif hasattr(kind, "numel") and value.numel() == 1:
                # Attached to its graph, a loss would keep the memory of its whole iteration.
                self._values[name].append(value.detach() if value.requires_grad else value)

    def means(self) -> dict[str, float]:
        """The mean of each loss, fetched together."""
        means = {name: mean(values) for name, values in self._values.items()}
        tensors = {name: value for name, value in means.items() if not isinstance(value, float)}
        if tensors:
            import torch

            device = next(iter(tensors.values())).device
            together = torch.stack([value.to(device) for value in tensors.values()])
            means.update(zip(tensors, together.tolist(), strict=True))
        return means

    def clear(self) -> None:
        """Begin anew."""
        self._values.clear()


def is_number(value: Any) -> bool:
    """Return whether a value is one number, as such or as a tensor of one element.

    Example:
        >>> is_number(1), is_number(0.5), is_number(True), is_number("1"), is_number([1])
        (True, True, False, False, False)
    """
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    numel = getattr(value, "numel", None)
    return callable(numel) and numel() == 1


def mean(values: list[Any]) -> Any:
    """The mean of numbers, or that of tensors as a tensor on their device."""
    if set(map(type, values)) <= PLAIN or all(isinstance(value, (int, float)) for value in values):
        return sum(values) / len(values)
    import torch

    try:
        together = torch.stack(values)
    except (TypeError, RuntimeError):  # numbers among tensors, or tensors of the shapes () and (1,)
        together = torch.stack([torch.as_tensor(value).reshape(()).float() for value in values])
    return together.float().mean()


def learning_rates(optimizer: Any) -> dict[str, float]:
    """The learning rate of each group of parameters: ``lr``, ``lr/1``, or by the group's name.

    Example:
        >>> from types import SimpleNamespace
        >>> learning_rates(SimpleNamespace(param_groups=[{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3, "name": "head"}]))
        {'lr': 0.1, 'lr/1': 0.2, 'lr/head': 0.3}
    """
    rates = {}
    for index, group in enumerate(getattr(optimizer, "param_groups", ())):
        name = group.get("name", index or None)
        rates["lr" if name is None else f"lr/{name}"] = float(group["lr"])
    return rates


def cuda_memory() -> dict[str, float]:
    """The peak of the memory on the current GPU."""
    import torch

    used = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {"memory_mb": used / 2**20} if used else {}


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """What of these is one number."""
    found = {}
    for name, value in values.items():
        count = value.numel() if hasattr(type(value), "numel") else getattr(value, "size", 1)
        value = value.item() if hasattr(type(value), "item") and count == 1 else value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def scalars_of(runner: Runner, kind: str, beside: Mapping[str, Any]) -> tuple[str, dict[str, float], dict[str, float]]:
    """What the running engine has measured: its name, the numbers by their own names, and by those of a line.

    Args:
        runner: The run.
        kind: train, val or test.
        beside: Names that are left out.
    """
    metrics = numbers_of(runner.engine.state.metrics or {})
    metrics = {name: value for name, value in metrics.items() if name not in beside}
    name = runner.state.evaluating or kind
    scalars = metrics if name == kind else {f"{name}_{key}": value for key, value in metrics.items()}
    return name, metrics, scalars


def epoch_of(runner: Runner) -> int:
    """The epoch that is running, counted from 1."""
    return int(runner.trainer.state.epoch)


def batch_size(batch: Any) -> int | None:
    """The first dimension of the first tensor in a batch.

    Example:
        >>> import torch
        >>> batch_size({"id": "a", "image": [torch.zeros(8, 3)]}), batch_size("text")
        (8, None)
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for part in parts if (size := batch_size(part)) is not None), None)
