"""Draws learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.losses import LossReporter
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Priority
from ignite_hooks.run.imports import import_ahead

if TYPE_CHECKING:
    from ignite_hooks.drawing.thread import DrawingThread
    from ignite_hooks.run.runner import Runner

MAX_POINTS = 400
"""Maximum number of points per number; every second one is dropped above it, as the state is saved."""

Points = list[tuple[int, float]]


@dataclass
class Curves:
    """The state of this hook: the points (iteration, value) of each number."""

    points: dict[str, Any] = field(default_factory=dict)


@settings
class HistoryPlotHook(BaseHook):
    """Draw the learning curves after every evaluation, and at the end of a run without one.

    Numbers of the training and of evaluations share a picture: ``loss`` with ``val_loss``. The best score is
    marked. The picture is one file that is replaced; in a notebook with ``show`` it is updated in place.

    Args:
        interval: Number of iterations between two points of the training losses, each the mean since the one before.
        metrics: Names to draw; by default everything that is one number.
        show: Whether to show the picture as well: inline in a notebook, in a window if there is a display.
        save: Whether to save the picture as a file.
        out_dir: Folder of the file; ``visualization`` in the work directory by default.

    Reads: outputs, metrics, best.
    Writes: history.
    Saves: history.png in visualization; its points in checkpoints.
    """

    interval: Annotated[int, Ge(1)] = 50
    metrics: Sequence[str] | None = None
    show: bool = False
    save: bool = True
    out_dir: Path | None = None
    # At the end of an evaluation smaller priorities run later: after the hooks that decide what is best.
    priority: PriorityLike = Priority.VERY_HIGH
    on_error: OnError = "warn"
    draws: ClassVar[bool] = True
    state: Curves = field(init=False, default_factory=Curves)

    def __post_init__(self) -> None:
        self._thread: DrawingThread | None = None
        self._drawn_at = -1
        self._losses = LossReporter(self.when.iterations)

    def before_run(self, runner: Runner) -> None:
        self._drawn_at = -1
        self._losses.begin(runner)
        if runner.global_step == 0:
            self.state = Curves()
        if is_main_process():
            from ignite_hooks.drawing.thread import NEEDED_BY_CURVES

            import_ahead(NEEDED_BY_CURVES, self.name or type(self).__name__, runner.logger)

    def before_train_epoch(self) -> None:
        self._losses.restart()

    def after_train_iter(self, outputs: Any) -> None:
        self._losses.add(outputs)

    @at("after_train_iter", scheduled=True)
    def add_losses(self, runner: Runner) -> None:
        """Add the mean losses since the last point: those that lines and trackers have."""
        if (found := self._losses.report(runner)) is not None:
            self._add(found.losses, found.step)

    def after_train_epoch(self, runner: Runner) -> None:
        when = self.when
        due = when.unit == "epoch" and when.due(runner.epoch + 1)
        # Nothing else is added in an epoch that is shorter than the interval.
        if due or (when.unit != "epoch" and self._losses.is_overdue(runner, when.unit == "iter")):
            self.add_losses(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        found = {
            name: value for name, value in runner.metrics.items() if runner.metrics.step(name) == runner.global_step
        }
        losses = runner.loss_dict
        self._add({name: value for name, value in found.items() if name not in losses}, runner.global_step)
        self._draw(runner)

    def after_train(self, runner: Runner) -> None:
        if self._drawn_at != runner.global_step and self.state.points:
            self._draw(runner)

    def cleanup(self, runner: Runner) -> None:
        self._losses.end()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(runner.writer.seconds_left)

    def _add(self, values: Any, step: int) -> None:
        for name, value in values.items():
            wanted = self.metrics is None or name in self.metrics
            if wanted and (number := as_number(value)) is not None:
                self.state.points[name] = add_point(self.state.points.get(name, []), (step, number))

    def _draw(self, runner: Runner) -> None:
        if not is_main_process():
            return
        from ignite_hooks.drawing.training_curves import curves

        if self._thread is None:
            self._thread = self._start_thread(runner)
        self._drawn_at = runner.global_step
        points = without_copies({name: list(points) for name, points in self.state.points.items()})
        best = {
            drawn: (record.step, record.score)
            for name, record in runner.best.items()
            for drawn in points
            if drawn == name or (name not in points and drawn.endswith(f"_{name}"))
        }
        title = f"{runner.work_dir.name}, iteration {runner.global_step}"
        paint = partial(curves, points, title=title, best=best)
        self._thread.draw("history", runner.global_step, paint, replace=True)

    def _start_thread(self, runner: Runner) -> DrawingThread:
        from ignite_hooks.drawing.thread import DrawingThread

        folder = runner.get_service("visualization_dir") if self.out_dir is None else runner.work_dir / self.out_dir
        return DrawingThread(
            self.name or type(self).__name__,
            folder=folder if self.save else None,
            sink=runner.writer,
            show=self.show,
            logger=runner.logger,
        )


def as_number(value: Any) -> float | None:
    """Return the value as one number, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    count = getattr(value, "numel", None)
    return float(value.detach()) if callable(count) and count() == 1 else None


def add_point(points: Points, point: tuple[int, float], most: int = MAX_POINTS) -> Points:
    """Return the points and a new one, which replaces those of its iteration and later; drop every second if too many.

    Example:
        >>> add_point([(1, 0.5), (2, 0.4)], (2, 0.3))
        [(1, 0.5), (2, 0.3)]
        >>> add_point([(n, 0.0) for n in range(6)], (6, 0.0), most=6)
        [(0, 0.0), (2, 0.0), (4, 0.0), (6, 0.0)]
    """
    kept = [*((step, value) for step, value in points if step < point[0]), point]
    return kept if len(kept) <= most else [*kept[:-1:2], kept[-1]]


def without_copies(points: dict[str, Points]) -> dict[str, Points]:
    """Return the numbers without copies under a shorter name, such as ``accuracy`` for ``val_accuracy``.

    Example:
        >>> list(without_copies({"accuracy": [(1, 0.5)], "val_accuracy": [(1, 0.5)], "loss": [(1, 2.0)]}))
        ['val_accuracy', 'loss']
    """
    return {
        name: values
        for name, values in points.items()
        if not any(other.endswith(f"_{name}") and same for other, same in ((o, points[o] == values) for o in points))
    }
