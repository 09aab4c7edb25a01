"""Records the run in Trackio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ignite_hooks.hooks.base_hook import Situation, settings
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.writers.interface import missing

if TYPE_CHECKING:
    from ignite_hooks.writers.interface import Writer


@settings
class TrackioHook(TrackerHook):
    """Record losses, learning rates, metrics, pictures, texts and checkpoints in Trackio, which needs no server.

    It works in a thread, so training never waits for it. ``trackio show`` opens its dashboard.

    Args:
        project: The project, which is a SQLite file of its own.
        name: The name of the run; the work directory's by default.
        config: Settings to show besides the configuration.
        log_model: Whether the best checkpoints and the last one are recorded at the end of the run.
        interval: Iterations between two writings; losses are averaged over these.
        mode: auto; disabled.
        log_images: Whether pictures that hooks draw go there.
        image_interval: The least number of iterations between two pictures of one name; by default all are sent.
        log_histograms: Whether histograms of weights and gradients go there.
        histogram_interval: The least number of iterations between histograms.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.

    Reads: outputs, optimizer, model, metrics, config.
    Writes: the losses, lr, memory_mb, the metrics of evaluations.
    """

    project: str = "ignite_hooks"
    name: str | None = None
    config: dict[str, Any] | None = None  # type: ignore[assignment]
    mode: Literal["auto", "disabled"] = "auto"

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.mode != "disabled" and (problem := missing("trackio", "trackio")):
            yield "", problem
        yield from super().check(situation)

    def make_writer(self, folder: Path) -> Writer:
        from ignite_hooks.writers.trackers.trackio import TrackioWriter

        return TrackioWriter(
            self.project, self.name, self.config, mode=self.mode, on_resume=self.on_resume, work_dir=folder
        )
