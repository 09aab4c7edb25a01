"""Metrics over several processes: the states of all ranks, merged in one message."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import all_gather
from ignite_hooks.distributed.metric_table import Operation, merge_of

if TYPE_CHECKING:
    from ignite.engine import Engine
    from ignite.metrics import Metric


def merged_states(states: Sequence[Mapping[str, Any]], operations: Mapping[str, Operation]) -> dict[str, Any]:
    """Return the states of one metric on all ranks as the state of a process that has seen all data.

    A rank without data may have numbers where the others have tensors.

    Example:
        >>> merged_states([{"n": 2, "seen": True}, {"n": 3, "seen": False}], {"n": "SUM", "seen": "ANY"})
        {'n': 5, 'seen': True}
    """
    return {name: _reduced([state[name] for state in states], how) for name, how in operations.items()}


def _reduced(values: list[Any], how: Operation) -> Any:
    if how == "JOIN":
        return [part for each in values for part in each]
    if how == "ANY":
        return any(values)
    import torch

    if any(isinstance(value, torch.Tensor) for value in values):
        # A rank without data has a number, or a tensor without dimensions.
        values = [torch.as_tensor(value) for value in values]
        return functools.reduce(operator.add if how == "SUM" else torch.maximum, values)
    return sum(values) if how == "SUM" else max(values)


class SharedEvaluation:
    """An evaluation whose batches are shared among ranks, and whose metrics are merged.

    Between ``merge`` and ``restore`` each metric computes the value of all data. Metrics that are not in the table
    synchronise themselves.

    Args:
        engine: The evaluator.
        common: The number of batches that every rank has at least; 0 if unknown.
        counts: Whether this rank's state counts; a rank without data has seen a batch of another rank.
        extra_step: Called before the exchange, so that all ranks have taken the same number of steps.
    """

    def __init__(
        self, engine: Engine, common: int = 0, counts: bool = True, extra_step: Callable[[], None] | None = None
    ) -> None:
        self.engine = engine
        self.common, self._counts, self._extra_step = common, counts, extra_step
        self.metrics = leaves(attached_metrics(engine))
        self._known = {index: found for index, m in enumerate(self.metrics) if (found := merge_of(m)) is not None}
        self._own: list[tuple[Metric, dict[str, Any]]] = []

    @property
    def not_merged(self) -> list[str]:
        """The classes of the metrics that synchronise themselves."""
        apart = [m for index, m in enumerate(self.metrics) if index not in self._known]
        apart += [
            other for m in self.metrics if getattr(m, "merging", "") == "itself" and (other := vars(m).get("other"))
        ]
        return sorted({type(m).__name__ for m in apart})

    def merge(self) -> None:
        """Exchange the states in one message, and give every metric the merged state."""
        if self._extra_step is not None:
            self._extra_step()
        if not self._counts:
            for metric in self.metrics:
                _reset(metric)
        if not self._known:
            return
        states = [(merge.state_of(self.metrics[i]), merge.operations) for i, merge in self._known.items()]
        mine = [{name: state[name] for name in operations} for state, operations in states]
        gathered = all_gather(mine)
        for place, (index, merge) in enumerate(self._known.items()):
            metric = self.metrics[index]
            found = _on_device_of(metric, merged_states([each[place] for each in gathered], merge.operations))
            if "_result" in vars(metric):
                found["_result"] = None
            self._own.append((metric, {name: vars(metric)[name] for name in found}))
            vars(metric).update(found)
            metric.compute = functools.partial(merge.compute, metric)  # type: ignore[method-assign]

    def restore(self) -> None:
        """Give the metrics back their own states."""
        while self._own:
            metric, own = self._own.pop()
            vars(metric).pop("compute", None)
            vars(metric).update(own)


def _reset(metric: Metric) -> None:
    """Reset a metric, but keep the types of its state: ranks with data reduce tensors where others have numbers."""
    import torch

    seen = dict(vars(metric))
    metric.reset()
    for name, value in vars(metric).items():
        before = seen.get(name)
        if isinstance(before, torch.Tensor) and isinstance(value, (int, float)):
            vars(metric)[name] = torch.full_like(before, value)


def attached_metrics(engine: Engine) -> list[Metric]:
    """Return the metrics that an engine computes at the end of an epoch, each once."""
    from ignite.engine import Events
    from ignite.metrics import Metric

    handlers = engine._event_handlers.get(Events.EPOCH_COMPLETED, [])
    owners = [getattr(handler, "__self__", None) for handler, *_ in handlers]
    return list({id(owner): owner for owner in owners if isinstance(owner, Metric)}.values())


def leaves(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics that have a state, in an order equal on all ranks; composed ones as their parts."""
    from ignite.metrics import Metric, RunningAverage

    found: dict[int, Metric] = {}
    rest: list[Any] = list(metrics)
    seen: set[int] = set()
    while rest:
        thing = rest.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Mapping):
            rest[:0] = thing.values()
        elif isinstance(thing, (list, tuple)):
            rest[:0] = thing
        elif isinstance(thing, Metric) and not isinstance(thing, RunningAverage):
            inside = [value for value in vars(thing).values() if _holds_metrics(value)]
            if inside:
                rest[:0] = inside
            else:
                found[id(thing)] = thing
    return list(found.values())


def _holds_metrics(value: Any) -> bool:
    from ignite.metrics import Metric

    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, Metric) or (isinstance(value, (list, tuple)) and any(isinstance(v, Metric) for v in value))


def _on_device_of(metric: Metric, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state on the device of the metric: messages bring tensors to the CPU."""
    import torch

    device = getattr(metric, "_device", None)

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(item) for item in value]
        return value.to(device) if device is not None and isinstance(value, torch.Tensor) else value

    return {name: moved(value) for name, value in state.items()}
