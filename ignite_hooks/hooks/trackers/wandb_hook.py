"""Records the run in Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ignite_hooks.hooks.base_hook import Situation, settings
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.writers.interface import missing

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer


@settings
class WandbHook(TrackerHook):
    """Record losses, learning rates, metrics, pictures, texts and checkpoints in Weights & Biases.

    It works in a thread, so training never waits for it; offline, ``ignite-hooks send`` delivers later. A run that is
    stopped on its page, or by a sweep, is saved and closed after the iteration.

    Args:
        project: The project; else ``WANDB_PROJECT``.
        name: The name of the run; the work directory's by default.
        config: Settings to show besides the configuration.
        log_model: Whether the best checkpoints and the last one are recorded at the end of the run.
        interval: Iterations between two writings; losses are averaged over these.
        log_code: Whether the Python files of the current folder are recorded.
        mode: auto: offline if there is no key or no answer; online; offline; disabled.
        log_images: Whether pictures that hooks draw go there.
        image_interval: The least number of iterations between two pictures of one name; by default all are sent.
        log_histograms: Whether histograms of weights and gradients go there.
        histogram_interval: The least number of iterations between histograms.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.

    Reads: outputs, optimizer, model, metrics, config.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    project: str | None = None
    name: str | None = None
    config: dict[str, Any] | None = None  # type: ignore[assignment]
    log_code: bool = False
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stop: Callable[[bool], None] | None = None

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.mode != "disabled" and (problem := missing("wandb", "wandb")):
            yield "", problem
        yield from super().check(situation)

    def before_run(self, runner: Runner, config: Any = None) -> None:
        def stop(in_sweep: bool) -> None:
            runner.logger.warning("the run is stopped in W&B: it stops after this iteration, saves and closes")
            runner.stop("stopped in W&B", kind="pruned" if in_sweep else "")

        self._stop = stop
        super().before_run(runner, config)

    def after_writers_closed(self, runner: Runner) -> None:
        super().after_writers_closed(runner)
        if self._ended is not None:
            # A test after the end is no run that could be stopped.
            self._ended.on_stop = None

    def cleanup(self, runner: Runner) -> None:
        if self._writer is not None and runner.best:
            # By itself the table of runs has the last values only.
            self._writer.write_values({f"best/{name}": float(record.score) for name, record in runner.best.items()})
        super().cleanup(runner)

    def make_writer(self, folder: Path) -> Writer:
        from ignite_hooks.writers.trackers.wandb import WandbWriter

        writer = WandbWriter(
            self.project,
            self.name,
            self.config,
            log_code=self.log_code,
            mode=self.mode,
            on_resume=self.on_resume,
            work_dir=folder,
        )
        writer.on_stop = self._stop
        return writer
