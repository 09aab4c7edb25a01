"""Metrics of Ignite as settings name them: checked before a run, and built for one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.run.services import KNOWN_SERVICES
from ignite_hooks.text import did_you_mean, shown

NOT_MERGED = (
    "nothing says how the states of several processes become one: give it merge_state(others), state_dict() and "
    "load_state_dict(), or write it as a metric of Ignite"
)


def problem_of_metric(wanted: Any, services: Collection[str]) -> str | None:
    """Return the reason why this entry of ``metrics`` is invalid, or None."""

    from ignite_hooks.measure.foreign_metrics import is_metric

    if is_metric(wanted):
        return None
    type_, arguments = _type_and_arguments(wanted)
    known = _known_metrics()
    if not isinstance(type_, str):
        return f"must be the name of a metric, or a mapping with 'type', not {shown(wanted)}"
    if type_ not in known:
        return f"ignite.metrics has no {type_!r}{did_you_mean(type_, known)}"
    for name, value in arguments.items():
        if isinstance(value, str) and value in KNOWN_SERVICES and value not in services:
            return f"{name}: there is no service {value!r}: pass {value}=... to attach_hooks()"
    return None


def make_metric(name: str, wanted: Any, services: Mapping[str, Any]) -> Any:
    """Return an Ignite metric from its name or from ``{type: Name, ...}``, or the metric itself."""
    from ignite_hooks.measure.foreign_metrics import as_metric, is_metric
    from ignite_hooks.measure.label_metrics import OF_LABELS

    if is_metric(wanted):
        metric = as_metric(wanted)
        if getattr(metric, "merging", "") == "nobody" and world_size() > 1:
            raise ConfigError([Problem(name, f"{type(wanted).__name__}: {NOT_MERGED}")])
        return metric
    type_, given = _type_and_arguments(wanted)
    if type_ in OF_LABELS and not given.keys() & {"is_multilabel", "output_transform", "skip_unrolling"}:
        # A loss of probabilities says what the scores are.
        probabilities = type(services.get("criterion")).__name__ == "BCELoss"
        try:
            return OF_LABELS[type_](**given, threshold=0.5 if probabilities else 0.0)
        except (TypeError, ValueError) as error:
            raise ConfigError([Problem(name, f"{type_} rejects these settings: {error}")]) from error
    arguments = {key: services.get(v, v) if isinstance(v, str) else v for key, v in given.items()}
    try:
        return _known_metrics()[type_](**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError([Problem(name, f"{type_} rejects these settings: {error}")]) from error


def _type_and_arguments(wanted: Any) -> tuple[Any, dict[str, Any]]:
    given = dict(wanted) if isinstance(wanted, Mapping) else {"type": wanted}
    return given.pop("type", None), given


def _known_metrics() -> dict[str, type]:
    import ignite.metrics

    everything = vars(ignite.metrics).items()
    return {n: cls for n, cls in everything if isinstance(cls, type) and issubclass(cls, ignite.metrics.Metric)}
