"""Keeps a page that tells how a run goes, and how it went."""

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
from ignite_hooks.measure.environment import surroundings
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
    from ignite_hooks.engine.accounting import Report
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.jsonl import Tail

REPORT = "report.html"
MOST_SAID = 60
LONGEST = 2000
"""So many characters of a warning are shown, and four times as many of a traceback."""
BESIDE = ("metrics.jsonl", "logs", "config.yaml", "profile/profile_report.html")
"""What the page links to, where it is there."""


@settings
class ReportHook(BaseHook):
    """Keep ``report.html``: one page that needs no other file and tells of the run while it goes on and afterwards.

    It shows what is best and where, curves, the learning rate, pictures that other hooks have drawn, time and
    memory, what each hook cost, the plan, the configuration without its secrets, the environment, warnings and
    failures. It is written at the start, after evaluations and epochs, now and then in between, and at the end,
    however the run ends.

    Args:
        interval: How many iterations lie between two looks at whether it is time to write, besides those after
            evaluations and epochs.
        max_share: The share of the time that may be spent on the page while the run goes on.
        pictures: How many pictures are shown at most; 0 for none.

    Reads: metrics.jsonl, best, config, plan, timer, pictures in visualization, warnings.
    Writes: report.html.
    """

    interval: Annotated[int, Ge(1)] = 50
    max_share: Annotated[float, Gt(0), Le(1)] = 0.01
    pictures: Annotated[int, Ge(0)] = 12
    # Before a run and an evaluation the first, after them the last: what others decide and write is in the page.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.perf_counter)

    # After the files of the others are closed, and before the log is.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train": 100, "cleanup": 1}

    def __post_init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._began = 0.0
        self._next = 0.0
        self._state: State = "running"
        self._reason = self._trace = ""
        self._completed = False
        self._history = History()
        self._tail: Tail | None = None
        self._album = Album()
        self._ear: Ear | None = None
        self._said: tuple[Said, ...] = ()
        self._environment: dict[str, str] = {}

    @property
    def when(self) -> When:
        """By iterations."""
        return When(self.interval, "iter")

    # -- a run ------------------------------------------------------------------------------------------------

    def before_run(self, runner: Runner, model: Any = None, device: Any = None) -> None:
        from ignite_hooks.writers.jsonl import Tail

        self._let_go()
        since = self._history.since
        self._forget()
        self._history.since = since
        if not is_main_process():
            return
        self._began = time.time()
        self._tail = Tail(runner.work_dir / "metrics.jsonl")
        self._ear = Ear(loggers_of(runner), runner.masks.text)
        self._environment = surroundings(model, device)

    def before_train(self, runner: Runner) -> None:
        # What an earlier run left in the folder does not belong to this one, unless this one goes on with it.
        if runner.state.resumed_from:
            self._history.since = 0.0
        elif runner.global_step == 0:
            self._history.since = self._began
        if is_main_process():
            # What is loaded for the first page is no measure of how long the next will take.
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
        self._trace = lines if len(lines) <= 4 * LONGEST else f"…{lines[-4 * LONGEST :]}"
        self._state = "failed"

    def cleanup(self, runner: Runner) -> None:
        try:
            if self._tail is not None:
                self._end(runner)
                self._write(runner)
        finally:
            self._let_go()

    def _end(self, runner: Runner) -> None:
        """Say how the run has ended."""
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

    def _let_go(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            self._said = ear.said()
            ear.close()

    # -- the page ---------------------------------------------------------------------------------------------

    def _write_if_due(self, runner: Runner) -> None:
        if self._tail is not None and self.clock() >= self._next:
            self._write(runner)

    def _write(self, runner: Runner) -> None:
        began = self.clock()
        text = render(self._page(runner))
        path = runner.work_dir / REPORT
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
        writers: dict[str, Any] = getattr(runner.writer, "failures", dict)()
        lost = [f"writer {name} failed {one['count']} times: {one['last']}" for name, one in writers.items()]
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
            files=[name for name in BESIDE if (runner.work_dir / name).exists()],
            failures=[line for line in map(mask, [*report.failure_lines(), *lost]) if not self._is_told(line)],
            findings=[mask(line) for line in report.finding_lines()],
            warnings=self._ear.said() if self._ear is not None else self._said,
        )

    def _is_told(self, line: str) -> bool:
        """Whether a failure is the one that ended the run."""
        return self._state == "failed" and line.partition(": ")[2] in self._reason

    def _pictures(self, runner: Runner) -> tuple[list[Any], int]:
        if not self.pictures:
            return [], 0
        others = (getattr(hook, "out_dir", None) for hook in runner.hooks.values())
        folders = [runner.services["visualization_dir"], *((runner.work_dir / (path or "")) for path in others if path)]
        # A second of grace: a file system may round.
        return self._album.look(folders, runner.work_dir, self.pictures, self._history.since - 1)


class Ear(logging.Handler):
    """Hears the warnings of a run; what is said again is counted.

    Args:
        loggers: Where to listen.
        mask: Takes the secrets out of a text.
    """

    def __init__(self, loggers: list[logging.Logger], mask: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._loggers, self._mask = loggers, mask
        self._last: logging.LogRecord | None = None
        self._heard: dict[tuple[str, str], Said] = {}
        for logger in loggers:
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Note it, once: one of the loggers may be above the other."""
        if record is self._last:
            return
        self._last = record
        try:
            text = self._mask(record.getMessage())[:LONGEST]
        except Exception:
            self.handleError(record)
            return
        key = (record.levelname, text)
        if key in self._heard:
            said = self._heard[key]
            self._heard[key] = Said(text, said.at, record.levelname, said.times + 1)
        elif len(self._heard) < MOST_SAID:
            self._heard[key] = Said(text, record.created, record.levelname)

    def said(self) -> tuple[Said, ...]:
        """What was heard so far."""
        return tuple(self._heard.values())

    def close(self) -> None:
        """Listen no more."""
        for logger in self._loggers:
            logger.removeHandler(self)
        self._last = None
        super().close()


def loggers_of(runner: Runner) -> list[logging.Logger]:
    """Where warnings of a run come by: the logger behind the runner's, and ours, which writers use."""
    logger = runner.logger
    behind = (logger.parent or logger) if isinstance(logger, logging.Logger) else None
    return list(dict.fromkeys([*([behind] if behind is not None else []), logging.getLogger(LOGGER_NAME)]))


def costs_of(report: Report, runner: Runner) -> Iterator[HookCost]:
    """What each hook has cost, the dearest first."""
    for name, tally in report.hooks().items():
        if tally.calls:
            evaluates = bool(getattr(runner.hooks.registered.get(name), "evaluates", None))
            p99 = tally.percentile(0.99)
            yield HookCost(name, tally.calls, tally.total, tally.mean, p99, tally.worst, evaluates)


def memory_in_words() -> dict[str, str]:
    """What is in use now."""
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
    """The configuration as YAML, without its secrets."""
    config = runner.get_service("config")
    if not isinstance(config, Mapping) or not config:
        return ""
    import yaml

    text: str = yaml.safe_dump(readable(runner.masks.tree(config)), sort_keys=False, allow_unicode=True, width=110)
    return runner.masks.text(text)


def readable(value: Any, depth: int = 0) -> Any:
    """A value as YAML can hold it; objects are named.

    Example:
        >>> readable({"hooks": ({"path": Path("a")}, object)})
        {'hooks': [{'path': 'a'}, "<class 'object'>"]}
    """
    if depth < 30 and isinstance(value, Mapping):
        return {str(key): readable(item, depth + 1) for key, item in value.items()}
    if depth < 30 and isinstance(value, (list, tuple)):
        return [readable(item, depth + 1) for item in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    return str(value) if isinstance(value, Path) else shown(value, 200)
