"""Metrics of other libraries, or of a script: whatever has ``update``, ``compute`` and ``reset``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import torch
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced

from ignite_hooks.distributed.collectives import all_gather, world_size
from ignite_hooks.distributed.metric_table import Merge, register

Merging = Literal["here", "itself", "nobody"]
"""Who makes one state of those of all ranks."""
IN_WORDS: Final[Mapping[Merging, str]] = {
    "here": "the states of the ranks are merged here",
    "itself": "merges the states of its ranks itself",
    "nobody": "for one process: nothing says how states are merged",
}
_METHODS: Final = ("update", "compute", "reset")
_REDUCTIONS: Final = {"dim_zero_sum": "sum", "dim_zero_max": "max", "dim_zero_min": "min", "dim_zero_cat": "cat"}
"""The reductions of torchmetrics by which states of uneven numbers of samples become the state of all of them."""


def is_metric(thing: Any) -> bool:
    """Return whether an object measures: an Ignite metric, or one with ``update``, ``compute`` and ``reset``."""
    if isinstance(thing, type):
        return False
    return isinstance(thing, Metric) or all(callable(getattr(type(thing), name, None)) for name in _METHODS)


def as_metric(thing: Any) -> Any:
    """Return an object that measures as a metric of Ignite."""
    return thing if isinstance(thing, Metric) else ForeignMetric(thing)


def merging_of(other: Any) -> Merging:
    """Return who merges the states of an object over the ranks, which is decided once.

    Args:
        other: The object. ``_reductions`` are those of torchmetrics, ``merge_state`` is that of torcheval.
    """
    reductions = getattr(other, "_reductions", None)
    if isinstance(reductions, Mapping) and reductions:
        known = all(getattr(one, "__name__", "") in _REDUCTIONS for one in reductions.values())
        return "here" if known and hasattr(other, "_to_sync") else "itself"
    if all(callable(getattr(type(other), name, None)) for name in ("merge_state", "state_dict", "load_state_dict")):
        return "here"
    # Such as a collection of torchmetrics.
    return "itself" if callable(getattr(type(other), "sync", None)) or _holds_synced(other) else "nobody"


def _holds_synced(other: Any) -> bool:
    inside = other.values() if callable(getattr(type(other), "values", None)) else ()
    return any(hasattr(one, "_reductions") for one in inside)


def notes_on(metrics: Mapping[str, Any]) -> str:
    """Return who merges the states of those metrics that are not of Ignite, in words; empty where there are none.

    Example:
        >>> notes_on({"accuracy": "Accuracy"})
        ''
    """
    foreign = {name: one for name, one in metrics.items() if is_metric(one) and not isinstance(one, Metric)}
    return ", ".join(f"{name} ({IN_WORDS[merging_of(one)]})" for name, one in foreign.items())


def kinds_of(name: str, metric: Any) -> dict[str, str]:
    """Return the name of the class that measures, by the name of the value; a collection has several values."""
    if not isinstance(metric, ForeignMetric):
        return {name: type(metric).__name__}
    inside = metric.other.items() if callable(getattr(type(metric.other), "items", None)) else ()
    return {name: type(metric.other).__name__, **{str(key): type(one).__name__ for key, one in inside}}


class ForeignMetric(Metric):
    """An object with ``update(predictions, truth)``, ``compute()`` and ``reset()`` as a metric of Ignite.

    Args:
        other: The object.
        **of_metric: Arguments of Ignite's ``Metric``.
    """

    _state_dict_all_req_keys = ("_parts",)
    required_output_keys = ("y_pred", "y")

    def __init__(self, other: Any, **of_metric: Any) -> None:
        self.other = other
        self.merging = merging_of(other)
        if self.merging == "here" and hasattr(other, "_to_sync"):
            # Never both: what is merged here must not be merged again.
            other.sync_on_compute = other._to_sync = False
        self._is_on: Any = None
        super().__init__(**of_metric)

    @reinit__is_reduced
    def reset(self) -> None:
        """Start from nothing."""
        self.other.reset()
        self._parts: list[Mapping[str, Any]] = []
        """The states of all ranks, while they are merged."""
        self._has_data = False

    @reinit__is_reduced
    def update(self, output: Any) -> None:
        """Take the predictions and the truth of a batch."""
        predictions, truth = output[0].detach(), output[1].detach()
        if isinstance(self.other, torch.nn.Module) and self._is_on != predictions.device:
            # Once: to stay where it is costs a pass over all that it has kept.
            self.other.to(predictions.device)
            self._is_on = predictions.device
        self.other.update(predictions, truth)
        self._has_data = True

    def compute(self) -> Any:
        """Return the value of all ranks."""
        if world_size() > 1 and self.merging == "here":
            return computed(self, [part for parts in all_gather(self.parts()) for part in parts])
        return self.other.compute()

    def parts(self) -> list[Mapping[str, Any]]:
        """Return the state of this rank in a list, which becomes that of all ranks; without data there is none."""
        return [self.state_dict()] if self._has_data else []

    def state_dict(self) -> Any:
        """Return the state of the object on this rank; not a copy."""
        if names := getattr(self.other, "_reductions", None):
            return {name: getattr(self.other, name) for name in names}
        return dict(self.other.state_dict()) if callable(getattr(type(self.other), "state_dict", None)) else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Give the object the state of this rank again."""
        if getattr(self.other, "_reductions", None):
            for name, value in state_dict.items():
                setattr(self.other, name, list(value) if isinstance(value, list) else value)
            # Zero is nothing seen, of which torchmetrics warns.
            self.other._update_count, self.other._computed = max(1, self.other._update_count), None
        elif state_dict:
            self.other.load_state_dict(dict(state_dict))
        self._has_data, self._is_on = True, None


def computed(metric: Any, parts: Sequence[Mapping[str, Any]]) -> Any:
    """Return the value of an object for the states of several ranks; it has its own state afterwards."""
    other = metric.other
    if not parts:
        return other.compute()
    if not getattr(other, "_reductions", None):
        empty = copy.deepcopy(other)
        empty.reset()
        whole, *rest = (_with_state(empty, part) for part in parts)
        whole.merge_state(rest)
        return whole.compute()
    device = next((value.device for value in _tensors(getattr(other, name) for name in other._reductions)), None)
    before = {name: getattr(other, name) for name in other._reductions}
    updates, known = other._update_count, other._computed
    try:
        for name, reduction in other._reductions.items():
            setattr(other, name, _reduced([part[name] for part in parts], _REDUCTIONS[reduction.__name__], device))
        other._update_count, other._computed = max(1, updates), None
        return other.compute()
    finally:
        for name, value in before.items():
            setattr(other, name, value)
        other._update_count, other._computed = updates, known


register(
    ForeignMetric,
    Merge(
        {"_parts": "JOIN"},
        lambda metric: computed(metric, vars(metric)["_parts"]),
        lambda metric: {"_parts": metric.parts()},
    ),
)


def _with_state(empty: Any, state: Mapping[str, Any]) -> Any:
    found = copy.deepcopy(empty)
    found.load_state_dict(dict(state))
    return found


def _tensors(values: Any) -> list[Any]:
    return [one for value in values for one in (value if isinstance(value, list) else [value]) if _is_tensor(one)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _reduced(values: Sequence[Any], how: str, device: Any) -> Any:
    """Return the states of all ranks as one; samples stay in the order of the ranks."""
    if how == "cat":
        return [one.to(device) for one in _tensors(values)]
    stacked = torch.stack([torch.as_tensor(value).to(device) for value in values])
    return stacked.sum(0) if how == "sum" else stacked.amax(0) if how == "max" else stacked.amin(0)
