"""The state of an Ignite metric on this rank, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.system.python import signature_of

if TYPE_CHECKING:
    from ignite.metrics import Metric

    from ignite_hooks.measure.foreign_metrics import ForeignMetric

_OF_THE_BASE = ("_device", "_output_transform", "_required_output_keys", "_skip_unrolling", "required_output_keys")


def metric_state(metric: Metric) -> dict[str, Any]:
    """Return what a metric has accumulated on this rank, metrics within it included.

    Not its ``state_dict()``: with several ranks that is a collective, it has nothing for metrics that do not declare
    their attributes, and its lists come back empty.
    """
    if (foreign := _foreign(metric)) is not None:
        return {"parts": _saved(foreign.parts())}
    return {name: _saved(vars(metric)[name]) for name in _accumulated(metric)}


def load_metric_state(metric: Metric, state: Mapping[str, Any]) -> None:
    """Put back what `metric_state` returned; attributes that it does not mention stay as they are."""
    if (foreign := _foreign(metric)) is not None:
        for part in state.get("parts", ()):
            foreign.load_state_dict(_loaded(None, part, metric._device))
        return
    for name in _accumulated(metric):
        if name in state:
            vars(metric)[name] = _loaded(vars(metric)[name], state[name], metric._device)


def _foreign(metric: Metric) -> ForeignMetric | None:
    """Return the metric if an object of another library measures, which has the state; else None."""
    from ignite_hooks.measure.foreign_metrics import ForeignMetric

    return metric if isinstance(metric, ForeignMetric) else None


def _accumulated(metric: Metric) -> list[str]:
    """Return the attributes that a metric accumulates: those that it declares, else all that are no settings."""
    attributes = vars(metric)
    declared = [name for name in type(metric)._state_dict_all_req_keys if name in attributes]
    if declared:
        return declared
    settings = {name.lstrip("_") for name in signature_of(type(metric).__init__).parameters}
    return [
        name
        for name, value in attributes.items()
        if name.lstrip("_") not in settings and name not in _OF_THE_BASE and _is_data(value)
    ]


def _is_data(value: Any) -> bool:
    import torch
    from ignite.metrics import Metric

    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    if isinstance(value, Mapping):
        return all(map(_is_data, value.values()))
    return value is None or isinstance(value, (bool, int, float, str, torch.Tensor, Metric))


def _saved(value: Any) -> Any:
    from ignite.metrics import Metric

    if isinstance(value, Metric):
        return metric_state(value)
    if isinstance(value, Mapping):
        return {key: _saved(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_saved(item) for item in value]
    return value


def _loaded(now: Any, saved: Any, device: Any) -> Any:
    """Return the value that an attribute gets; metrics within it are loaded in place."""
    import torch
    from ignite.metrics import Metric

    if isinstance(now, Metric):
        load_metric_state(now, saved)
        return now
    if isinstance(now, Mapping) and isinstance(saved, Mapping) and now:
        merged = {key: _loaded(item, saved[key], device) if key in saved else item for key, item in now.items()}
        return type(now)(merged) if type(now) is not dict else merged  # type: ignore[call-arg]
    if isinstance(now, (list, tuple)) and any(isinstance(item, (Metric, Mapping, list, tuple)) for item in now):
        return type(now)(_loaded(item, other, device) for item, other in zip(now, saved, strict=True))
    if isinstance(saved, torch.Tensor):
        return saved.to(device, copy=True)
    if isinstance(saved, Mapping):
        return {key: _loaded(None, item, device) for key, item in saved.items()}
    if isinstance(saved, list):
        items = [_loaded(None, item, device) for item in saved]
        return tuple(items) if isinstance(now, tuple) else items
    return saved
