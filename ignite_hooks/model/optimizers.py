"""Optimizers of a run: one or several, their parameter groups and learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def each(thing: Any) -> Iterator[Any]:
    """Yield the values of a mapping, the items of a list, or the one object there is.

    Example:
        >>> list(each({"a": 1, "b": 2})), list(each([1, 2])), list(each(1)), list(each(None))
        ([1, 2], [1, 2], [1], [])
    """
    if isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, (list, tuple)):
        yield from thing
    elif thing is not None:
        yield thing


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
