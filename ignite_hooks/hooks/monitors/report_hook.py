"""Writes a page that reports on a run, during the run and afterwards."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.environment import environment_facts
from ignite_hooks.measure.losses import cuda_memory
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled
from ignite_hooks.report.curves import History
from ignite_hooks.report.page import BestScore, HookCost, RunPage, Said, State, render
from ignite_hooks.report.pictures import Album
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.store.files import write_whole
from ignite_hooks.text import one_line, shown

if TYPE_CHECKING:
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.jsonl import Tail

FILE_NAME = "report.html"
MOST_WARNINGS = 60
MAX_LENGTH = 2000
"""Maximum number of characters of a warning; of a traceback, four times as many."""
LINKED_FILES = ("metrics.jsonl", "logs", "config.yaml", "profile/profile_report.html")
"""Files that the page links to, if they exist."""


@settings
class ReportHook(BaseHook):
    """Write ``report.html``: one page that needs no other file and reports on the run while it goes on and afterwards.

    It shows the best scores and their checkpoints, curves, the learning rate, pictures of other hooks, time and
    memory, the cost of each hook, the plan, the configuration without its secrets, the environment, warnings and
    failures. It is written at the start, after evaluations and epochs, at times in between, and at the end,
    however the run ends.

    Args:
        interval: Number of iterations after which to check whether to write the page, besides the checks after
            evaluations and epochs.
        max_share: Maximum share of the time of the run that is spent on the page.
        pictures: Maximum number of pictures on the page; 0 for none.

    Reads: metrics.jsonl, best, config, plan, timer, pictures in visualization, warnings.
    Writes: report.html.
    """

    interval: Annotated[int, Ge(1)] = 50
    max_share: Annotated[float, Gt(0), Le(1)] = 0.01
    pictures: Annotated[int, Ge(0)] = 12
    # First before a run or an evaluation, last after it: the page shows what other hooks decide and write.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.perf_counter)

    # After other hooks have closed their files, before the log is closed.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train": 100, "cleanup": 1}

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._began = 0.0
        self._next = 0.0
        self._state: State = "running"
        self._reason = self._trace = ""
        self._completed = False
        self._history = History()
        self._tail: Tail | None = None
        self._album = Album()
        self._collector: WarningCollector | None = None
        self._warnings: tuple[Said, ...] = ()
        self._environment: dict[str, str] = {}

    @property
    def when(self) -> When:
        """The schedule, in iterations."""
        return When(self.interval, "iter")

    # -- a run ------------------------------------------------------------------------------------------------

    def before_run(self, runner: Runner, model: Any = None, device: Any = None) -> None:
        from ignite_hooks.writers.jsonl import Tail

        self._stop_collecting()
        since = self._history.since
        self._reset()
        self._history.since = since
        if not is_main_process():
            return
        self._began = time.time()
        self._tail = Tail(runner.work_dir / "metrics.jsonl")
        self._collector = WarningCollector(loggers_of(runner), runner.masks.text)
        self._environment = environment_facts(model, device)

    def before_train(self, runner: Runner) -> None:
        # Results of an earlier run in the folder are shown only if this run resumes it.
        if runner.state.resumed_from:
            self._history.since = 0.0
        elif runner.global_step == 0:
            self._history.since = self._began
        if is_main_process():
            # The first page also loads modules, so its time says nothing about the next.
            render(self._page(runner))
            self._write(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._write_if_due(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        self._write_if_due(runner)

    def after_test_epoch(self, runner: Runner) -> None:
        # A test after the run belongs to its report.
        self._next = 0.0 if self._state != "running" else self._next
        self._write_if_due(runner)

    def after_epoch(self, runner: Runner) -> None:
        self._write_if_due(runner)

    def after_run(self) -> None:
        self._completed = True

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        self._reason = runner.masks.text(one_line(exception))
        lines = runner.masks.text("".join(traceback.format_exception(exception)))
        self._trace = lines if len(lines) <= 4 * MAX_LENGTH else f"…{lines[-4 * MAX_LENGTH :]}"
        self._state = "failed"

    def cleanup(self, runner: Runner) -> None:
        try:
            if self._tail is not None:
                self._end(runner)
                self._write(runner)
        finally:
            self._stop_collecting()

    def _end(self, runner: Runner) -> None:
        """Set the state and the reason with which the run has ended."""
        if self._state == "failed":
            return
        asked, epoch = runner.max_epochs, runner.epoch
        self._state = "stopped"
        if runner.stop_reason:
            self._reason = runner.masks.text(runner.stop_reason)
        elif not self._completed:
            self._reason = "left before its end"
        elif asked is not None and epoch < asked and (runner.max_iters or epoch) > runner.global_step:
            self._reason = "the script ended it by terminate()"
        else:
            self._state = "finished"

    def _stop_collecting(self) -> None:
        collector, self._collector = self._collector, None
        if collector is not None:
            self._warnings = collector.warning()
            collector.close()

    # -- the page ---------------------------------------------------------------------------------------------

    def _write_if_due(self, runner: Runner) -> None:
        if self._tail is not None and self.clock() >= self._next:
            self._write(runner)

    def _write(self, runner: Runner) -> None:
        began = self.clock()
        text = render(self._page(runner))
        path = runner.work_dir / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode("utf-8", "replace"))
        ended = self.clock()
        self._next = ended + (ended - began) / self.max_share

    def _page(self, runner: Runner) -> RunPage:
        mask = runner.masks.text
        report: Report = runner.report()
        timer = runner.get_service("timer")
        figures = timer.figures() if self._state == "running" and hasattr(timer, "figures") else {}
        rows, again = self._tail.new() if self._tail is not None else ([], False)
        if again:
            self._history.series.clear()
        self._history.add(rows)
        shown_, besides = self._pictures(runner)
        failures = runner.writer.failures()
        lost = [f"writer {name} failed {one['count']} times: {one['last']}" for name, one in failures.items()]
        return RunPage(
            name=mask(runner.work_dir.name),
            state=self._state,
            reason=self._reason,
            trace=self._trace,
            began=self._began,
            written=time.time(),
            seconds=report.seconds,
            left=figures.get("time/eta"),
            epoch=runner.epoch,
            max_epochs=runner.max_epochs,
            iteration=runner.iter,
            max_iters=runner.max_iters,
            resumed_from="" if runner.state.resumed_from is None else mask(str(runner.state.resumed_from)),
            best=[BestScore(n, one.score, one.epoch, one.step, one.file) for n, one in runner.best.items()],
            history=self._history,
            costs=list(costs_of(report, runner)),
            plan=[{name: mask(cell) for name, cell in row.items()} for row in runner.plan.rows()],
            pictures=shown_,
            pictures_besides=besides,
            config=config_text(runner),
            environment={
                **{name: mask(text) for name, text in self._environment.items()},
                "began": time.strftime("%d %b %Y, %H:%M:%S %Z", time.localtime(self._began)),
                "work directory": mask(str(runner.work_dir)),
            },
            memory=memory_in_words(),
            files=[name for name in LINKED_FILES if (runner.work_dir / name).exists()],
            failures=[line for line in map(mask, [*report.failure_lines(), *lost]) if not self._ended_the_run(line)],
            findings=[mask(line) for line in report.finding_lines()],
            warnings=self._collector.warning() if self._collector is not None else self._warnings,
        )

    def _ended_the_run(self, line: str) -> bool:
        """Return whether a failure is the one that ended the run."""
        return self._state == "failed" and line.partition(": ")[2] in self._reason

    def _pictures(self, runner: Runner) -> tuple[list[Any], int]:
        if not self.pictures:
            return [], 0
        others = (getattr(hook, "out_dir", None) for hook in runner.hooks.values())
        folders = [runner.services["visualization_dir"], *((runner.work_dir / (path or "")) for path in others if path)]
        # A second of grace: a file system may round.
        return self._album.look(folders, runner.work_dir, self.pictures, self._history.since - 1)


class WarningCollector(logging.Handler):
    """A log handler that collects the warnings of a run and counts repeated ones.

    Args:
        loggers: Loggers to collect from.
        mask: Removes the secrets from a text.
    """

    def __init__(self, loggers: list[logging.Logger], mask: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._loggers, self._mask = loggers, mask
        self._last: logging.LogRecord | None = None
        self._collected: dict[tuple[str, str], Said] = {}
        for logger in loggers:
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Record it, once: one of the loggers may be the parent of another."""
        if record is self._last:
            return
        self._last = record
        try:
            text = self._mask(record.getMessage())[:MAX_LENGTH]
        except Exception:
            self.handleError(record)
            return
        key = (record.levelname, text)
        if key in self._collected:
            warning = self._collected[key]
            self._collected[key] = Said(text, warning.at, record.levelname, warning.times + 1)
        elif len(self._collected) < MOST_WARNINGS:
            self._collected[key] = Said(text, record.created, record.levelname)

    def warning(self) -> tuple[Said, ...]:
        """Return the warnings so far."""
        return tuple(self._collected.values())

    def close(self) -> None:
        """Stop collecting."""
        for logger in self._loggers:
            logger.removeHandler(self)
        self._last = None
        super().close()


def loggers_of(runner: Runner) -> list[logging.Logger]:
    """Return the loggers that receive warnings of a run: that of the runner, and that of the package."""
    logger = runner.logger
    behind = (logger.parent or logger) if isinstance(logger, logging.Logger) else None
    return list(dict.fromkeys([*([behind] if behind is not None else []), logging.getLogger(LOGGER_NAME)]))


def costs_of(report: Report, runner: Runner) -> Iterator[HookCost]:
    """Yield the cost of each hook, the most expensive first."""
    for name, tally in report.hooks().items():
        if tally.calls:
            evaluates = bool(getattr(runner.hooks.registered.get(name), "evaluates", None))
            p99 = tally.percentile(0.99)
            yield HookCost(name, tally.calls, tally.total, tally.mean, p99, tally.worst, evaluates)


def memory_in_words() -> dict[str, str]:
    """Return the memory in use, in words."""
    from ignite_hooks.measure.machine import memory_of_machine, memory_of_process

    found = memory_of_process() | memory_of_machine() | cuda_memory()
    machine = f"{found['memory/percent']:.0f} % in use, {found['memory/available_mb'] / 1024:.1f} GB free"
    words = {"memory of this process": f"{found['memory/process_mb']:,.0f} MB", "memory of the machine": machine}
    if found["memory/children_mb"] >= 1:
        words["memory of its workers"] = f"{found['memory/children_mb']:,.0f} MB"
    if "memory_mb" in found:
        words["peak of the GPU"] = f"{found['memory_mb']:,.0f} MB"
    return words


def config_text(runner: Runner) -> str:
    """Return the configuration as YAML, without its secrets."""
    config = runner.get_service("config")
    if not isinstance(config, Mapping) or not config:
        return ""
    import yaml

    text: str = yaml.safe_dump(yaml_value(runner.masks.tree(config)), sort_keys=False, allow_unicode=True, width=110)
    return runner.masks.text(text)


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
