"""The parent of the hooks for trackers: each measures at its own interval, for its own writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, Situation, settings
from ignite_hooks.measure.losses import LossReporter
from ignite_hooks.plan.hook_settings import schedule_of
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.run.imports import import_ahead
from ignite_hooks.run.metrics import Evaluated, evaluated

if TYPE_CHECKING:
    from ignite_hooks.run.late_test import LateTest
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer
    from ignite_hooks.writers.many import ManyWriters

DRAWING = "add a VisualizationHook, a HistoryPlotHook or another hook that draws"


@settings
class TrackerHook(BaseHook):
    """The parent of the hooks for trackers, which add a writer and its settings.

    Args:
        interval: Iterations between two writings.
        log_model: Whether the best checkpoints and the last one go there at the end of the run.
        log_images: Whether pictures that hooks draw go there.
        image_interval: The least number of iterations between two pictures of one name; by default all are sent.
        log_histograms: Whether histograms of weights and gradients go there.
        histogram_interval: The least number of iterations between histograms.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.
    """

    interval: Annotated[int, Ge(1)] = 50
    log_model: bool = False
    log_images: bool = True
    image_interval: Annotated[int, Ge(1)] | None = None
    log_histograms: bool = False
    histogram_interval: Annotated[int, Ge(1)] = 1000
    on_resume: Literal["same", "new"] = "same"
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"

    custom_points: ClassVar[Sequence[str]] = ("after_training_data", "after_writers_closed", "after_late_test")
    also_paced_by: ClassVar[tuple[str, ...]] = ("every", "start", "begin")

    def __post_init__(self) -> None:
        self._losses = LossReporter(self.when.iterations)
        self._sent_at = 0
        self._place: ManyWriters | None = None
        self._writer: Any = None
        self._saved: Path | None = None
        self._closing: ManyWriters | None = None
        self._ended: Any = None
        """The writer of the run that has ended, which goes on in the same run of the tracker."""

    def make_writer(self, folder: Path) -> Writer:
        """Return the writer for this run, whose files are in a folder."""
        raise NotImplementedError

    @property
    def when(self) -> When:
        """Its interval counts iterations."""
        return schedule_of(self, by_epoch=False)

    def before_run(self, runner: Runner, config: Any = None) -> None:
        self._losses.begin(runner)
        self._saved, self._sent_at = None, runner.global_step
        if not is_main_process():
            return
        self._writer = self.make_writer(runner.work_dir)
        import_ahead(self._writer.imported_ahead, self.name or type(self).__name__, runner.logger)
        every = self.image_interval or 1
        self._place = runner.writer.join(self._writer, pictures=self.log_images, pictures_every=every)
        if runner.state.resume_from:
            self._place.awaits_resume()
        elif not runner.global_step:
            # The other writers were called before this one joined.
            self._place.began_anew()
        if isinstance(config, Mapping) and config:
            self._place.write_config(config)
        self._place.write_text("plan", str(runner.plan), 0)

    def before_train(self, runner: Runner) -> None:
        # Checkpoints and their mirror bear the same id.
        if self._place is not None:
            self._place.write_text("run_id", runner.state.run_id, 0)

    def before_train_epoch(self) -> None:
        self._losses.restart()

    def after_train_iter(self, outputs: Any) -> None:
        self._losses.add(outputs)

    @at("after_train_iter", scheduled=True)
    def log_iteration(self, runner: Runner, optimizer: Any = None, model: Any = None) -> None:
        """Send what was measured since the last time."""
        self._log(runner, optimizer)
        step, before = runner.global_step, self._sent_at
        self._sent_at = step
        if self.log_histograms and self._place is not None:
            interval = self.interval if self.when.unit == "iter" else step - before
            if crossed(step, interval, self.histogram_interval):
                write_histograms(self._place, model, step)

    def after_train_epoch(self, runner: Runner, optimizer: Any = None, model: Any = None) -> None:
        when = self.when
        if when.unit == "epoch" and when.due(runner.epoch + 1):
            self.log_iteration(runner, optimizer, model)
        elif when.unit != "epoch" and self._losses.is_overdue(runner, when.unit == "iter"):
            # Nothing else is logged in an epoch that is shorter than the interval.
            self._log(runner, optimizer)
        self._report(runner, "train")

    def after_val_epoch(self, runner: Runner) -> None:
        self._report(runner, "val")

    def after_test_epoch(self, runner: Runner) -> None:
        self._report(runner, "test")

    def after_training_data(self, measured: Evaluated) -> None:
        """Write the metrics of an evaluator that the script has run over the training data."""
        self._write(measured, "train")

    def after_save_checkpoint(self, runner: Runner, checkpoint: Mapping[str, Any], path: Path | None = None) -> None:
        if "delivered" not in checkpoint.get("meta", {}):
            self._saved = path

    def on_exception(self, exception: BaseException) -> None:
        if self._writer is not None:
            self._writer.ended = "stopped" if is_stop(exception) else "failed"

    def cleanup(self, runner: Runner) -> None:
        self._losses.end()
        stopped = runner.stop_reason and runner.state.stop_kind != "planned"
        if self._writer is not None and stopped and self._writer.ended == "finished":
            self._writer.ended = "stopped"
        self._ended = self._writer
        place, self._place, self._writer = self._place, None, None
        if place is None:
            return
        if self.log_model:
            for path in self._models(runner):
                place.write_artifact(path, kind="model")
        place.write_text("summary", summary_of(runner), runner.global_step)
        self._closing = place
        runner.writer.leave(place)

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        asked = "log_images" in self.given and self.log_images
        if asked and situation.alone and situation.is_known and not situation.draws:
            yield "log_images", f"no hook of this configuration draws a picture: {DRAWING}"

    def after_writers_closed(self, runner: Runner) -> None:
        """Warn of pictures that were asked for and never drawn."""
        place, self._closing = self._closing, None
        asked = "log_images" in self.given and self.log_images
        if place is not None and asked and not place.pictures:
            runner.logger.warning(
                "%s: log_images: nothing has drawn a picture in this run: %s",
                self.name or type(self).__name__,
                DRAWING,
            )

    def after_late_test(self, runner: Runner, tested: LateTest) -> None:
        """Write the figures of a test after the end to the run of the tracker, which is opened again and closed."""
        writer = self._ended
        if self._place is None and writer is not None and can_go_on(writer, runner.logger):
            tested.write(runner.writer.join(writer, pictures=self.log_images))

    def _log(self, runner: Runner, optimizer: Any) -> None:
        """Write what was measured since the last time."""
        if self._place is None:
            self._losses.restart()
        elif (found := self._losses.report(runner, optimizer)) is not None and found.scalars:
            self._place.write_scalars(found.scalars, found.step, kind="train", epoch=found.epoch)

    def _report(self, runner: Runner, kind: str) -> None:
        """Write the metrics of an engine at the end of its epoch."""
        if self._place is not None:
            self._write(evaluated(runner, kind), kind)

    def _write(self, found: Evaluated, kind: str) -> None:
        if self._place is not None and found.scalars:
            self._place.write_scalars(found.scalars, found.step, kind=kind, epoch=found.epoch)
        if self._place is not None:
            found.write_results(self._place.write_result, kind)

    def _models(self, runner: Runner) -> list[Path]:
        """Return the files of the best checkpoints and of the last one."""
        best = [runner.work_dir / record.file for record in runner.best.values() if record.file]
        delivered = runner.state.delivered
        best += [runner.work_dir / delivered.file] if delivered is not None and delivered.file else []
        last = [] if self._saved is None else [self._saved]
        return [path for path in dict.fromkeys([*best, *last]) if path.exists()]


def can_go_on(writer: Any, logger: Any) -> bool:
    """Return whether a tracker takes more after the end of its run, and say so where it does not."""
    follow_later = getattr(writer, "follow_later", None)
    if getattr(writer, "takes_more", True) or (follow_later is not None and follow_later()):
        return True
    words = "%s has kept the run in files, which take no more: the test is in result.json and in the report"
    if getattr(writer, "mode", "") != "disabled":
        logger.info(words, type(writer).__name__)
    return False


def crossed(step: int, interval: int, every: int) -> bool:
    """Return whether a multiple of ``every`` lies after the last firing, up to this one.

    Example:
        >>> [step for step in range(40, 201, 40) if crossed(step, 40, 100)]
        [120, 200]
    """
    return step // every > (step - interval) // every


def write_histograms(place: Writer, model: Any, step: int) -> None:
    """Write the weights and gradients of a model; of a sharded one the part of this rank."""
    for name, weight in model.named_parameters() if hasattr(model, "named_parameters") else ():
        place.write_histogram(f"weights/{name}", weight, step)
        if weight.grad is not None:
            place.write_histogram(f"gradients/{name}", weight.grad, step)


def summary_of(runner: Runner) -> str:
    """Return how the run ended, as text."""
    reached, state = runner.trainer_state, runner.state
    lines = [f"epochs: {reached.epoch}", f"iterations: {reached.iteration}"]
    lines += [f"stopped: {runner.stop_reason}"] if runner.stop_reason else []
    lines += [f"best {name}: {record.score:.6g} at epoch {record.epoch}" for name, record in runner.best.items()]
    lines += [f"delivered: {state.delivered.in_words}"] if state.delivered is not None else []
    return "\n".join(lines)
