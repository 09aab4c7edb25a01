"""Shows a run in a notebook as one panel."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import RunInterrupted
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.losses import is_number
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled
from ignite_hooks.report.curves import CurveSet
from ignite_hooks.report.data import LoggedWarning, WarningCollector, best_scores
from ignite_hooks.report.panel import EpochTable, Panel, panel_html, panel_text
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.run.logger import OffScreen, loggers_of
from ignite_hooks.run.metrics import evaluated, numbers_of
from ignite_hooks.run.progress import outcome_now
from ignite_hooks.run.state import Phase
from ignite_hooks.terminal import in_notebook
from ignite_hooks.text import one_line

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.jsonl import Tail

Show = Callable[[Mapping[str, str], str, bool], None]
LINKED_FILES = {"report": "report.html", "log": "logs", "metrics": "metrics.jsonl"}


@settings
class NotebookHook(BaseHook):
    """Show a run in a notebook as one panel: progress, a table of epochs, curves, warnings, and how it ended.

    It takes the place of log lines on the screen; the log file has them all. The panel needs no script, so it
    can be read where nobody trusts the notebook. In a terminal, a script or a pipe the hook does nothing, and the lines
    of the log are shown.

    Its numbers are those of ``metrics.jsonl``, which ``LoggerHook`` writes; without one, those of evaluations and the
    losses of the last iteration of each epoch.

    Args:
        refresh: Minimum number of seconds between two updates.
        interrupt: How the stop button leaves ``run`` after the iteration has ended and the run is saved: ``raise`` a
            KeyboardInterrupt of one line, so that the cells below do not run, or ``return``.

    Reads: metrics.jsonl, best, timer, outputs, warnings.
    """

    refresh: Annotated[float, Ge(0.5)] = 0.5
    interrupt: Literal["raise", "return"] = "raise"
    # After everything else of an epoch, an evaluation or the end of a run: the panel shows what other hooks decide.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.monotonic)
    show: Show | None = field(init=False, repr=False, default=None)

    # At the start right after the log is opened, and in time to see what was resumed.
    point_priority: ClassVar[Mapping[str, int]] = {"before_run": 1, "before_train": 100, "cleanup": 1}
    custom_points: ClassVar[tuple[str, ...]] = ("after_writers_closed",)
    may_end_a_run: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        self._off_screen: OffScreen | None = None
        self._reset()

    def _reset(self) -> None:
        self._show: Show | None = None
        self._id = ""
        self._began = self._next = self._started = 0.0
        self._first_step = 0
        self._state, self._reason, self._doing = "running", "", ""
        self._saved: tuple[str, int] | None = None
        self._history, self._table = CurveSet(), EpochTable()
        self._tail: Tail | None = None
        self._collector: WarningCollector | None = None
        self._warnings: tuple[LoggedWarning, ...] = ()
        self._findings: list[str] = []
        self._failures: list[str] = []
        self._told: Any = None
        self._pages: dict[str, str] = {}
        self._unwritten = False

    @property
    def when(self) -> When:
        """In seconds: an iteration in which the panel is not due costs nothing."""
        return When(self.refresh, "second")

    def before_run(self, runner: Runner) -> None:
        self.switched_off()
        since = self._history.since
        self._reset()
        if not is_main_process():
            return
        self._show = self.show or (display_in_notebook if in_notebook() else None)
        if self._show is None:
            return
        from ignite_hooks.writers.jsonl import Tail

        self._tail, self._history.since = Tail(runner.work_dir / "metrics.jsonl"), since
        self._started, self._began, self._first_step = time.time(), self.clock(), runner.global_step
        self._unwritten = not any("LoggerHook" in map(_name, type(hook).__mro__) for hook in runner.hooks.values())
        self._off_screen = OffScreen(getattr(runner.logger, "number", None))
        for logger in loggers_of(runner):
            self._off_screen.begin(logger)
        self._collector = WarningCollector(loggers_of(runner), runner.masks.text)
        runner.installation.at_interrupt(self._after_interrupt)

    def before_train(self, runner: Runner) -> None:
        self._began, self._first_step = self.clock(), runner.global_step
        # What an earlier run has left in the folder is shown only if this run goes on with it.
        if runner.state.resumed_from is not None:
            self._history.since = 0.0
        elif runner.global_step == 0:
            self._history.since = self._started
        self._draw(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._draw_if_due(runner)

    def before_val(self, runner: Runner) -> None:
        self._doing = f"evaluating {runner.state.evaluating or 'val'}"
        self._draw_if_due(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        if self._show is not None and self._unwritten:
            self._add(evaluated(runner, "val").metrics, "val", runner)

    def after_val(self, runner: Runner) -> None:
        self._doing = ""
        self._draw_if_due(runner)

    before_test, after_test = before_val, after_val

    def after_epoch(self, runner: Runner) -> None:
        if self._show is not None:
            self._read(runner)
            if self._unwritten:
                losses = {name: value for name, value in runner.loss_dict.items() if is_number(value)}
                self._add(losses, "train", runner)
            self._findings = runner.report().finding_lines() if self.clock() >= self._next else self._findings
        self._draw_if_due(runner)

    def after_save_checkpoint(self, path: Path, checkpoint: Mapping[str, Any]) -> None:
        self._saved = path.name, int(checkpoint["meta"]["iter"])

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        if isinstance(exception, KeyboardInterrupt):
            self._state = "interrupted"
        else:
            self._state = "stopped" if is_stop(exception) else "failed"
            self._reason = runner.masks.text(one_line(exception))

    def cleanup(self, runner: Runner) -> None:
        if runner.state.phase is not Phase.CLOSING:
            # It was removed from a run that goes on, whose lines are shown from now on.
            self.switched_off()
            return
        if self._show is None:
            return
        self._end(runner)
        report = runner.report()
        self._findings, self._failures = report.finding_lines(), report.failure_lines()
        self._draw(runner)

    def after_writers_closed(self, runner: Runner) -> None:
        """Add what went wrong while trackers were closed, and the pages of those that answered late."""
        if self._show is not None:
            lost = runner.writer.problem_lines()
            if lost or self._collected() != self._told or runner.writer.pages() != self._pages:
                self._failures = [*self._failures, *lost]
                self._draw(runner)
        self.switched_off()

    def switched_off(self) -> None:
        """Show the lines of the log again."""
        if self._off_screen is not None:
            self._off_screen.end()
        collector, self._collector, self._off_screen = self._collector, None, None
        if collector is not None:
            self._warnings = collector.warnings()
            collector.close()
        self._show = None

    # -- the panel --------------------------------------------------------------------------------------------

    def _draw_if_due(self, runner: Runner) -> None:
        if self._show is not None and self.clock() >= self._next:
            self._draw(runner)

    def _draw(self, runner: Runner) -> None:
        if self._show is None:
            return
        self._next = self.clock() + self.refresh
        self._read(runner)
        panel = self._panel(runner)
        is_new, self._id = not self._id, self._id or uuid.uuid4().hex
        self._show({"text/html": panel_html(panel), "text/plain": panel_text(panel)}, self._id, is_new)

    def _read(self, runner: Runner) -> None:
        rows, again = self._tail.new() if self._tail is not None else ([], False)
        if again:
            self._history.series.clear()
            self._table = EpochTable()
        rows = [row for row in rows if row.get("time", 0) >= self._history.since]
        self._history.add(rows)
        self._table.add(rows, self._best_epochs(runner))

    def _add(self, values: Mapping[str, Any], kind: str, runner: Runner) -> None:
        """Add numbers that nothing writes."""
        epoch, now = int(runner.trainer_state.epoch), time.time()
        line = {"step": runner.global_step, "epoch": epoch, "kind": kind, "scalars": numbers_of(values), "time": now}
        self._history.add([line])
        self._table.add([line], self._best_epochs(runner))

    def _best_epochs(self, runner: Runner) -> set[int]:
        return {one.epoch for one in runner.best.values()}

    def _panel(self, runner: Runner) -> Panel:
        mask, running = runner.masks.text, self._state == "running"
        rows, left_out = self._table.shown(self._best_epochs(runner))
        seconds, step, most = self.clock() - self._began, runner.global_step, runner.max_iters
        # A run that went on after an epoch was cut short has its epochs, and fewer iterations.
        most = step if self._state == "finished" and most is not None else most
        timer, done = runner.get_service("timer"), step - self._first_step
        figures = timer.figures() if hasattr(timer, "figures") else {}
        rate = figures.get("iters_per_s") or (done / seconds if done and seconds > 0 else None)
        left = figures.get("time/eta")
        if left is None and rate and runner.max_iters:
            left = max(0, runner.max_iters - step) / rate
        samples = figures.get("samples_per_s")
        speed = "" if rate is None else f"{_in_short(rate)} it/s"
        speed += f", {_in_short(samples)} samples/s" if speed and samples is not None else ""
        folder, links = self._places(runner.work_dir)
        self._told, self._pages = self._collected(), runner.writer.pages()
        return Panel(
            name=mask(runner.work_dir.name),
            state=self._state,
            reason=self._reason,
            doing=self._doing if running else "",
            epoch=int(runner.trainer_state.epoch),
            max_epochs=runner.max_epochs,
            iteration=step,
            max_iters=most,
            seconds=seconds,
            left=left,
            speed=speed,
            history=self._history,
            rows=rows,
            left_out=left_out,
            best=best_scores(runner.best, runner.state.delivered),
            findings=[mask(line) for line in self._findings],
            failures=[mask(line) for line in self._failures],
            warnings=self._told,
            links={name: mask(path) for name, path in links.items()},
            pages={name: mask(page) for name, page in self._pages.items()},
            folder=mask(folder),
        )

    def _collected(self) -> tuple[LoggedWarning, ...]:
        return self._warnings if self._collector is None else self._collector.warnings()

    def _places(self, work_dir: Path) -> tuple[str, dict[str, str]]:
        """Return the work directory, and links where the notebook lies above it: there they work."""
        relative = os.path.relpath(work_dir)
        if relative.startswith(".."):
            return str(work_dir), {}
        files = {name: f"{relative}/{file}" for name, file in LINKED_FILES.items() if (work_dir / file).exists()}
        return relative, files

    # -- the end ----------------------------------------------------------------------------------------------

    def _end(self, runner: Runner) -> None:
        if self._state == "running":
            outcome = outcome_now(runner)
            by_hand = outcome.state == "stopped" and "SIGINT" in outcome.reason
            self._state = "interrupted" if by_hand else outcome.state
            self._reason = runner.masks.text(outcome.reason)
        if self._state == "interrupted":
            place = f"at epoch {int(runner.trainer_state.epoch)}, iteration {runner.global_step}"
            self._reason = f"interrupted {place}; {self._words_of_save(runner)}"

    def _words_of_save(self, runner: Runner) -> str:
        """Say whether the state at the end of the run is in a file."""
        if self._saved is not None:
            name, step = self._saved
            return f"saved as {name}" if step == runner.global_step else f"the last save is {name}, of iteration {step}"
        saves = any(getattr(type(hook), "saves_checkpoints", False) for hook in runner.hooks.values())
        return "stopped at once, so nothing was saved" if saves else "nothing was saved: no CheckpointHook"

    def _after_interrupt(self) -> None:
        if self.interrupt == "raise":
            raise RunInterrupted(self._reason or "interrupted")


def _name(cls: type) -> str:
    return cls.__name__


def _in_short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def display_in_notebook(content: Mapping[str, str], display_id: str, is_new: bool) -> None:
    """Show an output of several forms, or replace it wherever it is."""
    import IPython.display

    show: Any = IPython.display.display if is_new else IPython.display.update_display
    show(dict(content), raw=True, display_id=display_id)
