"""What the hooks for trackers have in common: each measures at its own interval, for its own place alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.losses import Window, cuda_memory, epoch_of, learning_rates, scalars_of
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When
from ignite_hooks.run.runner import losses_of

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer
    from ignite_hooks.writers.many import ManyWriters


@settings
class TrackerHook(BaseHook):
    """The parent of the hooks for trackers, which add a writer and what is special about it.

    Args:
        interval: How many iterations lie between two writings.
        log_model: Whether the best checkpoints and the last one go there at the end of the run.
        log_images: Whether pictures that hooks draw go there.
        image_interval: How many iterations lie between pictures at least.
        log_histograms: Whether histograms of weights and gradients go there.
        histogram_interval: How many iterations lie between these.
    """

    interval: Annotated[int, Ge(1)] = 50
    log_model: bool = False
    log_images: bool = True
    image_interval: Annotated[int, Ge(1)] = 1000
    log_histograms: bool = False
    histogram_interval: Annotated[int, Ge(1)] = 1000
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"

    def __post_init__(self) -> None:
        self._window = Window()
        self._place: ManyWriters | None = None
        self._writer: Any = None
        self._saved: Path | None = None
        self._logged_at = 0

    def make_writer(self, folder: Path) -> Writer:
        """The writer for this run, whose files lie in a folder."""
        raise NotImplementedError

    @property
    def when(self) -> When:
        """By iterations."""
        return When(self.interval, "iter")

    def before_run(self, runner: Runner, config: Any = None) -> None:
        self._window.clear()
        self._saved, self._logged_at = None, 0
        if not is_main_process():
            return
        self._writer = self.make_writer(runner.work_dir)
        pictures_every = self.image_interval if self.log_images else None
        self._place = runner.writer.join(self._writer, pictures_every=pictures_every)  # type: ignore[attr-defined]
        if not runner.state.resume_from and not runner.global_step:
            # The other writers were told before this one was there.
            self._place.began_anew()
        if isinstance(config, Mapping) and config:
            self._place.write_config(config)
        self._place.write_text("plan", str(runner.plan), 0)

    def before_train_epoch(self) -> None:
        self._window.clear()

    def after_train_iter(self, outputs: Any) -> None:
        self._window.add(outputs)

    @at("after_train_iter", scheduled=True)
    def log_iteration(self, runner: Runner, optimizer: Any = None, model: Any = None) -> None:
        """Send what was measured since the last time."""
        self._log(runner, optimizer)
        step = runner.global_step
        if self.log_histograms and self._place is not None and crossed(step, self.interval, self.histogram_interval):
            write_histograms(self._place, model, step)

    def after_train_epoch(self, runner: Runner, optimizer: Any = None) -> None:
        # As LoggerHook does: in an epoch that is shorter than the interval nothing else would be logged.
        if runner.batch_idx + 1 < self.interval:
            self._log(runner, optimizer)
        self._report(runner, "train", losses_of(runner.outputs))

    def after_val_epoch(self, runner: Runner) -> None:
        self._report(runner, "val", {})

    def after_test_epoch(self, runner: Runner) -> None:
        self._report(runner, "test", {})

    def after_save_checkpoint(self, path: Path | None = None) -> None:
        self._saved = path

    def on_exception(self) -> None:
        if self._writer is not None:
            self._writer.failed = True

    def cleanup(self, runner: Runner) -> None:
        place, self._place, self._writer = self._place, None, None
        if place is None:
            return
        if self.log_model:
            for path in self._models(runner):
                place.write_artifact(path, kind="model")
        place.write_text("summary", summary_of(runner), runner.global_step)
        runner.writer.leave(place)  # type: ignore[attr-defined]

    def _log(self, runner: Runner, optimizer: Any) -> None:
        """What has come together since the last time."""
        seen, self._window = self._window, Window()
        if runner.global_step == self._logged_at or self._place is None:
            return
        self._logged_at = runner.global_step
        scalars = seen.means() | learning_rates(optimizer) | cuda_memory()
        if scalars:
            self._place.write_scalars(scalars, runner.global_step, kind="train", epoch=epoch_of(runner))

    def _report(self, runner: Runner, kind: str, beside: Mapping[str, Any]) -> None:
        """What an engine has measured in its epoch."""
        _, _, scalars = scalars_of(runner, kind, beside)
        if scalars and self._place is not None:
            self._place.write_scalars(scalars, runner.global_step, kind=kind, epoch=epoch_of(runner))

    def _models(self, runner: Runner) -> list[Path]:
        """The files of the best checkpoints and of the last one."""
        best = [runner.work_dir / record.file for record in runner.best.values() if record.file]
        last = [] if self._saved is None else [self._saved]
        return [path for path in dict.fromkeys([*best, *last]) if path.exists()]


def crossed(step: int, interval: int, every: int) -> bool:
    """Whether one of the multiples of ``every`` lies between this firing and the one before it.

    Example:
        >>> [step for step in range(40, 201, 40) if crossed(step, 40, 100)]
        [120, 200]
    """
    return step // every > (step - interval) // every


def write_histograms(place: Writer, model: Any, step: int) -> None:
    """The weights of a model, and the gradients that its last step has left; of a sharded one this rank's part."""
    for name, weight in model.named_parameters() if hasattr(model, "named_parameters") else ():
        place.write_histogram(f"weights/{name}", weight, step)
        if weight.grad is not None:
            place.write_histogram(f"gradients/{name}", weight.grad, step)


def summary_of(runner: Runner) -> str:
    """How the run ended, for a place that shows texts."""
    state = runner.trainer.state
    lines = [f"epochs: {state.epoch}", f"iterations: {state.iteration}"]
    lines += [f"stopped: {runner.stop_reason}"] if runner.stop_reason else []
    lines += [f"best {name}: {record.score:.6g} at epoch {record.epoch}" for name, record in runner.best.items()]
    return "\n".join(lines)
