"""Trials as tasks of ClearML: clones of one task in a queue, which agents run; the study stays here."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from ignite_hooks.config.connected.connect import views_of
from ignite_hooks.config.files import load_config
from ignite_hooks.results.result import FILE_NAME as RESULT
from ignite_hooks.run.trials import Trial, stored_trial
from ignite_hooks.search.engines import Ended, Job
from ignite_hooks.secrets import Masks
from ignite_hooks.store.files import write_whole
from ignite_hooks.text import counted, duration
from ignite_hooks.trainer.queued import task_settings
from ignite_hooks.trainer.search_section import SearchSection
from ignite_hooks.writers.interface import installed
from ignite_hooks.writers.trackers.clearml import FILES, named
from ignite_hooks.writers.trackers.clearml_script import drafted_task
from ignite_hooks.writers.trackers.clearml_task import PATIENCE, record_in
from ignite_hooks.writers.trackers.probe import answers

LOOK_EVERY: Final = 2.0
"""The seconds between two looks at the tasks."""
FETCHED: Final = ("result", "metrics", "config")
"""The artifacts of a task that become files of the trial."""
RUNNING: Final = ("queued", "in_progress")
ENDED_WELL: Final = ("completed", "closed", "publishing", "published")
LAYOUTS: Final[tuple[Literal["metric", "split"], ...]] = ("metric", "split")
LOST: Final = "non-responsive"
"""What the server says of a task that it has stopped because nobody has heard of it for two hours."""
logger = logging.getLogger("ignite_hooks")


@dataclass
class Sent:
    """A trial whose task waits or runs."""

    job: Job
    task: Any
    trial: Trial
    """Who is told the values, and asked whether the trial is pruned."""
    heard: str = ""
    """When the server last heard of the task, by its own clock."""
    heard_at: float = 0.0
    """When we noticed, by ours."""
    reports: int = 0
    """The values that were reported to the study, which counts them as `PruningHook` does."""
    pruned: str = ""
    """Why we have stopped it."""


class ClearMLTasks:
    """Trials as tasks that agents take from a queue.

    Args:
        section: What every trial may have.

    Raises:
        ImportError: ClearML is not installed.
        ValueError: Its server does not answer.
    """

    def __init__(self, section: SearchSection) -> None:
        installed("clearml", "clearml")
        from clearml import Task
        from clearml.backend_api import Session
        from clearml.backend_interface.util import get_queue_id

        server = Session.get_api_server_host()
        if not answers(f"{server}/debug.ping", PATIENCE):
            raise ValueError(f"{server} does not answer: run clearml-init, or try again")
        self._section, self._settings = section, section.engine_settings
        if get_queue_id(Task._get_default_session(), self._settings.queue) is None:
            raise ValueError(
                f"{server} has no queue {self._settings.queue!r}: clearml-agent daemon --queue NAME --create-queue"
            )
        self._sent: dict[int, Sent] = {}
        self._template: Any = None
        self._shown: frozenset[str] = frozenset()
        self._next_look = 0.0

    def start(self, job: Job) -> None:
        """Clone the task of the search, let the clone say what the trial trains, and put it into the queue."""
        from clearml import Task

        content = load_config(job.config)
        text = job.config.read_text(encoding="utf-8")
        views = views_of(Masks(content).tree(content), text)
        if self._template is None:
            stop_earlier(job.folder.parent)
            given = task_settings(content)
            name = f"search of {given.pop('task_name', None) or Path(job.source).stem}"
            self._template = drafted_task(views, job.source, task_name=name, **given)
            self._shown = frozenset(views.parameters)
        task = Task.clone(self._template, name=f"{self._template.name}, trial {job.number}", parent=self._template.id)
        # What the first trial has and this one has not would be taken for an edit.
        record_in(task, replace(views, stale=sorted(self._shown)))
        write_whole(_note(job), f"{task.id}\n".encode())
        asked = {name: job.pruning[name] for name in ("storage", "study", "number", "pruner")}
        self._sent[job.number] = Sent(job, task, stored_trial(**asked), heard_at=time.monotonic())
        Task.enqueue(task, queue_name=self._settings.queue)

    def ended(self) -> list[Ended]:
        """Return the trials whose tasks have ended."""
        from clearml import Task

        now = time.monotonic()
        if not self._sent or now < self._next_look:
            return []
        asked = {"id": [sent.task.id for sent in self._sent.values()]}
        fields = ["status", "status_reason", "status_message", "last_update"]
        found = Task.query_tasks(task_filter=asked, additional_return_fields=fields)
        # States are no plain text.
        rows = {row["id"]: {name: str(row[name] or "") for name in fields} for row in found}
        over = [ended for sent in self._sent.values() if (ended := self._look(sent, rows.get(sent.task.id), now))]
        for each in over:
            del self._sent[each.number]
        self._next_look = time.monotonic() + LOOK_EVERY
        return over

    def close(self) -> None:
        """Ask for the end of what waits or runs; agents let it save first."""
        for sent in self._sent.values():
            sent.task.stop_request()
        self._sent.clear()

    def _look(self, sent: Sent, row: Mapping[str, str] | None, now: float) -> Ended | None:
        number, task = sent.job.number, sent.task
        heard = (row or {}).get("last_update", "")
        if heard != sent.heard:
            sent.heard, sent.heard_at = heard, now
        silent = now - sent.heard_at
        lost = silent if silent > self._settings.lost_after else None
        ended = end_of(number, row, sent.pruned, lost)
        if ended is not None and ended.killed and lost is not None:
            # Its agent, if it is there after all, ends it now.
            task.mark_stopped(force=True, status_message=f"{ended.killed}: the search tries it again")
        if ended is None:
            if self._section.pruner is not None and row is not None and row["status"] == "in_progress":
                self._judge(sent)
            return None
        if ended.killed:
            return ended
        self._report(sent)
        self._fetch(sent, ended)
        if not ended.code and not (sent.job.folder / RESULT).is_file():
            return replace(ended, code=1, reason="its task has no artifact 'result': see its console")
        # Not of the curve, which the server keeps in single precision.
        known = curve_of(task.get_last_scalar_metrics(), self._section.metric)
        return replace(ended, value=known.get("max" if self._section.greater else "min"))

    def _judge(self, sent: Sent) -> None:
        """Report what is new, and stop the task if the pruner says so."""
        value = None if sent.pruned else self._report(sent)
        if value is not None and sent.trial.should_prune():
            sent.pruned = f"pruned by the search at {self._section.metric} {value:g}, report {sent.reports}"
            sent.task.stop_request(status_message=sent.pruned)

    def _report(self, sent: Sent) -> float | None:
        """Tell the study the values that have come; return the last of them."""
        curve = curve_of(sent.task.get_reported_scalars(), self._section.metric)
        new = [float(value) for value in curve.get("y", ())][sent.reports :]
        for value in new:
            sent.reports += 1
            sent.trial.report(value, sent.reports)
        return new[-1] if new else None

    def _fetch(self, sent: Sent, ended: Ended) -> None:
        """Write the files of a trial to where they would be if it had run here."""
        job, task = sent.job, sent.task
        task.reload()
        for name in FETCHED:
            artifact = task.artifacts.get(name)
            if artifact is None:
                continue
            local = artifact.get_local_copy(extract_archive=False, raise_on_error=True, force_download=True)
            job.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(local, job.folder / FILES[name])
        words = ended.reason or ended.pruned or str(task.data.status)
        write_whole(job.log, f"task {task.id}: {words}\nits console: {task.get_output_log_web_page()}\n".encode())


def stop_earlier(folder: Path) -> None:
    """Ask for the end of the tasks of a search that was killed: their trials are repeated.

    Args:
        folder: The folder of the trials.
    """
    from clearml import Task

    ids = [path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob("*.task"))]
    if not ids:
        return
    found = Task.query_tasks(task_filter={"id": ids, "status": list(RUNNING)})
    for id_ in found:
        Task.get_task(id_).stop_request()
    if found:
        logger.warning("%s of the search that was killed: asked to end", counted(len(found), "task"))


def end_of(number: int, row: Mapping[str, str] | None, pruned: str = "", lost: float | None = None) -> Ended | None:
    """Return how a trial has ended by what the server says of its task; None as long as it waits or runs.

    Args:
        number: The number of the trial.
        row: The state of the task, with reason and message; None if there is no such task.
        pruned: Why the search has stopped it.
        lost: The seconds since the server has last heard of it, if these are too many.

    Example:
        >>> end_of(7, {"status": "failed", "status_reason": "worker execution exit code -9"})
        Ended(number=7, code=0, killed='killed by SIGKILL', reason='', pruned='', value=None)
        >>> end_of(7, {"status": "in_progress"}) is None
        True
    """
    if row is None:
        return Ended(number, 1, reason="its task was deleted")
    status, reason, message = (row.get(name, "") for name in ("status", "status_reason", "status_message"))
    if status in ENDED_WELL:
        return Ended(number)
    if status == "failed":
        code = re.search(r"exit code (-?\d+)", reason)
        # Containers tell a signal by 128 and more.
        ended_by = -int(code[1]) if code and int(code[1]) < 0 else int(code[1]) - 128 if code else 0
        if 0 < ended_by < signal.NSIG:
            return Ended(number, killed=f"killed by {signal.Signals(ended_by).name}")
        return Ended(number, 1, reason=message or reason)
    if status == "stopped":
        if LOST in f"{reason} {message}":
            return Ended(number, killed="its agent was lost")
        return Ended(number, pruned=pruned) if pruned else Ended(number, 1, reason="aborted in ClearML")
    if lost is None or status == "queued":
        return None
    if status == "in_progress":
        return Ended(number, killed=f"no word from its agent for {duration(lost)}")
    # An agent that takes a task makes it a draft too, but for a moment.
    return Ended(number, 1, reason="taken out of the queue")


def curve_of(scalars: Mapping[str, Any], metric: str) -> Mapping[str, Any]:
    """Return what a task knows of a metric; an empty mapping if that is nothing.

    Args:
        scalars: What it knows of its curves, by title and series.
        metric: The name of the metric, as the section says it.

    Example:
        >>> curve_of({"loss": {"train": {"y": [2.0]}, "val": {"y": [1.5, 1.0]}}}, "val_loss")
        {'y': [1.5, 1.0]}
    """
    curves: dict[str, Mapping[str, Any]] = {}
    for title, found in scalars.items():
        for series, curve in found.items():
            for layout in LAYOUTS:
                curves.setdefault(named(title, series, layout).replace("/", "_"), curve)
    plain = metric.replace("/", "_")
    names = (f"val_{plain}", plain, plain.removeprefix("train_"))
    return next((curves[name] for name in names if name in curves), {})


def _note(job: Job) -> Path:
    """Return the file with the id of the task of a trial."""
    return job.config.with_suffix(".task")
