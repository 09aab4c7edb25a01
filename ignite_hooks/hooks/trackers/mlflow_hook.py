"""Records the run in MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ignite_hooks.checkpoint.uploads import details_of, named_checkpoints
from ignite_hooks.hooks.base_hook import Situation, settings
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.writers.interface import missing

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer


@settings
class MLflowHook(TrackerHook):
    """Record losses, learning rates, metrics, pictures, texts and checkpoints in MLflow.

    It works in a thread, so training never waits for it; ``ignite-hooks send`` delivers later what a server did not
    get. The environment variables of MLflow are honoured, and a run that the script has begun is used.

    Args:
        tracking_uri: A server or database; else ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the work directory.
        experiment: The experiment; else ``MLFLOW_EXPERIMENT_NAME``, else ``ignite_hooks``.
        run_name: The name of the run; the work directory's by default.
        log_model: Whether the best checkpoints and the last one become models at the end, with their metrics.
        interval: Iterations between two writings; losses are averaged over these.
        mode: auto: offline if the server does not answer; online; offline; disabled.
        log_images: Whether pictures that hooks draw go there.
        image_interval: The least number of iterations between two pictures of one name; by default all are sent.
        log_histograms: No effect: MLflow shows no histograms.
        histogram_interval: The least number of iterations between histograms.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.

    Reads: outputs, optimizer, model, metrics, config.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    tracking_uri: str | None = None
    experiment: str | None = None
    run_name: str | None = None
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.mode != "disabled" and (problem := missing("mlflow", "mlflow") or missing("sqlalchemy", "mlflow")):
            yield "", problem
        yield from super().check(situation)

    def cleanup(self, runner: Runner) -> None:
        if self.log_model and self._writer is not None:
            for name, (path, entry) in named_checkpoints(runner, self._saved).items():
                self._writer.write_model(path, name, details_of(runner, name, entry))
        super().cleanup(runner)

    def _models(self, runner: Runner) -> list[Path]:
        """Return what is no model of MLflow: folders, which are files of the run."""
        return [path for path in super()._models(runner) if path.is_dir()]

    def make_writer(self, folder: Path) -> Writer:
        from ignite_hooks.writers.trackers.mlflow import MLflowWriter

        return MLflowWriter(
            self.tracking_uri,
            self.experiment,
            self.run_name,
            mode=self.mode,
            on_resume=self.on_resume,
            work_dir=folder,
        )
