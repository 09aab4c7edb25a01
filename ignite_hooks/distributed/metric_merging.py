"""Metrics of Ignite over several processes: what each has counted, put together in one message."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import all_gather

if TYPE_CHECKING:
    from ignite.engine import Engine
    from ignite.metrics import Metric

Operations = Mapping[str, str]
"""How the values of an attribute on several ranks become one: SUM, MAX, MIN, PRODUCT, ANY or JOIN."""


def operations_of(metric: Metric) -> Operations | None:
    """How to put a metric together, or None where only the metric itself knows."""
    from ignite.metrics import EpochMetric, Precision, Recall

    kept, compute = tuple(metric._state_dict_all_req_keys), type(metric).compute
    if isinstance(metric, EpochMetric):
        return dict.fromkeys(kept, "JOIN") if kept == EpochMetric._state_dict_all_req_keys else None
    found = _reduced_attributes(compute)
    if isinstance(metric, (Precision, Recall)):
        found["_weight"] = "SUM"
    elif not found or _talks(inspect.unwrap(compute)):
        return None
    for name in kept:
        if name not in found:
            if not isinstance(vars(metric).get(name), bool):
                return None
            found[name] = "ANY"
    return found


def merged(states: Sequence[Mapping[str, Any]], operations: Operations) -> dict[str, Any]:
    """The states of one metric on all ranks as if one process had seen everything.

    A rank without data may have numbers where the others have tensors.

    Example:
        >>> merged([{"n": 2, "seen": True}, {"n": 3, "seen": False}], {"n": "SUM", "seen": "ANY"})
        {'n': 5, 'seen': True}
    """
    return {name: _reduced([state[name] for state in states], how) for name, how in operations.items()}


def _reduced(values: list[Any], how: str) -> Any:
    if how == "JOIN":
        return [part for each in values for part in each]
    if how == "ANY":
        return any(values)
    import torch

    if any(isinstance(value, torch.Tensor) for value in values):
        # Of a rank without data there is a number, or a tensor without dimensions.
        values = [torch.as_tensor(value) for value in values]
        larger: Callable[[Any, Any], Any] = torch.maximum
        smaller: Callable[[Any, Any], Any] = torch.minimum
    else:
        larger, smaller = max, min
    together = {"SUM": operator.add, "PRODUCT": operator.mul, "MAX": larger, "MIN": smaller}[how]
    return functools.reduce(together, values)


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
        self._known = {index: how for index, m in enumerate(self.metrics) if (how := operations_of(m)) is not None}
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
                metric.reset()
        if not self._known:
            return
        mine = [{name: vars(self.metrics[index])[name] for name in how} for index, how in self._known.items()]
        heard = all_gather(mine)
        for place, (index, how) in enumerate(self._known.items()):
            metric = self.metrics[index]
            found = _where_it_was(merged([states[place] for states in heard], how), metric)
            if "_result" in vars(metric):
                found["_result"] = None
            self._own.append((metric, {name: vars(metric)[name] for name in found}))
            vars(metric).update(found)
            metric.compute = _Alone(metric)  # type: ignore[method-assign]

    def release(self) -> None:
        """Give the metrics back what they had counted themselves."""
        while self._own:
            metric, own = self._own.pop()
            vars(metric).pop("compute", None)
            vars(metric).update(own)


class _Alone:
    """Stands in for a metric's ``compute`` once the metric holds what all ranks have counted."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with alone():
            return type(self._metric).compute(self._metric, *args, **kwargs)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let ``ignite.distributed`` answer as in a single process."""
    import ignite.distributed.utils as idist
    from ignite.distributed.comp_models import _SerialModel

    before = idist._model, idist._need_to_sync
    idist._model, idist._need_to_sync = _SerialModel(), False
    try:
        yield
    finally:
        idist._model, idist._need_to_sync = before


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


def _reduced_attributes(compute: Any) -> dict[str, str]:
    """What Ignite's decorator ``sync_all_reduce`` was given for this method."""
    from ignite.metrics.metric import sync_all_reduce

    code = getattr(compute, "__code__", None)
    makers = [c for c in sync_all_reduce.__code__.co_consts if inspect.iscode(c)]
    ours = [c for maker in makers for c in maker.co_consts if inspect.iscode(c)]
    if code not in ours:
        return {}
    given = inspect.getclosurevars(compute).nonlocals["attrs"]
    parts = [attribute.partition(":") for attribute in given]
    return {name: how or "SUM" for name, _, how in parts}


def _talks(function: Any) -> bool:
    """Whether a function uses ``ignite.distributed`` itself."""
    names = set(function.__code__.co_names)
    return bool(names & {"idist", "all_reduce", "all_gather", "broadcast"})


def _where_it_was(state: dict[str, Any], metric: Metric) -> dict[str, Any]:
    """The state on the device of the metric: messages bring tensors to the CPU."""
    import torch

    device = getattr(metric, "_device", None)

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(item) for item in value]
        return value.to(device) if device is not None and isinstance(value, torch.Tensor) else value

    return {name: moved(value) for name, value in state.items()}
