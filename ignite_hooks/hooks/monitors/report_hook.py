"""Writes a page that reports on a run, during the run and afterwards."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.environment import environment_facts
from ignite_hooks.measure.phases import phase_shares
from ignite_hooks.plan.hook_settings import schedule_of
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled
from ignite_hooks.report.curves import CurveSet
from ignite_hooks.report.data import (
    LoggedWarning,
    RunPage,
    ShownResult,
    WarningCollector,
    best_scores,
    config_as_yaml,
    costs_of,
    memory_facts,
    moment,
)
from ignite_hooks.report.media import newest_media
from ignite_hooks.report.page import render
from ignite_hooks.report.pictures import PictureFinder
from ignite_hooks.results.outcome import State, is_stop
from ignite_hooks.results.result import read_result
from ignite_hooks.run.logger import loggers_of
from ignite_hooks.run.metrics import evaluated
from ignite_hooks.run.progress import outcome_now
from ignite_hooks.run.state import Phase
from ignite_hooks.store.files import explain, write_whole
from ignite_hooks.text import one_line
from ignite_hooks.writers.interface import full_name

if TYPE_CHECKING:
    from ignite_hooks.results.result import RecordedTest
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.jsonl import Tail

FILE_NAME = "report.html"
MAX_TRACE_LENGTH = 8000
"""Maximum number of characters of a traceback."""
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

    Reads: metrics.jsonl, best, config, plan, timer, pictures in visualization, sounds and videos in media, warnings.
    Writes: report.html.
    """

    interval: Annotated[int, Ge(1)] = 50
    max_share: Annotated[float, Gt(0), Le(1)] = 0.01
    pictures: Annotated[int, Ge(0)] = 12
    # First before a run or an evaluation, last after it: the page shows what other hooks decide and write.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.perf_counter)

    also_paced_by: ClassVar[tuple[str, ...]] = ("every", "start", "begin")
    custom_points: ClassVar[Sequence[str]] = ("after_writers_closed", "after_late_test")

    # After other hooks have closed their files, before the log is closed.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train": 100, "cleanup": 1}

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._began = 0.0
        self._next = 0.0
        self._state: State = "running"
        self._reason = self._trace = ""
        self._history = CurveSet()
        self._tail: Tail | None = None
        self._pictures = PictureFinder()
        self._results: dict[str, ShownResult] = {}
        self._tests: Mapping[str, RecordedTest] = {}
        self._collector: WarningCollector | None = None
        self._warnings: tuple[LoggedWarning, ...] = ()
        self._is_behind = False
        self._told: Any = None
        self._environment: dict[str, str] = {}

    @property
    def when(self) -> When:
        """Its interval counts iterations; the page is checked after every epoch besides."""
        return schedule_of(self, by_epoch=False)

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
        self._keep_results(runner, "val")
        self._write_if_due(runner)

    def after_test_epoch(self, runner: Runner) -> None:
        self._keep_results(runner, "test")
        # A test after the run belongs to its report.
        self._next = 0.0 if self._state != "running" else self._next
        self._write_if_due(runner)

    def after_epoch(self, runner: Runner) -> None:
        self._write_if_due(runner)

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        self._reason = runner.masks.text(one_line(exception))
        if is_stop(exception):
            self._state = "stopped"
            return
        lines = runner.masks.text("".join(traceback.format_exception(exception)))
        self._trace = lines if len(lines) <= MAX_TRACE_LENGTH else f"…{lines[-MAX_TRACE_LENGTH:]}"
        self._state = "failed"

    def cleanup(self, runner: Runner) -> None:
        """Write the page of a run that has ended, before trackers may be waited for."""
        try:
            if self._tail is not None:
                self._end(runner)
                self._write(runner)
        finally:
            if runner.state.phase is not Phase.CLOSING:
                # It was removed from a run that goes on.
                self._stop_collecting()

    def after_writers_closed(self, runner: Runner) -> None:
        """Write the page again if trackers or pictures had a problem at their end."""
        told = self._told
        self._stop_collecting()
        if self._tail is not None and self._problems(runner) != told:
            self._write(runner)

    def after_late_test(self, runner: Runner) -> None:
        """Write the page again with a test after the end."""
        found = read_result(runner.work_dir)
        if self._tail is not None and found is not None:
            self._tests = found.tests
            self._write(runner)

    def switched_off(self) -> None:
        """Collect no more warnings."""
        self._stop_collecting()

    def _keep_results(self, runner: Runner, kind: str) -> None:
        """Keep what the evaluation that has just ended found beside numbers."""
        if self._tail is not None:
            found = evaluated(runner, kind)
            for name, result in found.results.items():
                shown = ShownResult(kind, found.step, found.epoch, runner.masks.tree(result.to_json()))
                self._results[full_name(name, kind)] = shown
                self._history.of_classes |= {full_name(f"{name}/{entry}", kind) for entry in result.of_classes()}

    def _problems(self, runner: Runner) -> Any:
        """Return the warnings and failures that a page shows now, and the addresses that trackers have told."""
        warnings = self._collector.warnings() if self._collector is not None else self._warnings
        return warnings, runner.writer.failures(), runner.writer.pages()

    def _end(self, runner: Runner) -> None:
        """Set the state and the reason with which the run has ended."""
        if self._state in ("failed", "stopped"):
            return
        outcome = outcome_now(runner)
        self._state, self._reason = outcome.state, runner.masks.text(outcome.reason)

    def _stop_collecting(self) -> None:
        collector, self._collector = self._collector, None
        if collector is not None:
            self._warnings = collector.warnings()
            collector.close()

    # -- the page ---------------------------------------------------------------------------------------------

    def _write_if_due(self, runner: Runner) -> None:
        if self._tail is not None and self.clock() >= self._next:
            self._write(runner)

    def _write(self, runner: Runner) -> None:
        began = self.clock()
        self._told = self._problems(runner)
        text = render(self._page(runner))
        path = runner.work_dir / FILE_NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode("utf-8", "replace"))
            self._is_behind = False
        except OSError as error:
            # A disk that is full may have room later: the next page is written as usual.
            if not self._is_behind:
                runner.logger.warning("%s cannot be written: %s; it is tried again", path, explain(error, path.parent))
            self._is_behind = True
        ended = self.clock()
        self._next = ended + (ended - began) / self.max_share

    def _page(self, runner: Runner) -> RunPage:
        mask = runner.masks.text
        report: Report = runner.report()
        timer, delivered = runner.get_service("timer"), runner.state.delivered
        figures = timer.figures() if self._state == "running" and hasattr(timer, "figures") else {}
        evaluating = {name for name, hook in runner.hooks.registered.items() if getattr(hook, "evaluates", None)}
        rows, again = self._tail.new() if self._tail is not None else ([], False)
        if again:
            self._history.series.clear()
        self._history.add(rows)
        self._results |= tables_in(rows, runner, self._history.since)
        pictures, besides = self._newest_pictures(runner)
        # A tracker may get its first numbers later.
        lost = runner.writer.problem_lines() if self._state != "running" else failed_writers(runner)
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
            best=best_scores(runner.best, delivered),
            delivered="" if delivered is None else mask(str(delivered)),
            delivered_file=None if delivered is None else delivered.file,
            history=self._history,
            results=dict(self._results),
            tests=self._tests,
            shares=phase_shares(timer.seconds()) if hasattr(timer, "seconds") else {},
            costs=list(costs_of(report, evaluating)),
            plan=[{name: mask(cell) for name, cell in row.items()} for row in runner.plan.rows()],
            pictures=pictures,
            pictures_besides=besides,
            media=newest_media(runner.work_dir, self._history.since - 1),
            config=config_as_yaml(runner.get_service("config"), runner.masks),
            environment={
                **{name: mask(text) for name, text in self._environment.items()},
                "began": moment(self._began),
                "work directory": mask(str(runner.work_dir)),
            },
            memory=memory_facts(),
            links={name: mask(address) for name, address in runner.writer.pages().items()},
            files=[name for name in LINKED_FILES if (runner.work_dir / name).exists()],
            failures=[line for line in map(mask, [*report.failure_lines(), *lost]) if not self._ended_the_run(line)],
            findings=[mask(line) for line in report.finding_lines()],
            warnings=self._collector.warnings() if self._collector is not None else self._warnings,
        )

    def _ended_the_run(self, line: str) -> bool:
        """Return whether a failure is the one that ended the run."""
        return self._state == "failed" and line.partition(": ")[2] in self._reason

    def _newest_pictures(self, runner: Runner) -> tuple[list[Any], int]:
        if not self.pictures:
            return [], 0
        others = (getattr(hook, "out_dir", None) for hook in runner.hooks.values())
        folders = [runner.work_dir / "visualization", *((runner.work_dir / (path or "")) for path in others if path)]
        # A second of grace: a file system may round.
        return self._pictures.newest(folders, runner.work_dir, self.pictures, self._history.since - 1)


def tables_in(rows: Sequence[Mapping[str, Any]], runner: Runner, since: float) -> dict[str, ShownResult]:
    """Return the tables that were written beside evaluations, by ``write_table``.

    Args:
        rows: New lines of ``metrics.jsonl``.
        runner: The run.
        since: Lines before this time belong to another run.
    """
    found = {}
    for row in rows:
        content = row.get("result")
        if row.get("kind") != "train" or row.get("time", 0) < since or not isinstance(content, Mapping):
            continue
        if content.get("kind") == "table" and isinstance(row.get("step"), int):
            found[str(row["name"])] = ShownResult("train", row["step"], None, runner.masks.tree(content))
    return found


def failed_writers(runner: Runner) -> list[str]:
    """Return a line for each writer that has failed so far."""
    failures = runner.writer.failures()
    return [line for line in runner.writer.problem_lines() if line.split()[1] in failures]
