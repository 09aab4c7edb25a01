"""Says how training goes: a line for people, numbers for the writers."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.losses import Window, cuda_memory, epoch_of, learning_rates, scalars_of
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.run.runner import losses_of
from ignite_hooks.text import clock, columns, number, out_of, padded

if TYPE_CHECKING:
    from pathlib import Path

    from ignite_hooks.run.best import Record
    from ignite_hooks.run.runner import Runner

LINE = "%(asctime)s  %(levelname)-7s  %(message)s"
RATES_SHOWN = 3


@settings
class LoggerHook(BaseHook):
    """Log losses, learning rates, speed and the results of evaluations.

    Where nobody has set up logging, the lines go to stderr; rank 0 also keeps them in ``logs`` of the work directory.

    Args:
        interval: How many iterations lie between two lines; a line shows the mean of the losses since the one before.
        by_epoch: Whether iterations are shown and losses are averaged within their epoch, or throughout the run.
        log_metric_by_epoch: Whether the results of an evaluation are shown with the epoch, or with the iteration.
        ignore_last: Whether the rest of an epoch that is shorter than the interval is left out.

    Reads: outputs, optimizer, metrics, best, timer.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    interval: Annotated[int, Ge(1)] = 50
    by_epoch: bool = True
    log_metric_by_epoch: bool = True
    ignore_last: bool = True
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.monotonic)

    # There before the first line of any hook and until after the last; an epoch is reported before its evaluation.
    point_priority: ClassVar[Mapping[str, int]] = {
        "before_run": 0,
        "after_train_epoch": 100,
        "after_run": 0,
        "cleanup": 0,
    }

    def __post_init__(self) -> None:
        self._window = Window()
        self._handlers: list[logging.Handler] = []
        self._undo_level: Callable[[], None] | None = None
        self._began = 0.0
        self._began_at_time = 0.0
        self._logged_at = 0

    @property
    def when(self) -> When:
        """By iterations, whatever ``by_epoch`` says of the statistics."""
        return When(self.interval, "iter")

    def before_run(self, runner: Runner) -> None:
        self._window.clear()
        self._began, self._began_at_time, self._logged_at = self.clock(), time.time(), 0
        if is_main_process():
            self._open(runner)

    def before_train_epoch(self) -> None:
        if self.by_epoch:
            self._window.clear()

    def after_train_iter(self, outputs: Any) -> None:
        self._window.add(outputs)

    @at("after_train_iter", scheduled=True)
    def log_iteration(self, runner: Runner, optimizer: Any = None, timer: Any = None) -> None:
        """Log what was measured since the last line."""
        self._log(runner, optimizer, timer)

    def after_train_epoch(self, runner: Runner, optimizer: Any = None, timer: Any = None) -> None:
        # In an epoch that is shorter than the interval nothing else would be logged.
        if self.by_epoch and (not self.ignore_last or runner.batch_idx + 1 < self.interval):
            self._log(runner, optimizer, timer)
        self._report(runner, "train", beside=losses_of(runner.outputs))

    def after_val_epoch(self, runner: Runner) -> None:
        self._report(runner, "val")

    def after_test_epoch(self, runner: Runner) -> None:
        self._report(runner, "test")

    def after_train(self, runner: Runner, optimizer: Any = None, timer: Any = None) -> None:
        if not self.by_epoch and (not self.ignore_last or runner.global_step < self.interval):
            self._log(runner, optimizer, timer)

    def after_run(self, runner: Runner) -> None:
        if is_main_process():
            took = self.clock() - self._began
            rows = summary(runner, took, self._began_at_time)
            runner.logger.info("%s", "\n".join(["summary", *(f"  {line}" for line in columns(rows))]))

    def cleanup(self, runner: Runner) -> None:
        logger = logger_of(runner)
        for handler in self._handlers:
            logger.removeHandler(handler)
            handler.close()
        self._handlers.clear()
        if self._undo_level is not None:
            self._undo_level()
            self._undo_level = None

    def _log(self, runner: Runner, optimizer: Any, timer: Any) -> None:
        """What has come together since the last line."""
        seen, self._window = self._window, Window()
        if runner.global_step == self._logged_at or not is_main_process():
            return
        self._logged_at = runner.global_step
        losses, rates, memory = seen.means(), learning_rates(optimizer), cuda_memory()
        figures = timer.figures() if hasattr(timer, "figures") else {}
        scalars = losses | rates | memory
        if scalars:
            runner.writer.write_measured(scalars, runner.global_step, kind="train", epoch=epoch_of(runner))
        words = [f"{name} {number(value)}" for name, value in losses.items()]
        words += [*rates_in_words(rates), *figures_in_words(figures)]
        words += [f"memory {value:.0f} MB" for value in memory.values()]
        runner.logger.info("  ".join([self._place(runner), *words]))

    def _report(self, runner: Runner, kind: str, beside: Mapping[str, Any] | None = None) -> None:
        """What an engine has measured in its epoch."""
        name, metrics, scalars = scalars_of(runner, kind, beside or {})
        if not metrics or not is_main_process():
            return
        runner.writer.write_measured(scalars, runner.global_step, kind=kind, epoch=epoch_of(runner))
        by_epoch = self.log_metric_by_epoch
        epoch, iteration = padded(epoch_of(runner), runner.max_epochs), padded(runner.global_step, runner.max_iters)
        words = [f"{name:<5}", f"epoch {epoch}" if by_epoch else f"iter {iteration}"]
        words += [f"{key} {number(value)}" for key, value in metrics.items()]
        words += [f"({in_words(key, best)})" for key, best in runner.best.items() if _belongs(key, name, kind, metrics)]
        runner.logger.info("  ".join(words))

    def _place(self, runner: Runner) -> str:
        """Where the run is: ``Epoch  3/10 [ 150/500]`` or ``Iter 1650/5000``."""
        if self.by_epoch:
            epoch = out_of(epoch_of(runner), runner.max_epochs)
            return f"Epoch {epoch} [{out_of(runner.batch_idx + 1, runner.epoch_length)}]"
        return f"Iter {out_of(runner.global_step, runner.max_iters)}"

    def _open(self, runner: Runner) -> None:
        logger = logger_of(runner)
        if logger.name == LOGGER_NAME:
            if not is_heard(logger):
                self._add(logger, logging.StreamHandler())
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.INFO)
                self._undo_level = lambda: logger.setLevel(logging.NOTSET)
        folder = runner.work_dir / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%d_%H%M%S')}.log"
        self._add(logger, LogFile(path, encoding="utf-8", delay=True))

    def _add(self, logger: logging.Logger, handler: logging.Handler) -> None:
        handler.setFormatter(logging.Formatter(LINE, "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(handler)
        self._handlers.append(handler)


class LogFile(logging.FileHandler):
    """A log file whose disk may fill up: it says so once and is silent from then on."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Not with a traceback for every line, as logging would."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif self.level <= logging.CRITICAL:
            self.setLevel(logging.CRITICAL + 1)
            print(f"the log is not written any more: {error}: {self.baseFilename}", file=sys.stderr)

    def close(self) -> None:
        """What is still in memory is lost where the disk is full; the file is closed all the same."""
        with contextlib.suppress(OSError):
            super().close()


def logger_of(runner: Runner) -> logging.Logger:
    """The logger behind the runner's, which handlers can be added to."""
    logger = runner.logger
    behind = logger.parent if isinstance(logger, logging.Logger) else None
    return behind or logging.getLogger(LOGGER_NAME)


def is_heard(logger: logging.Logger) -> bool:
    """Whether anybody has set up logging for this logger."""
    current: logging.Logger | None = logger
    while current is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False


def rates_in_words(rates: Mapping[str, float]) -> Iterator[str]:
    """A few learning rates one by one, of many the range."""
    if len(rates) <= RATES_SHOWN:
        yield from (f"{name} {rate:.2e}" for name, rate in rates.items())
    else:
        yield f"lr {min(rates.values()):.2e} to {max(rates.values()):.2e}"


def figures_in_words(figures: Mapping[str, float]) -> Iterator[str]:
    """What the timer has to say."""
    for name in ("time", "data"):
        seconds = figures.get("time/iter" if name == "time" else "time/data")
        if seconds is not None:
            yield f"{name} {seconds:6.2f} s" if seconds >= 1 else f"{name} {seconds * 1e3:5.1f} ms"
    if "time/eta" in figures:
        yield f"eta {clock(figures['time/eta'])}"


def in_words(metric: str, best: Record) -> str:
    """A score of ``runner.best``."""
    return f"best {metric} {number(best.score)} at epoch {best.epoch}"


def summary(runner: Runner, took: float, since: float) -> list[tuple[str, str]]:
    """What a run has come to: best metrics and where, how long it took, its files, what failed.

    Args:
        runner: The run.
        took: Its seconds.
        since: When it began; files that are older are not its own.
    """
    rows = []
    for metric, best in runner.best.items():
        words = [f"{number(best.score)} at epoch {best.epoch}, iteration {best.step}"]
        rows.append((f"best {metric}", ", ".join(words + ([best.file] if best.file else []))))
    failures = {name: record.count for name, record in runner.report().failures.items()}
    failures |= {name: record["count"] for name, record in getattr(runner.writer, "failures", dict)().items()}
    return [
        *rows,
        ("took", clock(took)),
        ("work_dir", str(runner.work_dir)),
        ("files", files_in_words(runner.work_dir, since)),
        ("failures", ", ".join(f"{name} {count}" for name, count in failures.items()) or "none"),
    ]


def files_in_words(folder: Path, since: float) -> str:
    """The files of a run: those at the top by name, of checkpoints and folders how many."""
    checkpoints, words = 0, []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # A second of grace: a file system may round.
        if path.name.startswith(".") or path.stat().st_mtime < since - 1:
            continue
        checkpoints += path.suffix == ".pth"
        if path.suffix != ".pth":
            words.append(f"{path.name}/" if path.is_dir() else path.name)
    if checkpoints:
        words.insert(0, f"{checkpoints} checkpoint{'s' if checkpoints > 1 else ''}")
    return ", ".join(words) or "none"


def _belongs(ranked: str, evaluator: str, kind: str, metrics: Mapping[str, Any]) -> bool:
    """Whether what is ranked is one of these metrics of an evaluator, under either of its names.

    The plain name of a metric is that of the evaluator a run validates with, never of the one it is tested with.
    """
    own = ranked.replace("/", "_").removeprefix(f"{evaluator}_")
    return (ranked in metrics and kind != "test") or (own != ranked and own in metrics)
