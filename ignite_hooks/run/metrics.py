"""The metrics of a run: names, steps, lookup, and which of them are logged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import MetricError
from ignite_hooks.measure.losses import losses_of
from ignite_hooks.text import nearest

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

# The largest number of names in a message.
NAMES_SHOWN = 20


class Metrics(Mapping[str, Any]):
    """The latest value of every metric, with the step it belongs to.

    Publishing never waits for a device: a one-element tensor becomes a Python number when it is first read,
    and must not be changed in place before that.

    >>> metrics = Metrics()
    >>> metrics.publish({"val/loss": 0.25}, step=100)
    >>> metrics.number("val_loss"), metrics.step("val/loss"), metrics.fresh("val/loss", 200)
    (0.25, 100, None)
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._steps: dict[str, int] = {}

    def publish(self, values: Mapping[str, Any], step: int) -> None:
        """Replace these values; the others keep their step."""
        for name, value in values.items():
            # A loss keeps the whole graph of its iteration alive until it is detached.
            self._values[name] = value.detach() if _is_tensor(value) else value
            self._steps[name] = step

    def publish_evaluation(
        self,
        evaluator_name: str,
        values: Mapping[str, Any],
        step: int,
        *,
        first: bool,
        taken: Collection[str],
    ) -> None:
        """Publish `<evaluator>_<name>`; for the first evaluator also plain `<name>`, unless it is taken."""
        plain = {name: value for name, value in values.items() if first and name not in taken}
        prefixed = {f"{evaluator_name}_{name}": value for name, value in values.items()}
        self.publish(plain | prefixed, step)

    def find(self, name: str) -> str:
        """Return the published name that `name` means: the same, or the same with `/` and `_` exchanged."""
        if name in self._values:
            return name
        alike = [known for known in self._values if known.replace("/", "_") == name.replace("/", "_")]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise MetricError(f"metric {name!r} could be any of {', '.join(alike)}: use one of these names")
        raise MetricError(f"no metric {name!r}: {self._what_exists(name)}")

    def step(self, name: str) -> int:
        """Return the step that the value of `name` belongs to."""
        return self._steps[self.find(name)]

    def number(self, name: str) -> float:
        """Return the value of `name` as a float; raise a `MetricError` if it is missing or not a number."""
        found = self.find(name)
        value = self[found]
        if not isinstance(value, Real):
            raise MetricError(f"metric {found!r} is not a number but a {type(value).__name__}")
        return float(value)

    def fresh(self, name: str, step: int) -> float | None:
        """Return the number if it belongs to `step`, else None."""
        return self.number(name) if self.step(name) == step else None

    def clear(self) -> None:
        self._values.clear()
        self._steps.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers and their steps; other values are not saved."""
        return {
            name: {"value": value, "step": self._steps[name]}
            for name, value in self.items()
            if isinstance(value, (int, float))
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._values = {name: entry["value"] for name, entry in state.items()}
        self._steps = {name: entry["step"] for name, entry in state.items()}

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        if type(value) in (float, int, bool, str):
            return value
        number = self._values[name] = _number_or_value(value)
        return number

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

    def _what_exists(self, name: str) -> str:
        if not self._values:
            return "nothing has been published yet"
        names = list(self._values)
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        near = nearest(name, names)
        hint = f" (did you mean {near!r}?)" if near else ""
        return f"there are {', '.join(names[:NAMES_SHOWN])}{more}{hint}"


class TrainerMetrics:
    """The metrics of a run, updated from the trainer's state whenever they are read."""

    def __init__(self) -> None:
        self.latest = Metrics()
        """Everything published so far."""
        self._seen: dict[str, Any] = {}
        self._loss_of = -1

    def read(self, state: Any) -> Metrics:
        """Publish the new values of a trainer's state and return all metrics."""
        iteration = int(state.iteration)
        if self._loss_of != iteration and state.output is not None:
            self._loss_of = iteration
            self.latest.publish(losses_of(state.output, "loss"), iteration)
        # A value that is the same object as before was not computed again, so it keeps its step.
        current = state.metrics or {}
        new = {name: value for name, value in current.items() if self._seen.get(name, self) is not value}
        if new:
            self._seen.update(new)
            self.latest.publish(new, iteration)
        return self.latest

    def forget_seen(self) -> None:
        """Publish the trainer's values at the next reading even if they have not changed."""
        self._seen.clear()
        self._loss_of = -1


def _is_tensor(value: Any) -> bool:
    # Not by `detach`, which an Ignite `Metric` also has; and by the class, because its instances answer any name.
    return hasattr(type(value), "numel")


def _number_or_value(value: Any) -> Any:
    if not hasattr(type(value), "item"):
        return value
    size = value.numel() if _is_tensor(value) else getattr(value, "size", None)
    return value.item() if size == 1 else value


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are single numbers, fetched from their device."""
    return losses_of({name: _number_or_value(value) for name, value in values.items()})


@dataclass(frozen=True)
class Evaluated:
    """The metrics of an engine at the end of its epoch."""

    step: int
    epoch: int
    name: str
    """The name of the evaluator, or ``train``."""
    metrics: Mapping[str, float]
    """The metrics by their plain names."""
    scalars: Mapping[str, float]
    """The metrics by the names that tell evaluators apart."""


def evaluated(runner: Runner, kind: str) -> Evaluated:
    """Return the metrics of the running engine.

    Args:
        runner: The run.
        kind: train, val or test.
    """
    engine, progress = runner.engine.state, runner.trainer_state
    # A metric of the trainer with the name of a loss would appear in a line twice.
    beside = losses_of(engine.output) if kind == "train" else {}
    metrics = {name: value for name, value in numbers_of(engine.metrics or {}).items() if name not in beside}
    name = runner.state.evaluating or kind
    scalars = metrics if name == kind else {f"{name}_{key}": value for key, value in metrics.items()}
    return Evaluated(int(progress.iteration), int(progress.epoch), name, metrics, scalars)
