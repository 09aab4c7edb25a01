"""Draws the outputs of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, settings
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.run.imports import import_ahead

if TYPE_CHECKING:
    from ignite_hooks.drawing.thread import DrawingThread
    from ignite_hooks.run.runner import Runner

MAX_LAYERS = 6


@settings
class FeatureMapHook(BaseHook):
    """Draw the most active channels of layers, a picture for each layer, for one image of a training batch.

    When it is due, the model runs once on this image in evaluation mode; only then its layers have forward hooks.

    Args:
        frequency: Number of iterations between two pictures.
        max_features: Maximum number of channels drawn per layer, the most active first.
        sample_batch_idx: Index of the image in the batch, counted from 0; the last image if there are fewer.
        layers: Names of the layers; by default up to six of the convolutions, from the first to the last.
        show: Whether to show pictures as well: inline in a notebook, in a window if there is a display.
        save: Whether to save pictures as files.
        out_dir: Folder of the files; ``visualization`` in the work directory by default.
        extract: Function of batch and outputs that returns images, and inputs if the model takes others.

    Reads: data_batch, model.
    Writes: feature_map/<layer>.
    Saves: pictures in visualization.
    """

    frequency: Annotated[int, Ge(1)] = 100
    max_features: Annotated[int, Ge(1)] = 16
    sample_batch_idx: Annotated[int, Ge(0)] = 0
    layers: Sequence[str] | None = None
    show: bool = False
    save: bool = True
    out_dir: Path | None = None
    extract: Callable[..., Mapping[str, Any]] | None = None
    on_error: OnError = "warn"
    draws: ClassVar[bool] = True

    one_model: ClassVar[str] = "remove the hook, or draw the layers of one in a run that is given this model alone"

    def __post_init__(self) -> None:
        self._thread: DrawingThread | None = None

    def before_run(self, runner: Runner) -> None:
        if is_main_process():
            from ignite_hooks.drawing.thread import NEEDED_BY_IMAGES

            import_ahead(NEEDED_BY_IMAGES, self.name or type(self).__name__, runner.logger)

    @scheduled
    def after_train_iter(self, runner: Runner, data_batch: Any, outputs: Any) -> None:
        self._draw(runner, data_batch, outputs)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        self._draw(runner, runner.data_batch, runner.outputs)

    def cleanup(self, runner: Runner) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(runner.writer.seconds_left)

    def _draw(self, runner: Runner, batch: Any, outputs: Any) -> None:
        if not is_main_process():
            return
        from ignite_hooks.drawing import explain
        from ignite_hooks.drawing.figures import features
        from ignite_hooks.drawing.samples import samples_of

        if runner.model is None:
            raise ValueError("there is no model whose layers could be drawn: pass model=... to attach_hooks()")
        if self._thread is None:
            self._thread = self._start_thread(runner)
        samples = samples_of(batch, outputs, self.extract)
        if samples.problem or not len(samples):
            self._thread.warn_nothing_to_draw(samples.problem)
            return
        at = min(self.sample_batch_idx, len(samples) - 1)
        image = (samples.images if samples.inputs is None else samples.inputs)[at : at + 1]
        layers = list(self.layers) if self.layers is not None else explain.spread_layers(runner.model, MAX_LAYERS)
        title = f"iteration {runner.global_step}, epoch {runner.trainer.state.epoch}"
        for name, maps in explain.feature_maps(runner.model, image, layers).items():
            channels = explain.most_active(maps[0], self.max_features).tolist()
            note = f"layer {name}: the {len(channels)} most active of {maps.shape[1]} channels"
            paint = partial(features, maps[0][channels].cpu(), channels, title=title, note=note)
            self._thread.draw(f"feature_map/{name}", runner.global_step, paint, sample=f"train {runner.global_step}")

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
