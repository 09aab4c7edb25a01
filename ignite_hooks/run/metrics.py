"""The metrics of a run: names, steps, lookup, and which of them are logged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import MetricError
from ignite_hooks.measure.loss_source import LossSource, losses_of
from ignite_hooks.measure.results import Result, escaped_label, result_of
from ignite_hooks.text import html_table, nearest, shown
from ignite_hooks.text import number as as_text

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

# The largest number of names in a message.
NAMES_SHOWN = 20
# The most entries of a result that the line of an evaluation shows.
MOST_IN_LINE = 6


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
        self.labels: Sequence[str] = ()
        """The names of the classes, by which the entries of a result are called: ``iou/cat``."""

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
        plain: bool,
        taken: Collection[str],
    ) -> None:
        """Publish `<evaluator>_<name>`; for the main evaluator also plain `<name>`, unless it is taken."""
        short = {name: value for name, value in values.items() if plain and name not in taken}
        prefixed = {f"{evaluator_name}_{name}": value for name, value in values.items()}
        self.publish(short | prefixed, step)

    def find(self, name: str) -> str:
        """Return the published name that `name` means: the same, or the same with `/` and `_` exchanged.

        An entry of a result is called as log and files show it, or by its number: ``iou/cat``, ``iou/3``.
        """
        if (found := self._whole(name)) is not None:
            return found
        whole, element = self._split(name)
        if whole is not None:
            return f"{whole}/{element}"
        raise MetricError(f"no metric {name!r}: {self.what_exists(name)}")

    def _whole(self, name: str) -> str | None:
        if name in self._values:
            return name
        alike = [known for known in self._values if known.replace("/", "_") == name.replace("/", "_")]
        if len(alike) > 1:
            raise MetricError(f"metric {name!r} could be any of {', '.join(alike)}: use one of these names")
        return alike[0] if alike else None

    def _split(self, name: str) -> tuple[str | None, str]:
        """Return the published name of the result that has this entry, and the name of the entry."""
        for place in (place for place, letter in enumerate(name) if letter == "/"):
            whole, entry = self._whole(name[:place]), name[place + 1 :]
            known = {} if whole is None else entries_of(self._values[whole], self.labels)
            if not known:
                continue
            if entry.isdecimal() and entry not in known and int(entry) < len(self.labels):
                entry = escaped_label(self.labels[int(entry)])
            if entry in known:
                return whole, entry
            raise MetricError(f"no metric {name!r}: {whole!r} has the entries {_few(known)}")
        return None, ""

    def step(self, name: str) -> int:
        """Return the step that the value of `name` belongs to."""
        whole = self._whole(name) or self._split(name)[0] or self.find(name)
        return self._steps[whole]

    def number(self, name: str) -> float:
        """Return the value of `name` as a float; raise a `MetricError` if it is missing or not a number."""
        found = self.find(name)
        value = self[found] if found in self._values else self._entry(found)
        if not isinstance(value, Real):
            known = entries_of(value, self.labels)
            hint = f": name one of its entries, such as {found}/{next(iter(known))}" if known else ""
            raise MetricError(f"metric {found!r} is not a number but a {type(value).__name__}{hint}")
        return float(value)

    def _entry(self, name: str) -> float:
        whole, entry = self._split(name)
        assert whole is not None
        return entries_of(self._values[whole], self.labels)[entry]

    def numbers(self) -> dict[str, float]:
        """Return everything that is a number, and the entries of results, fetched from their device."""
        return numbers_of(self, self.labels)

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

    def _repr_html_(self) -> str:
        rows = [
            {
                "metric": name,
                "value": as_text(value) if isinstance(value, int | float) else shown(value),
                "iteration": str(self._steps[name]),
            }
            for name, value in self.items()
        ]
        return html_table(rows) if rows else "nothing has been published yet"

    def what_exists(self, name: str) -> str:
        """Name the published metrics in words, for a message that one is missing."""
        if not self._values:
            return "nothing has been published yet"
        names = list(self._values)
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        near = nearest(name, names)
        hint = f" (did you mean {near!r}?)" if near else ""
        return f"there are {', '.join(names[:NAMES_SHOWN])}{more}{hint}"


class TrainerMetrics:
    """The metrics of a run, updated from the trainer's state whenever they are read."""

    def __init__(self, source: LossSource | None = None) -> None:
        self._source = source or LossSource()
        self.latest = Metrics()
        """Everything published so far."""
        self._seen: dict[str, Any] = {}
        self._loss_of = -1

    def read(self, state: Any) -> Metrics:
        """Publish the new values of a trainer's state and return all metrics."""
        iteration = int(state.iteration)
        if self._loss_of != iteration and state.output is not None and not self._source.failed:
            self._loss_of = iteration
            losses = self._source.of(state.output)
            self.latest.publish({name: value for name, value in losses.items() if name == "loss"}, iteration)
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


def numbers_of(values: Mapping[str, Any], labels: Sequence[str] = ()) -> dict[str, float]:
    """Return the values that are numbers, and the entries of results, fetched from their device.

    Args:
        values: What was measured, by name.
        labels: The names of the classes.

    >>> numbers_of({"accuracy": 0.5, "iou": [0.25, 1.0], "report": "text"}, ["cat", "dog"])
    {'accuracy': 0.5, 'iou/cat': 0.25, 'iou/dog': 1.0}
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        if number := losses_of({name: _number_or_value(value)}):
            found |= number
        elif not _is_published_apart(value, values):
            found |= {f"{name}/{entry}": one for entry, one in entries_of(value, labels).items()}
    return found


def entries_of(value: Any, labels: Sequence[str] = ()) -> dict[str, float]:
    """Return the numbers in a result by the names of its entries; nothing for any other value."""
    result = result_of(value)
    return {} if result is None else result.labelled(labels).entries()


def _is_published_apart(value: Any, values: Mapping[str, Any]) -> bool:
    """Return whether Ignite has published the entries of a mapping by their own names too."""
    return isinstance(value, Mapping) and {*value} <= {*values}


def _few(names: Collection[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:NAMES_SHOWN]) + (
        f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    )


def not_shown(values: Mapping[str, Any], shown_as: Collection[str] = ()) -> list[str]:
    """Describe the values that no line, file or tracker shows.

    Args:
        values: What was measured, by name.
        shown_as: The names of those that are results.

    >>> not_shown({"accuracy": 0.5, "report": "text", "by_class": {"cat": 0.5}, "cat": 0.5})
    ['report (str)']
    """
    hidden = {
        name: value
        for name, value in values.items()
        if value is not None
        and name not in shown_as
        and not losses_of({name: _number_or_value(value)})
        and not _is_published_apart(value, values)
    }
    return [f"{name} ({_kind_of(value)})" for name, value in hidden.items()]


def _kind_of(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return (
        type(value).__name__ if shape is None else f"{type(value).__name__} of {' x '.join(map(str, shape)) or 'one'}"
    )


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
    results: Mapping[str, Result] = field(default_factory=dict)
    """What is more than a number, by the same names."""

    @property
    def short(self) -> dict[str, float]:
        """The metrics that a line has room for: without the entries of long results."""
        before = len(self.prefix)
        long = [name[before:] for name, one in self.results.items() if len(one.entries()) > MOST_IN_LINE]
        return {
            name: value for name, value in self.metrics.items() if not any(name.startswith(f"{one}/") for one in long)
        }

    @property
    def prefix(self) -> str:
        """What tells the names of this evaluator from those of others; empty for most."""
        return "" if self.name in ("train", "val", "test") else f"{self.name}_"

    def write_results(self, write: Callable[..., None], kind: str) -> None:
        """Write each result by a method of a writer, which may have it drawn."""
        from ignite_hooks.drawing.evaluation import drawn

        for name, result in self.results.items():
            content = result.to_json()
            title = f"{name}, iteration {self.step}"
            draw = functools.partial(drawn, content, title=title)
            write(name, content, self.step, kind=kind, epoch=self.epoch, draw=draw)


def evaluated(runner: Runner, kind: str) -> Evaluated:
    """Return the metrics of the running engine.

    Args:
        runner: The run.
        kind: train, val or test.
    """
    engine, progress = runner.engine.state, runner.trainer_state
    # A metric of the trainer with the name of a loss would appear in a line twice.
    beside = runner.loss_source.of(engine.output) if kind == "train" else {}
    labels, measured = runner.metrics.labels, engine.metrics or {}
    metrics = {name: value for name, value in numbers_of(measured, labels).items() if name not in beside}
    name = runner.state.evaluating or kind
    results = results_of(measured, labels, runner.engine)
    if hidden := not_shown(measured, results):
        runner.note_once(f"metrics of {name} that log, files and trackers do not show: {', '.join(hidden)}")
    before = "" if name == kind else f"{name}_"
    if kind != "train":
        metrics |= numbers_of(runner.evaluation_options.found_by_extra.get(name, {}), labels)
    scalars = {f"{before}{key}": value for key, value in metrics.items()}
    shown_results = {f"{before}{key}": result for key, result in results.items()}
    return Evaluated(int(progress.iteration), int(progress.epoch), name, metrics, scalars, shown_results)


def results_of(values: Mapping[str, Any], labels: Sequence[str], engine: Engine) -> dict[str, Result]:
    """Return what is more than a number among the metrics of an engine, with the names of the classes."""
    kinds = _kinds_of_metrics(engine)
    found = {name: result_of(value, kinds.get(name, "")) for name, value in values.items() if not _is_number(value)}
    return {name: result.labelled(labels) for name, result in found.items() if result is not None}


def has_results(values: Mapping[str, Any]) -> bool:
    """Return whether there is more than numbers among what was measured."""
    return any(not _is_number(value) for value in values.values())


def _is_number(value: Any) -> bool:
    return type(value) in (float, int, bool, str) or value is None or bool(losses_of({"": value}))


def _kinds_of_metrics(engine: Engine) -> dict[str, str]:
    """Return the name of the class of each metric that is attached to an engine."""
    from ignite_hooks.measure.foreign_metrics import kinds_of

    entries = [entry for entries in engine._event_handlers.values() for entry in entries]
    owners = [(getattr(handler, "__self__", None), args) for handler, args, _ in entries]
    # Ignite puts the engine before what was given to a handler, which of a metric is its name.
    named = [(args[-1], owner) for owner, args in owners if args and isinstance(args[-1], str)]
    return {name: kind for own, owner in named for name, kind in kinds_of(own, owner).items()}


def of_training_data(evaluator: Engine, runner: Runner) -> Evaluated:
    """Return the metrics of an evaluator that has run over the training data."""
    metrics, progress = numbers_of(evaluator.state.metrics or {}, runner.metrics.labels), runner.trainer_state
    scalars = {f"train_{name}": value for name, value in metrics.items()}
    return Evaluated(int(progress.iteration), int(progress.epoch), "train", metrics, scalars)
