"""Records the run as a ClearML task."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Gt

from ignite_hooks.checkpoint.uploads import (
    Uploads,
    details_of,
    forget_sent,
    kept_for_sending,
    named_checkpoints,
)
from ignite_hooks.distributed.collectives import is_main_process, world_size
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import Situation, settings
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.plan.schedule import parse_every
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.secrets import masked
from ignite_hooks.writers.interface import missing
from ignite_hooks.writers.trackers.clearml_script import trained_file
from ignite_hooks.writers.trackers.clearml_task import agent_has_heard_in, under_agent

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer


ABORTED = "aborted in ClearML"
"""Why a run stops that somebody has aborted on the page."""


@settings
class ClearMLHook(TrackerHook):
    """Record losses, learning rates, metrics, pictures, texts and checkpoints as a ClearML task.

    It works in a thread, so training never waits for it. A task that the script has made is used. In a task that
    is made here, ClearML captures nothing by itself, because everything would be recorded twice.

    Args:
        project: The project of a new task.
        task_name: The name of a new task; the work directory's by default.
        tags: Tags of the task.
        layout: metric: training and evaluations of a metric are curves of one plot; split: each has plots of its own.
        connect: Whether the task shows the configuration as hyper-parameters and text that can be edited, and an agent
            trains what they say.
        abort_timeout: Seconds within which a run that is aborted on the page has to be saved and closed.
        log_model: Whether checkpoints become output models: the best when it is found, the last one at the end and
            meanwhile, and what the run delivers.
        upload_every: How often the last checkpoint is uploaded meanwhile, as in 30 min; an agent on another machine
            goes on from it.
        interval: Iterations between two writings; losses are averaged over these.
        mode: auto: offline if there are no credentials or no answer; online; offline; disabled.
        log_images: Whether pictures that hooks draw go there.
        image_interval: The least number of iterations between two pictures of one name; by default all are sent.
        log_histograms: Whether histograms of weights and gradients go there.
        histogram_interval: The least number of iterations between histograms.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.

    Reads: outputs, optimizer, model, metrics, config.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    project: str | None = None
    task_name: str | None = None
    tags: Sequence[str] = ()
    layout: Literal["metric", "split"] = "metric"
    connect: bool = True
    abort_timeout: Annotated[float, Gt(0)] = 300.0
    upload_every: str = "30 min"
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        amount, unit = _how_often(self.upload_every)
        if unit != "second":
            raise SettingError("upload_every", f"a time is needed, as in '30 min', not {self.upload_every!r}")
        self._upload_seconds = float(amount)
        self._uploads = Uploads(self._upload_seconds)
        self._views: Any = None
        self._abort: Callable[[], None] | None = None
        self._closed = threading.Event()
        self._lines: Lines | None = None
        self._began = 0.0, 0

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.mode != "disabled" and (problem := missing("clearml", "clearml")):
            yield "", problem
        yield from super().check(situation)

    def before_run(self, runner: Runner, config: Any = None) -> None:
        self._views = runner.connected if self.connect else None
        self._closed.clear()
        self._uploads = Uploads(self._upload_seconds)
        if not self.log_model and self.mode not in ("offline", "disabled"):
            runner.note_once("log_model is false: nothing can be resumed from the ClearML server")
        self._began = time.monotonic(), runner.global_step

        def abort() -> None:
            runner.logger.warning(
                "the task is aborted in ClearML: the run stops after this iteration, saves and closes"
            )
            runner.stop(ABORTED)
            self._closed.wait(self.abort_timeout)

        self._abort = abort
        super().before_run(runner, config)
        if self._writer is not None and not under_agent():
            self._lines = Lines(self._writer, runner)
            logging.getLogger(LOGGER_NAME).addHandler(self._lines)

    def before_train(self, runner: Runner) -> None:
        super().before_train(runner)
        resumed, given = runner.resumed_from, runner.installation.starts_from_file
        if self._writer is not None and (path := resumed or given) is not None:
            self._writer.write_source(path, "load_from" if resumed is None else "resumed from")

    def after_save_checkpoint(self, runner: Runner, checkpoint: Mapping[str, Any], path: Path | None = None) -> None:
        super().after_save_checkpoint(runner, checkpoint, path)
        self._upload(runner)

    def _upload(self, runner: Runner, *, at_end: bool = False) -> None:
        if not self.log_model or self._writer is None:
            return
        there = named_checkpoints(runner, self._saved)
        for name, entry in self._uploads.due({name: entry for name, (_, entry) in there.items()}, at_end=at_end):
            path = kept_for_sending(runner.work_dir, there[name][0], name, entry.iteration)
            self._writer.write_model(path, name, details_of(runner, name, entry))

    def _models(self, runner: Runner) -> list[Path]:
        """Return what is left for the end: folders, which a tracker takes as archives."""
        return [path for path in super()._models(runner) if path.is_dir()]

    def cleanup(self, runner: Runner) -> None:
        if self._lines is not None:
            logging.getLogger(LOGGER_NAME).removeHandler(self._lines)
            self._lines = None
        self._upload(runner, at_end=True)
        if self._writer is not None:
            seconds, iterations = time.monotonic() - self._began[0], runner.global_step - self._began[1]
            self._writer.write_values(single_values(runner, seconds, iterations))
        super().cleanup(runner)

    def after_writers_closed(self, runner: Runner) -> None:
        super().after_writers_closed(runner)
        if self._ended is not None:
            # A test after the end is no run that could be aborted.
            self._ended.on_abort = None
        if is_main_process():
            # The other ranks send nothing, and are here while the first one may still send.
            forget_sent(runner.work_dir, "clearml")
        was_aborted = (runner.stop_reason or "").startswith(ABORTED)  # several ranks agree on "... on rank 0"
        if was_aborted and under_agent() and not ends_by_itself():
            # On all ranks: torchrun ends with the first one.
            time.sleep(agent_has_heard_in())
        self._closed.set()

    def make_writer(self, folder: Path) -> Writer:
        from ignite_hooks.writers.trackers.clearml import ClearMLWriter

        writer = ClearMLWriter(
            self.project,
            self.task_name,
            self.tags,
            layout=self.layout,
            mode=self.mode,
            on_resume=self.on_resume,
            work_dir=folder,
        )
        writer.views = self._views
        writer.on_abort, writer.abort_timeout = self._abort, self.abort_timeout
        self._abort = None
        return writer


class Lines(logging.Handler):
    """Sends the lines of the log to the console of the task.

    Args:
        writer: The writer for the task.
        runner: The run, which knows the iteration.
    """

    def __init__(self, writer: Any, runner: Runner) -> None:
        super().__init__(logging.INFO)
        self._writer, self._runner = writer, weakref.ref(runner)
        self.setFormatter(logging.Formatter("%(asctime)s  %(levelname)-7s  %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        runner = self._runner()
        self._writer.write_text("log", masked(self.format(record)), runner.global_step if runner is not None else 0)


def ends_by_itself() -> bool:
    """Return whether an agent sees by the end of this process that it was stopped: it ends so without torchrun."""
    return trained_file(sys.argv) is not None and "WORLD_SIZE" not in os.environ


def _how_often(every: str) -> tuple[float, str]:
    try:
        return parse_every(every)
    except ValueError as error:
        raise SettingError("upload_every", str(error)) from None


def single_values(runner: Runner, seconds: float, iterations: int) -> dict[str, float]:
    """Return what the table of tasks compares: best and last metrics, how long it took and how fast it was."""
    best = {f"best {name}": float(record.score) for name, record in runner.best.items()}
    speed = {"iterations per second": iterations / seconds} if seconds > 0 and iterations else {}
    size = getattr(runner.get_service("train_loader"), "batch_size", None)
    if speed and isinstance(size, int):
        speed["samples per second"] = speed["iterations per second"] * size * world_size()
    return {**runner.metrics.numbers(), **best, "seconds": seconds, **speed}
