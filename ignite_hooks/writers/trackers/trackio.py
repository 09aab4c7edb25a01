"""The writer for Trackio: a SQLite file on this machine, which its dashboard shows."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.secrets import Masks
from ignite_hooks.writers.convert import plain
from ignite_hooks.writers.interface import installed
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.spool import TrackerRecord, suffix_of
from ignite_hooks.writers.trackers.tracker import Ending, Refused, Tracker
from ignite_hooks.writers.trackers.tracker_writer import Mode, OnResume, TrackerWriter

logger = logging.getLogger("ignite_hooks")


class TrackioWriter(TrackerWriter):
    """Records the run in Trackio, from a thread: numbers, pictures, histograms, texts, sounds, videos,
    the configuration, files; tables not.

    The environment variables of Trackio are honoured: ``TRACKIO_DIR`` says where its files are, and
    ``TRACKIO_SPACE_ID`` sends everything to a Space of Hugging Face.

    Args:
        project: The project, which is a file of its own.
        name: The name of the run; the work directory's by default.
        config: Settings of the run to show besides the configuration.
        mode: auto or online: written; disabled. Trackio itself keeps what a Space does not take.
        deadline: Seconds for which the end of a run waits for records that are being delivered.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.
        work_dir: The work directory of the run, which ``attach_hooks`` supplies.
    """

    imported_ahead = ("trackio",)
    draws_results = True

    def __init__(
        self,
        project: str = "ignite_hooks",
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        mode: Mode = "auto",
        deadline: float = 20.0,
        on_resume: OnResume = "same",
        work_dir: str | Path | None = None,
    ) -> None:
        super().__init__("trackio", mode, work_dir, deadline, on_resume)
        if mode != "disabled":
            installed("trackio", "trackio")
        self.project, self.name = project, name
        self.config = plain(Masks(config).tree(dict(config or {})))

    def settings(self) -> dict[str, Any]:
        return {"project": self.project, "name": self.name}

    def connect(self) -> Tracker:
        import trackio

        run = trackio.init(
            project=self.project,
            name=self.name or self.work_dir.name,
            config=self.config,
            # Only the newest of a name can be continued.
            resume="allow" if self.run_id else "never",
            embed=False,
            # SystemMonitorHook does this.
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        if self.run_id not in (None, run.id):
            logger.info("TrackioWriter: a later run has the name %s, so this one is continued in it", run.name)
        self.run_id = run.id
        return _Trackio(run)


class _Trackio(Tracker):
    # It writes from a thread of its own, and says nothing of what it has written.
    vouches = False

    def __init__(self, run: Any) -> None:
        self._run = run

    def delivered(self) -> Delivered:
        last = int(getattr(self._run, "_next_step", 0)) - 1
        return Delivered(numbers=last, others=last)

    def scalars(self, record: TrackerRecord) -> None:
        self._run.log(dict(record.content), step=record.step)

    def image(self, record: TrackerRecord) -> None:
        import trackio

        self._run.log({record.content["name"]: trackio.Image(record.content["image"])}, step=record.step)

    def media(self, record: TrackerRecord) -> None:
        import trackio

        suffix = suffix_of(record)
        kind = trackio.Audio if suffix == "wav" else trackio.Video
        with tempfile.TemporaryDirectory() as elsewhere:
            path = Path(elsewhere) / f"media.{suffix}"
            path.write_bytes(record.content["data"])
            # It copies the file at once.
            self._run.log({record.content["name"]: kind(path)}, step=record.step)

    def histogram(self, record: TrackerRecord) -> None:
        import trackio

        both = record.content["counts"], record.content["edges"]
        self._run.log({record.content["name"]: trackio.Histogram(np_histogram=both)}, step=record.step)

    def text(self, record: TrackerRecord) -> None:
        import trackio

        self._run.log({record.content["name"]: trackio.Markdown(record.content["text"])}, step=record.step)

    def config(self, record: TrackerRecord) -> None:
        # It is written with the next numbers.
        self._run.config.update({name: value for name, value in record.content.items() if not name.startswith("_")})

    def artifact(self, record: TrackerRecord) -> None:
        path = Path(record.content["path"])
        if not path.exists():
            raise Refused(f"{path} is no longer there")
        self._run.log_artifact(path, name=f"{record.content['name']}-{self._run.id}", type=record.content["kind"])

    def close(self, ended: Ending = "finished") -> bool:
        self._run.finish()
        return True
