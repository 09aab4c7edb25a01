"""The data of a page: what it shows, and how that is collected from a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.report.curves import CurveSet, is_resource, logged_shares
from ignite_hooks.report.media import PageMedia
from ignite_hooks.report.pictures import PagePicture
from ignite_hooks.results.outcome import State
from ignite_hooks.system.devices import peak_of_gpu
from ignite_hooks.text import counted, shown

if TYPE_CHECKING:
    from ignite_hooks.results.result import RecordedTest
    from ignite_hooks.run.best import Record
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.state import Delivered
    from ignite_hooks.secrets import Masks

MAX_WARNINGS = 60
"""Maximum number of different warnings that are collected."""
MAX_WARNING_LENGTH = 2000
"""Maximum number of characters of a warning."""


@dataclass(frozen=True)
class BestScore:
    """The best score of a metric that the run ranks, and the file that holds it."""

    metric: str
    score: float
    epoch: int
    step: int
    file: str | None = None


@dataclass(frozen=True)
class ShownResult:
    """A result of the last evaluation of its name."""

    kind: str
    """val, test or train."""
    step: int
    epoch: int | None
    content: Mapping[str, Any]


@dataclass(frozen=True)
class HookCost:
    """The time a hook has taken, in seconds."""

    name: str
    calls: int
    total: float
    mean: float
    p99: float
    worst: float
    evaluates: bool = False
    """Whether the time includes evaluations."""


@dataclass(frozen=True)
class LoggedWarning:
    """A warning or an error of the log, and how often it was logged."""

    text: str
    at: float = 0.0
    level: str = "WARNING"
    times: int = 1


@dataclass(frozen=True)
class RunPage:
    """All data of the report of a run; secrets are masked already, and ``markup`` escapes texts for HTML."""

    name: str
    state: State = "running"
    reason: str = ""
    """The reason why the run stopped or failed."""
    trace: str = ""
    began: float = 0.0
    written: float = 0.0
    seconds: float = 0.0
    left: float | None = None
    """Seconds until the run ends, if known."""
    epoch: int = 0
    """Number of finished epochs."""
    max_epochs: int | None = None
    iteration: int = 0
    max_iters: int | None = None
    resumed_from: str = ""
    best: Sequence[BestScore] = ()
    delivered: str = ""
    """The weights that the run delivers, where they are not the last ones."""
    delivered_file: str | None = None
    history: CurveSet = field(default_factory=CurveSet)
    results: Mapping[str, ShownResult] = field(default_factory=dict)
    """What the last evaluations found beside numbers, by name."""
    tests: Mapping[str, RecordedTest] = field(default_factory=dict)
    """The tests after the end, as the result has them."""
    test_results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the last of them has found beside numbers, by name."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """The share of each phase of an iteration, as the timer has measured them; empty if there is none."""
    costs: Sequence[HookCost] = ()
    """The most expensive first."""
    plan: Sequence[Mapping[str, str]] = ()
    pictures: Sequence[PagePicture] = ()
    pictures_besides: int = 0
    """Number of pictures in the folders that are not shown."""
    media: Sequence[PageMedia] = ()
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    """Names of files beside the page, to which it links."""
    links: Mapping[str, str] = field(default_factory=dict)
    """The addresses of the run in trackers, by their names."""
    failures: Sequence[str] = ()
    findings: Sequence[str] = ()
    warnings: Sequence[LoggedWarning] = ()


def best_scores(best: Mapping[str, Record], delivered: Delivered | None) -> list[BestScore]:
    """Return the best score of each metric; that of the weights which are delivered comes first."""
    first = None if delivered is None else delivered.metric
    found = [BestScore(name, one.score, one.epoch, one.step, one.file) for name, one in best.items()]
    return sorted(found, key=lambda one: one.metric != first)


class WarningCollector(logging.Handler):
    """A log handler that collects the warnings of a run and counts repeated ones.

    Args:
        loggers: Loggers to collect from.
        mask: Removes the secrets from a text.
    """

    only_collects = True
    """It shows nothing, so somebody else has to."""

    def __init__(self, loggers: list[logging.Logger], mask: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._loggers, self._mask = loggers, mask
        self._last: logging.LogRecord | None = None
        self._collected: dict[tuple[str, str], LoggedWarning] = {}
        for logger in loggers:
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Record it, once: one of the loggers may be the parent of another."""
        if record is self._last:
            return
        self._last = record
        try:
            text = self._mask(record.getMessage())[:MAX_WARNING_LENGTH]
        except Exception:
            self.handleError(record)
            return
        key = (record.levelname, text)
        if key in self._collected:
            warning = self._collected[key]
            self._collected[key] = LoggedWarning(text, warning.at, record.levelname, warning.times + 1)
        elif len(self._collected) < MAX_WARNINGS:
            self._collected[key] = LoggedWarning(text, record.created, record.levelname)

    def warnings(self) -> tuple[LoggedWarning, ...]:
        """Return the warnings so far."""
        return tuple(self._collected.values())

    def close(self) -> None:
        """Stop collecting."""
        for logger in self._loggers:
            logger.removeHandler(self)
        self._last = None
        super().close()


def costs_of(report: Report, evaluating: Container[str]) -> Iterator[HookCost]:
    """Yield the cost of each hook, the most expensive first; of a run that ends, what its log has told.

    Args:
        report: The report of the run.
        evaluating: Names of the hooks whose time includes evaluations.
    """
    for name, tally in (report.logged or report.hooks()).items():
        if tally.calls:
            p99 = tally.percentile(0.99)
            yield HookCost(name, tally.calls, tally.total, tally.mean, p99, tally.worst, name in evaluating)


def memory_facts() -> dict[str, str]:
    """Return the memory in use, as texts by name."""
    from ignite_hooks.measure.machine import memory_of_machine, memory_of_process

    found = memory_of_process() | memory_of_machine() | peak_of_gpu()
    machine = f"{found['memory/percent']:.0f} % in use, {found['memory/available_mb'] / 1024:.1f} GB free"
    words = {"memory of this process": f"{found['memory/process_mb']:,.0f} MB", "memory of the machine": machine}
    if found["memory/children_mb"] >= 1:
        words["memory of its workers"] = f"{found['memory/children_mb']:,.0f} MB"
    if "memory_mb" in found:
        words["peak of the GPU"] = f"{found['memory_mb']:,.0f} MB"
    return words


def config_as_yaml(config: Any, masks: Masks) -> str:
    """Return a configuration as YAML without its secrets; empty if there is none."""
    if not isinstance(config, Mapping) or not config:
        return ""
    import yaml

    text: str = yaml.safe_dump(yaml_value(masks.tree(config)), sort_keys=False, allow_unicode=True, width=110)
    return masks.text(text)


def yaml_value(value: Any, depth: int = 0) -> Any:
    """Return a value that YAML can hold; objects become text.

    Example:
        >>> yaml_value({"hooks": ({"path": Path("a")}, object)})
        {'hooks': [{'path': 'a'}, "<class 'object'>"]}
    """
    if depth < 30 and isinstance(value, Mapping):
        return {str(key): yaml_value(item, depth + 1) for key, item in value.items()}
    if depth < 30 and isinstance(value, (list, tuple)):
        return [yaml_value(item, depth + 1) for item in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    return str(value) if isinstance(value, Path) else shown(value, 200)


# -- words ---------------------------------------------------------------------------------------------------


def nonfinite_lines(history: CurveSet) -> list[str]:
    """Return a line for each number with values that are NaN or infinite."""
    return [
        f"{one.name}: {one.not_finite:,} of {one.not_finite + one.size:,} values are NaN or infinite"
        for one in history.series.values()
        if one.not_finite and not is_resource(one)
    ]


def counted_if_any(number: int, thing: str) -> str:
    """Return a number of things, or an empty text for none."""
    return counted(number, thing) if number else ""


def position(epoch: int | None, step: int) -> str:
    """Return an epoch, if known, and an iteration in words."""
    return f"iteration {step:,}" if epoch is None else f"epoch {epoch}, iteration {step:,}"


def moment(at: float, *, day: bool = True) -> str:
    """Return a point in time as a clock shows it, with ``day`` after its date and before the name of its zone."""
    return time.strftime("%d %b %Y, %H:%M:%S %Z" if day else "%H:%M:%S", time.localtime(at)).rstrip()


def shares(page: RunPage) -> list[tuple[str, float]]:
    """Return the share of each phase of an iteration: those of the timer, else those it has written to the log."""
    found = page.shares or dict(logged_shares(page.history))
    return [(name, share) for name, share in found.items() if share > 0]
