"""Metrics of Ignite over several processes: what each has counted, put together in one message."""

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


def merged(states: Sequence[Mapping[str, Any]], operations: Mapping[str, Operation]) -> dict[str, Any]:
    """The states of one metric on all ranks as if one process had seen everything.

    A rank without data may have numbers where the others have tensors.

    Example:
        >>> merged([{"n": 2, "seen": True}, {"n": 3, "seen": False}], {"n": "SUM", "seen": "ANY"})
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
        # Of a rank without data there is a number, or a tensor without dimensions.
        values = [torch.as_tensor(value) for value in values]
        return functools.reduce(operator.add if how == "SUM" else torch.maximum, values)
    return sum(values) if how == "SUM" else max(values)


class SharedEvaluation:
    """An evaluation whose data is shared out, and whose metrics are computed for all ranks at once.

    Between ``put_together`` and ``release`` each metric computes what one process would have computed that had seen
    the data of all. Metrics that only know themselves how to do this do it themselves.

    Args:
        engine: The evaluator.
        common: How many batches every rank has at least; 0 where that is not known.
        counts: Whether what this rank has seen counts; one without data of its own has seen what is another's.
        catch_up: Called before the exchange, by ranks that have had a batch less than others.
    """

    def __init__(
        self, engine: Engine, common: int = 0, counts: bool = True, catch_up: Callable[[], None] | None = None
    ) -> None:
        self.engine = engine
        self.common, self._counts, self._catch_up = common, counts, catch_up
        self.metrics = leaves(attached_metrics(engine))
        self._known = {index: found for index, m in enumerate(self.metrics) if (found := merge_of(m)) is not None}
        self._own: list[tuple[Metric, dict[str, Any]]] = []

    @property
    def left_alone(self) -> list[str]:
        """The classes of the metrics that talk to the other ranks themselves."""
        return sorted({type(m).__name__ for index, m in enumerate(self.metrics) if index not in self._known})

    def put_together(self) -> None:
        """Exchange what was counted, in one message."""
        if self._catch_up is not None:
            self._catch_up()
        if not self._counts:
            for metric in self.metrics:
                _reset(metric)
        if not self._known:
            return
        mine = [{name: vars(self.metrics[i])[name] for name in merge.operations} for i, merge in self._known.items()]
        heard = all_gather(mine)
        for place, (index, merge) in enumerate(self._known.items()):
            metric = self.metrics[index]
            found = _on_device_of(metric, merged([states[place] for states in heard], merge.operations))
            if "_result" in vars(metric):
                found["_result"] = None
            self._own.append((metric, {name: vars(metric)[name] for name in found}))
            vars(metric).update(found)
            metric.compute = functools.partial(merge.compute, metric)  # type: ignore[method-assign]

    def release(self) -> None:
        """Give the metrics back what they had counted themselves."""
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
    """The metrics that an engine computes at the end of an epoch, each once."""
    from ignite.engine import Events
    from ignite.metrics import Metric

    handlers = engine._event_handlers.get(Events.EPOCH_COMPLETED, [])
    owners = [getattr(handler, "__self__", None) for handler, *_ in handlers]
    return list({id(owner): owner for owner in owners if isinstance(owner, Metric)}.values())


def leaves(metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that count, in an order that is the same on all ranks: of composed ones their parts."""
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
