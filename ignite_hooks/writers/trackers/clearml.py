"""The writer for ClearML."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.errors import SettingError
from ignite_hooks.writers.convert import plain, shown_cell
from ignite_hooks.writers.interface import installed
from ignite_hooks.writers.trackers.clearml_models import Models, address_of
from ignite_hooks.writers.trackers.clearml_script import without_analysis, write_script
from ignite_hooks.writers.trackers.clearml_task import (
    OURS,
    TRAINED,
    Views,
    abandon_task,
    begun_task,
    ending_as_stopped,
    ending_whole,
    record_in,
    stopping_on_abort,
    under_agent,
)
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.probe import answers
from ignite_hooks.writers.trackers.spool import TrackerRecord, suffix_of
from ignite_hooks.writers.trackers.tracker import Ending, Refused, Tracker, Unreachable
from ignite_hooks.writers.trackers.tracker_writer import Mode, OnResume, TrackerWriter

logger = logging.getLogger("ignite_hooks")

Layout = Literal["metric", "split"]

CAPTURES = {
    "TensorBoard": ("clearml.binding.frameworks.tensorflow_bind", "PatchSummaryToEventTransformer"),
    "matplotlib": ("clearml.binding.matplotlib_bind", "PatchedMatplotlib"),
    "torch.save": ("clearml.binding.frameworks.pytorch_bind", "PatchPyTorchModelIO"),
}
"""The things that ClearML may capture by itself, each with the class that has a task if it does."""

LINES = "log"
"""The name under which lines of the log are written as text."""
OFFLINE = "offline-"
"""What the name of a task begins with that no server knows."""
SHOWN_WHOLE = ("plan", "summary", "model_summary")
"""Texts that become artifacts, which the page shows."""
FILES = {"report": "report.html", "config": "config.yaml", "metrics": "metrics.jsonl", "result": "result.json"}
"""The artifacts that are files of the work directory."""
SHOWN_STEPS = 4000
"""The length of a curve up to which a server shows every point; the limit of its interface is 5000 points."""
WE_WENT_OFFLINE: list[bool] = []
"""Not empty if an earlier run of this process set ClearML offline, which holds for the whole process."""
ONE_BEGINS = threading.Lock()
"""The SDK has one task per process, and the next run would take one that begins too late for the script's."""


class ClearMLWriter(TrackerWriter):
    """Records the run as a ClearML task, from a thread: numbers, pictures, histograms, texts, configuration, models.

    A task that the script has made is used, and stays open after the run. In a task that is made here, ClearML captures
    nothing by itself, because everything would be recorded twice.

    Args:
        project: The project of a new task.
        task_name: The name of a new task; the work directory's by default.
        tags: Tags of the task.
        layout: metric: training and evaluations of a metric are curves of one plot; split: each has plots of its own.
        mode: auto: offline if there are no credentials or no answer; online; offline; disabled.
        deadline: Seconds for which the end of a run waits for records that are being delivered.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.
        work_dir: The work directory of the run, which ``attach_hooks`` supplies.
    """

    # ClearML inspects all loaded modules when a task begins; torch must not be half loaded then. Its own thread
    # imports the last two; whoever looked for a notebook meanwhile would meet half of IPython.
    imported_ahead = (
        "torch",
        "clearml",
        "multiprocessing.pool",
        "multiprocessing.queues",
        "clearml.utilities.pigar.__main__",
        "IPython",
    )

    def __init__(
        self,
        project: str | None = None,
        task_name: str | None = None,
        tags: Sequence[str] = (),
        *,
        layout: Layout = "metric",
        mode: Mode = "auto",
        deadline: float = 20.0,
        on_resume: OnResume = "same",
        work_dir: str | Path | None = None,
    ) -> None:
        super().__init__("clearml", mode, work_dir, deadline, on_resume)
        if mode != "disabled":
            installed("clearml", "clearml")
        if layout not in ("metric", "split"):
            raise SettingError("layout", f"metric or split is needed, not {layout!r}")
        self.project, self.task_name, self.tags = project, task_name, list(tags)
        self.layout: Layout = layout
        self.views: Views | None = None
        """The configuration as the task is to show it; ``attach_hooks`` sets it."""
        self.on_abort: Callable[[], None] | None = None
        """Stops the run, and returns when it is saved and closed."""
        self.abort_timeout = 300.0
        self._has_begun_task = False
        self._task_id = ""
        self._closed_times = 0

    def write_config(self, config: Mapping[str, Any]) -> None:
        views = {} if self.views is None else {"views": self.views.as_content()}
        super().write_config({"trained": json.dumps(plain(config), indent=2, ensure_ascii=False), **views})

    def write_model(self, path: Path, name: str, details: Mapping[str, Any]) -> None:
        """Write a checkpoint as the output model of this name; the newest of a name replaces the one before."""
        content = {"path": str(path.absolute()), "name": name, "kind": "model", "details": plain(details)}
        self._put("artifact", details["iteration"], content)

    def write_source(self, path: Path, why: str) -> None:
        """Write that the run began from a file: an input model of this name."""
        self._put("source", 0, {"uri": address_of(path), "name": why})

    def close(self) -> None:
        super().close()
        self._closed_times += 1
        if self._has_begun_task:
            # It is closed, or its server answers no more and everything waits here.
            abandon_task()
            self._has_begun_task = False

    def has_unsent(self, run: str) -> bool:
        # Also one whose file is gone: it gets another name when it is sent, which whoever sends it writes down.
        return run.startswith(OFFLINE)

    def settings(self) -> dict[str, Any]:
        return {"project": self.project, "task_name": self.task_name, "tags": self.tags, "layout": self.layout}

    def connect(self) -> Tracker:
        closed_times = self._closed_times
        with ONE_BEGINS:
            tracker = self._connected()
            if self._closed_times > closed_times and tracker.is_ours:
                # The task began when nobody waited for it any more; what it would hold lies in the spool.
                abandon_task()
                raise Unreachable("the run had ended before its task began")
        self.takes_more = tracker.takes_more
        if tracker.page not in ("", self.page):
            logger.info("ClearML: %s", tracker.page)
        self.page = tracker.page
        if self.on_abort is not None and not tracker.offline:
            tracker.watch(self.on_abort, self.abort_timeout)
        return tracker

    def _connected(self) -> _ClearML:
        from clearml import Task
        from clearml.backend_interface.base import InterfaceBase

        current = Task.current_task()
        if current is not None and current.id in OURS:
            return self._as_tracker(current, offline=False)
        if current is not None and current.id == self._task_id:  # begun before what failed then
            return self._as_tracker(current, offline=bool(current.is_offline()))
        if current is not None:
            self._warn_of_doubles()
            if self.tags:
                current.add_tags(self.tags)
            return _ClearML(current, self.layout, self.work_dir, offline=bool(current.is_offline()), ours=False)
        # It was made with the server and the credentials of an earlier time, which may have changed.
        InterfaceBase._set_default_session(None)
        offline = self._is_offline()
        if offline != Task.is_offline():
            Task.set_offline(offline)
            WE_WENT_OFFLINE[:] = [True] if offline else []
        wanted = None if offline else self.run_id
        self._has_begun_task = True
        with contextlib.nullcontext() if offline else without_analysis():
            task = begun_task(
                project_name=self.project or "ignite_hooks",
                task_name=self.task_name or self.work_dir.name,
                tags=self.tags or None,
                reuse_last_task_id=wanted or False,
                # 0 is the first step: otherwise ClearML would add the last iteration to every step that follows.
                continue_last_task=0 if wanted else False,
            )
            self._task_id = task.id
            if not offline:
                # Also of a task that goes on: the SDK has just replaced what it said.
                write_script(task)
        if wanted is not None and task.id != wanted:
            logger.warning(
                "the ClearML task %s cannot be continued, so the run goes on in another: %s", wanted, task.id
            )
        return self._as_tracker(task, offline=offline)

    def _as_tracker(self, task: Any, *, offline: bool) -> _ClearML:
        self._has_begun_task = True
        if not offline and not task.output_uri:
            # Where nothing is configured, ClearML registers a model by its path on this machine.
            task.output_uri = True
        self.run_id, self.session = (None, task.id) if offline else (task.id, None)
        if offline and self._spool is not None:
            self._spool.say(session=task.id)
        return _ClearML(task, self.layout, self.work_dir, offline=offline, ours=True)

    def _is_offline(self) -> bool:
        from clearml import Task

        if self.mode == "offline" or (Task.is_offline() and not WE_WENT_OFFLINE):
            return True
        reason = why_unreachable()
        if reason and self.mode != "auto":
            raise Unreachable(reason)
        if reason:
            self.offline_because(reason, self.work_dir)
        return bool(reason)

    def _warn_of_doubles(self) -> None:
        found = []
        for what, (module, name) in CAPTURES.items():
            binding = getattr(sys.modules.get(module), name, None)
            if getattr(binding, "_current_task", None) is not None:
                found.append(what)
        if found:
            frameworks = "{'tensorboard': False, 'matplotlib': False, 'pytorch': False}"
            logger.warning(
                "the script's ClearML task captures %s by itself, so what hooks write there too is recorded twice: "
                "Task.init(..., auto_connect_frameworks=%s)",
                ", ".join(found),
                frameworks,
            )


class _ClearML(Tracker):
    # Online, a thread of ClearML sends the reports, and does not say whether they arrive. Offline, nobody finds its
    # folder before it has become an archive in the work directory.
    vouches = False

    def __init__(self, task: Any, layout: Layout, folder: Path, *, offline: bool, ours: bool) -> None:
        self._task, self._layout, self._folder, self.offline, self.is_ours = task, layout, folder, offline, ours
        self._watch = contextlib.ExitStack()
        self._models = Models(task, offline=offline)
        self._logger = task.get_logger()

    @property
    def takes_more(self) -> bool:
        """Whether the task can be opened again: an offline one of ours becomes an archive at its end."""
        return not (self.offline and self.is_ours)

    @property
    def page(self) -> str:
        """The address of the task's page; empty offline."""
        return "" if self.offline else str(self._task.get_output_log_web_page())

    def watch(self, stop: Callable[[], None], timeout: float) -> None:
        """Stop the run when somebody aborts the task."""
        self._watch.close()
        self._watch.enter_context(stopping_on_abort(self._task, stop, timeout, ours=self.is_ours))

    def delivered(self) -> Delivered:
        """Return the last step of each number; pictures and histograms of a step replace those that are there."""
        curves = self._curves()
        return Delivered({name: max(steps) for name, steps in curves.items()}, steps=_exact(curves))

    def arrived(self) -> Delivered:
        return Delivered(steps=_exact(self._curves()))

    def _curves(self) -> dict[str, frozenset[int]]:
        """Return the steps of each number that the server shows."""
        curves = {} if self.offline else self._task.get_reported_scalars() or {}
        return {
            named(title, series, self._layout): frozenset(int(step) for step in points["x"])
            for title, found in curves.items()
            for series, points in found.items()
            if points.get("x")
        }

    def scalars(self, record: TrackerRecord) -> None:
        for name, value in record.content.items():
            if not math.isfinite(value):
                continue  # ClearML would show 0.0
            title, series = titled(name) if self._layout == "split" else plotted(name)
            self._logger.report_scalar(title, series, value, record.step)

    def values(self, record: TrackerRecord) -> None:
        for name, value in record.content.items():
            if math.isfinite(value):
                self._logger.report_single_value(name, value)

    def image(self, record: TrackerRecord) -> None:
        title, series = titled(record.content["name"])
        self._logger.report_image(title, series, record.step, image=record.content["image"])

    def histogram(self, record: TrackerRecord) -> None:
        title, series = titled(record.content["name"])
        counts, edges = record.content["counts"], record.content["edges"]
        labels = [f"{edge:.4g}" for edge in edges[:-1]]
        self._logger.report_histogram(title, series, values=counts, iteration=record.step, xlabels=labels)

    def result(self, record: TrackerRecord) -> None:
        (title, series), found = titled(record.content["name"]), record.content["result"]
        labels = found.get("labels") or None
        if found["kind"] == "matrix":
            self._logger.report_confusion_matrix(
                title, series, found["values"], record.step, "predicted", "true", labels, labels, yaxis_reversed=True
            )
        elif found["kind"] == "vector":
            values = [value if value == value else 0.0 for value in found["values"]]
            self._logger.report_histogram(title, series, values, record.step, xlabels=labels)
        elif found["kind"] == "table":
            cells = [[shown_cell(cell) for cell in row] for row in found["rows"]]
            self._logger.report_table(title, series, record.step, table_plot=[found["columns"], *cells])
        else:
            for label, (x, y) in found["lines"].items():
                points = [list(point) for point in zip(x, y, strict=True)]
                self._logger.report_scatter2d(
                    f"{title} {series}" if title != series else title,
                    label or series,
                    points,
                    record.step,
                    xaxis=found["axes"][0],
                    yaxis=found["axes"][1],
                    mode="lines",
                )

    def media(self, record: TrackerRecord) -> None:
        title, series = titled(record.content["name"])
        content = io.BytesIO(record.content["data"])
        self._logger.report_media(title, series, record.step, stream=content, file_extension=suffix_of(record))

    def text(self, record: TrackerRecord) -> None:
        name, text = record.content["name"], record.content["text"]
        if name == LINES:
            if not under_agent():  # an agent records what the process says
                self._logger.report_text(text, print_console=False)
        elif name in SHOWN_WHOLE:
            self._task.upload_artifact(name, text, preview=text, wait_on_upload=True)
        else:
            self._logger.report_text(f"{name} (iteration {record.step})\n{text}", print_console=False)

    def config(self, record: TrackerRecord) -> None:
        # Under an agent they were written when the values of the task were read.
        if "views" in record.content and not under_agent():
            record_in(self._task, Views(**record.content["views"]))
        self._task.set_configuration_object(TRAINED, config_text=record.content["trained"], config_type="json")

    def source(self, record: TrackerRecord) -> None:
        if not self.offline:  # a session that is sent later has no input models
            self._models.begin_from(record.content["uri"], record.content["name"])

    def artifact(self, record: TrackerRecord) -> None:
        path, name, kind = Path(record.content["path"]), record.content["name"], record.content["kind"]
        if not path.exists():
            if record.content.get("details"):
                return  # a newer checkpoint has taken its place
            raise Refused(f"{path} is no longer there")
        if kind != "model":
            self._task.upload_artifact(name, str(path), wait_on_upload=True)
            return
        self._models.put(path, record.content)

    def close(self, ended: Ending = "finished") -> bool:
        if not self.offline and not answers(f"{self._task._get_api_server()}/debug.ping"):
            return False
        self._upload_files()
        self._task.flush(wait_for_uploads=True)
        if not self.is_ours:
            self._watch.close()
            return True
        if ended == "failed" and not self.offline:
            self._task.mark_failed(status_reason="the run failed")
        session = Path(self._task.get_offline_mode_folder()) if self.offline else None
        as_stopped = ending_as_stopped(self._task) if ended == "stopped" else contextlib.nullcontext()
        with ending_whole(self._task), as_stopped:
            self._task.close()
        return session is None or self._fetch(session)

    def _upload_files(self) -> None:
        """Upload what the work directory has for people; by now all hooks have written."""
        for name, file in FILES.items():
            path = self._folder / file
            try:
                if path.is_file():
                    self._task.upload_artifact(name, path, wait_on_upload=True)
            except Exception as error:  # every storage has its own
                words = "%s of the ClearML task was not uploaded: %s: %s"
                logger.warning(words, file, type(error).__name__, " ".join(str(error).split())[:300])

    def _fetch(self, session: Path) -> bool:
        """Move an offline task from the cache of ClearML to the work directory; return whether it is there."""
        archive = session.with_name(f"{session.name}.zip")
        if not archive.is_file():
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.move(archive, self._folder / f"clearml-{archive.name}")
        shutil.rmtree(session, ignore_errors=True)
        return True


def _exact(curves: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """Return the curves of which a server shows every point: it puts those of neighbours together in longer ones."""
    return {name: steps for name, steps in curves.items() if max(steps) - min(steps) < SHOWN_STEPS}


def plotted(name: str) -> tuple[str, str]:
    """Return the title and the series of a number: training and evaluations are series of one plot.

    Example:
        >>> plotted("val/loss"), plotted("loss"), plotted("memory/process_mb")
        (('loss', 'val'), ('loss', 'train'), ('memory', 'process_mb'))
    """
    split, slash, metric = name.partition("/")
    if slash and metric and split in ("val", "test"):
        return metric, split
    return titled(name) if slash else (name, "train")


def named(title: str, series: str, layout: Layout) -> str:
    """Return the name of a number that is shown with a title and a series.

    Example:
        >>> named("loss", "val", "metric"), named("loss", "train", "metric"), named("lr", "lr", "split")
        ('val/loss', 'loss', 'lr')
    """
    if layout == "split":
        return title if title == series else f"{title}/{series}"
    return title if series == "train" else f"{series}/{title}" if series in ("val", "test") else f"{title}/{series}"


def titled(name: str) -> tuple[str, str]:
    """Return the title and the series of a name.

    Example:
        >>> titled("val/loss"), titled("lr")
        (('val', 'loss'), ('lr', 'lr'))
    """
    title, slash, series = name.partition("/")
    return (title, series) if slash and title and series else (name, name)


def why_unreachable() -> str:
    """Return why no server can be talked to; empty if one can."""
    if not has_credentials():
        return "no credentials are configured (clearml-init)"
    from clearml.backend_api import Session

    server = Session.get_api_server_host()
    return "" if answers(f"{server}/debug.ping") else f"{server} does not answer"


def has_credentials() -> bool:
    """Return whether credentials of a ClearML server are configured."""
    variables: Mapping[str, str] = os.environ
    if variables.get("CLEARML_API_ACCESS_KEY") and variables.get("CLEARML_API_SECRET_KEY"):
        return True
    path = Path(variables.get("CLEARML_CONFIG_FILE") or Path.home() / "clearml.conf")
    return path.is_file() and "access_key" in path.read_text(encoding="utf-8", errors="replace")
