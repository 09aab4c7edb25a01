"""Logs how training goes: lines for people, numbers for the writers."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.losses import LossReporter
from ignite_hooks.measure.pace import Pace, iterations_left
from ignite_hooks.plan.hook_settings import schedule_of
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When
from ignite_hooks.run.logger import LOGGER_NAME, SHARED, OwnLines, formatted
from ignite_hooks.run.metrics import Evaluated, evaluated
from ignite_hooks.text import clock, columns, counted, number, padded
from ignite_hooks.writers.console import evaluation_line, training_line

if TYPE_CHECKING:
    from pathlib import Path

    from ignite_hooks.run.runner import Runner


@settings
class LoggerHook(BaseHook):
    """Log losses, learning rates, speed and the results of evaluations.

    Times and the time left are those of the service ``timer``; without an IterTimerHook the hook measures the mean time
    of an iteration itself, evaluations left out, and the wait for data in some of them: eight after each line.

    Lines go to stderr if the script has not set up logging; rank 0 also keeps them in ``logs`` of the work directory.

    Args:
        interval: Iterations between two lines; a line shows the mean of the losses since the one before.
        by_epoch: Whether iterations are counted and losses averaged within their epoch, or throughout the run.
        log_metric_by_epoch: Whether the results of an evaluation are shown with the epoch, or with the iteration.
        ignore_last: Whether a rest of an epoch that is shorter than the interval gets no line.
        loss: Where the loss is in what a step returns: an index, a key or a function of it; as attach_hooks(loss=...).

    Reads: outputs, optimizer, metrics, best, timer.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    interval: Annotated[int, Ge(1)] = 50
    by_epoch: bool = True
    log_metric_by_epoch: bool = True
    ignore_last: bool = True
    loss: int | str | Callable[[Any], Any] | None = None
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.monotonic)

    also_paced_by: ClassVar[tuple[str, ...]] = ("every", "start", "begin")

    # The log is open for the lines of all other hooks; the line of an epoch comes before that of its evaluation.
    point_priority: ClassVar[Mapping[str, int]] = {
        "before_run": 0,
        "after_train_epoch": 100,
        "after_run": 0,
        "cleanup": 0,
    }

    custom_points: ClassVar[Sequence[str]] = ("after_training_data",)

    def __post_init__(self) -> None:
        self._losses = LossReporter(self.when.iterations)
        self._waits: Any = None
        self._pace, self._in_epoch = Pace(lambda: self.clock()), False
        self._opened = contextlib.ExitStack()
        self._began = 0.0
        self._began_at_time = 0.0
        self._is_main = True

    @property
    def when(self) -> When:
        """Its interval counts iterations, even if ``by_epoch`` is set, which is about the averages."""
        return schedule_of(self, by_epoch=False)

    def attached(self) -> None:
        self.runner.loss_source.choose(self.loss, self.name or type(self).__name__)

    def before_run(self, runner: Runner) -> None:
        self._losses.begin(runner)
        self._began, self._began_at_time = self.clock(), time.time()
        self._is_main = is_main_process()
        if self._is_main:
            self._open(runner)

    def before_train(self, runner: Runner) -> None:
        self._pace.begin(runner.global_step)
        self._waits = runner.installation.data_waits(lambda: self.clock()) if self._is_main else None

    def before_train_epoch(self, runner: Runner, timer: Any = None) -> None:
        if self.by_epoch:
            self._losses.restart()
            self._pace.restart(runner.global_step)
        self._pace.resume()
        self._measure_waits(timer)

    def after_train_iter(self, outputs: Any) -> None:
        self._losses.add(outputs)

    @property
    def quiet_calls(self) -> Mapping[Callable[..., Any], Callable[..., object]]:
        return {LoggerHook.after_train_iter: self._losses.add}

    @at("after_train_iter", scheduled=True)
    def log_iteration(self, runner: Runner, optimizer: Any = None, timer: Any = None) -> None:
        """Log what was measured since the last line."""
        self._log(runner, optimizer, timer)

    def after_train_epoch(self, runner: Runner, optimizer: Any = None, timer: Any = None) -> None:
        # Nothing else is logged in an epoch that is shorter than the interval.
        rest = self.by_epoch and (not self.ignore_last or self._losses.is_overdue(runner, self.when.unit == "iter"))
        if self.when.due(runner.epoch + 1) if self.when.unit == "epoch" else rest:
            self._log(runner, optimizer, timer)
        self._pace.pause()
        self._report(runner, "train")

    def before_val(self) -> None:
        self._in_epoch = self._pace.pause()

    def after_val(self) -> None:
        if self._in_epoch:
            self._pace.resume()

    before_test, after_test = before_val, after_val

    def after_val_epoch(self, runner: Runner) -> None:
        self._report(runner, "val")

    def after_test_epoch(self, runner: Runner) -> None:
        self._report(runner, "test")

    def after_training_data(self, runner: Runner, measured: Evaluated) -> None:
        """Log the metrics of an evaluator that the script has run over the training data."""
        self._write(runner, measured, "train")

    def after_train(self, runner: Runner, optimizer: Any = None, timer: Any = None) -> None:
        if not self.by_epoch and (not self.ignore_last or runner.global_step < self.when.iterations):
            self._log(runner, optimizer, timer)

    def after_run(self, runner: Runner) -> None:
        if is_main_process():
            took = self.clock() - self._began
            rows = summary(runner, took, self._began_at_time)
            runner.logger.info("%s", "\n".join(["summary", *(f"  {line}" for line in columns(rows))]))

    def cleanup(self, runner: Runner) -> None:
        self._losses.end()
        if self._waits is not None:
            self._waits.stop()
            self._waits = None  # it knows the trainer, which the hook may outlive
        self._opened.close()

    def _log(self, runner: Runner, optimizer: Any, timer: Any) -> None:
        """Log what was measured since the last line."""
        if not self._is_main:
            self._losses.restart()
            return
        remaining = iterations_left(runner.trainer_state, runner.state.length_offset)
        measured = self._pace.figures(runner.global_step, remaining)
        if measured and self._waits is not None and (wait := self._waits.mean()) is not None:
            measured["time/data"] = min(wait, measured["time/iter"])
        self._measure_waits(timer)
        found = self._losses.report(runner, optimizer)
        if found is None:
            return
        figures = timer.figures() if hasattr(timer, "figures") else measured
        if found.scalars:
            runner.writer.write_measured(found.scalars, found.step, kind="train", epoch=found.epoch)
        if self.by_epoch:
            batch = found.step - runner.state.epoch_began_at
            places = {"Epoch": (found.epoch, found.max_epochs), "": (batch, found.epoch_length)}
        else:
            places = {"Iter": (found.step, runner.max_iters)}
        runner.logger.info(training_line(places, found.losses, found.rates, found.memory, figures))

    def _measure_waits(self, timer: Any) -> None:
        if self._waits is not None and not hasattr(timer, "figures"):
            self._waits.measure(self.when.iterations)

    def _report(self, runner: Runner, kind: str) -> None:
        """Log the metrics of an engine at the end of its epoch."""
        if is_main_process():
            self._write(runner, evaluated(runner, kind), kind)

    def _write(self, runner: Runner, found: Evaluated, kind: str) -> None:
        if not self._is_main or not (found.metrics or found.results):
            return
        runner.writer.write_measured(found.scalars, found.step, kind=kind, epoch=found.epoch)
        found.write_results(runner.writer.write_measured_result, kind)
        epoch, iteration = padded(found.epoch, runner.max_epochs), padded(found.step, runner.max_iters)
        place = f"epoch {epoch}" if self.log_metric_by_epoch else f"iter {iteration}"
        best = {
            key: (record.score, record.epoch)
            for key, record in runner.best.items()
            if _belongs(key, found.name, kind, found.metrics)
        }
        runner.logger.info(evaluation_line(found.name, place, found.short, best))

    def _open(self, runner: Runner) -> None:
        logger = logger_of(runner)
        if logger.name == LOGGER_NAME:
            self._opened.enter_context(SHARED.heard())
        folder = runner.work_dir / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        file = LogFile(folder / f"{time.strftime('%Y%m%d_%H%M%S')}.log", encoding="utf-8", delay=True)
        own = OwnLines(getattr(runner.logger, "number", None))
        self._opened.enter_context(own.opened())
        file.addFilter(own)
        logger.addHandler(formatted(file))
        self._opened.callback(file.close)
        self._opened.callback(logger.removeHandler, file)


class LogFile(logging.FileHandler):
    """A log file that reports a full disk once and is silent from then on."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Print one line, where logging would print a traceback for every record."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif self.level <= logging.CRITICAL:
            self.setLevel(logging.CRITICAL + 1)
            print(f"the log is not written any more: {error}: {self.baseFilename}", file=sys.stderr)

    def close(self) -> None:
        """Close the file; buffered lines are lost if the disk is full."""
        with contextlib.suppress(OSError):
            super().close()


def logger_of(runner: Runner) -> logging.Logger:
    """Return the logger behind that of the runner, to which handlers can be added."""
    logger = runner.logger
    behind = logger.parent if isinstance(logger, logging.Logger) else None
    return behind or logging.getLogger(LOGGER_NAME)


def summary(runner: Runner, took: float, since: float) -> list[tuple[str, str]]:
    """Return the summary of a run: best metrics, time, files and failures.

    Args:
        runner: The run.
        took: Its duration in seconds.
        since: The time of its start; older files are left out.
    """
    rows = []
    for metric, best in runner.best.items():
        words = [f"{number(best.score)} at epoch {best.epoch}, iteration {best.step}"]
        rows.append((f"best {metric}", ", ".join(words + ([best.file] if best.file else []))))
    delivered = runner.state.delivered
    if delivered is not None:
        rows.append(("delivered", delivered.in_words))
    failures = {name: record.count for name, record in runner.report().failures.items()}
    failures |= {name: record["count"] for name, record in runner.writer.failures().items()}
    return [
        *rows,
        ("took", clock(took)),
        ("work_dir", str(runner.work_dir)),
        ("files", files_in_words(runner.work_dir, since)),
        ("failures", ", ".join(f"{name} {count}" for name, count in failures.items()) or "none"),
    ]


def files_in_words(folder: Path, since: float) -> str:
    """Return the files and folders of a run by name, and the number of checkpoints."""
    checkpoints, words = 0, []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # One second of tolerance, because a file system may round times.
        if path.name.startswith(".") or path.stat().st_mtime < since - 1:
            continue
        checkpoints += path.suffix == ".pth"
        if path.suffix != ".pth":
            words.append(f"{path.name}/" if path.is_dir() else path.name)
    if checkpoints:
        words.insert(0, counted(checkpoints, "checkpoint"))
    return ", ".join(words) or "none"


def _belongs(ranked: str, evaluator: str, kind: str, metrics: Mapping[str, Any]) -> bool:
    """Return whether a ranked metric is one of the metrics of an evaluator, under either of its names.

    The plain name of a metric is that of a validation, never of a test.
    """
    own = ranked.replace("/", "_").removeprefix(f"{evaluator}_")
    return (ranked in metrics and kind != "test") or (own != ranked and own in metrics)
