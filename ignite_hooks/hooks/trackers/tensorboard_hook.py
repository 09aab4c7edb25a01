"""Shows the run in TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.hooks.base_hook import Situation, settings
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.plan.methods import at
from ignite_hooks.writers.interface import missing

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer


@settings
class TensorBoardHook(TrackerHook):
    """Write losses, learning rates, metrics, pictures and texts for TensorBoard.

    A resume hides the steps after its checkpoint, which are repeated.

    Args:
        log_dir: The folder of the event files; ``tensorboard`` in the work directory by default.
        interval: Iterations between two writings; losses are averaged over these.
        log_graph: Whether the graph of the model is drawn, from the first batch that is logged.
        log_images: Whether pictures that hooks draw go there.
        image_interval: The least number of iterations between two pictures of one name; None for all of them. The last
            one of each name is written too, and so is every ``history``, ``gradient_flow`` and ``profile``.
        log_model: No effect: TensorBoard keeps no files.
        log_histograms: Whether histograms of weights and gradients go there.
        histogram_interval: The least number of iterations between histograms.
        on_resume: Whether a resumed run goes on in the same folder, or in a new one beside it.

    Reads: outputs, optimizer, model, metrics, config.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    log_dir: Path | None = None
    log_graph: bool = False
    log_images: bool = False
    image_interval: Annotated[int, Ge(1)] | None = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._graph_due = self.log_graph

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if problem := missing("tensorboard"):
            yield "", problem
        yield from super().check(situation)

    def make_writer(self, folder: Path) -> Writer:
        from ignite_hooks.writers.tensorboard import TensorboardWriter

        return TensorboardWriter(self.log_dir, on_resume=self.on_resume, work_dir=folder)

    @at("after_train_iter", scheduled=True)
    def log_iteration(self, runner: Runner, optimizer: Any = None, model: Any = None) -> None:
        super().log_iteration(runner, optimizer, model)
        self._draw(runner, model)

    def after_train_epoch(self, runner: Runner, optimizer: Any = None, model: Any = None) -> None:
        super().after_train_epoch(runner, optimizer)
        self._draw(runner, model)

    def cleanup(self, runner: Runner) -> None:
        try:
            best = {name: float(record.score) for name, record in runner.best.items()}
            if self._writer is not None and best:
                self._writer.write_best(best, runner.global_step)
        finally:
            super().cleanup(runner)

    def _draw(self, runner: Runner, model: Any) -> None:
        if not self._graph_due or self._place is None:
            return
        # Once: a model that cannot be traced now cannot be traced later.
        self._graph_due = False
        inputs = inputs_of(runner.data_batch)
        if model is None or inputs is None:
            runner.logger.warning(
                "no graph is drawn: %s", "there is no model" if model is None else "no input is known"
            )
            return
        before = random_state()
        try:
            self._place.write_graph(model, inputs)
        finally:
            set_random_state(before)


def inputs_of(batch: Any) -> Any:
    """Return the input of a model in a batch: the first tensor in it."""
    if hasattr(type(batch), "detach"):
        return batch
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(parts, Sequence) and not isinstance(parts, str):
        return next((found for part in parts if (found := inputs_of(part)) is not None), None)
    return None
