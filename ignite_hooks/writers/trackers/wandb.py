"""The writer for Weights & Biases."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ignite_hooks.secrets import Masks
from ignite_hooks.writers.convert import picture_in, plain, shown_cell
from ignite_hooks.writers.interface import installed
from ignite_hooks.writers.media import TYPES
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.probe import answers
from ignite_hooks.writers.trackers.spool import UNSENT, TrackerRecord, suffix_of
from ignite_hooks.writers.trackers.tracker import Ending, Refused, Tracker
from ignite_hooks.writers.trackers.tracker_writer import Mode, OnResume, TrackerWriter

FINISH = 10.0
"""Seconds for which the end of an online run waits for W&B; the rest stays in its own file."""
logger = logging.getLogger("ignite_hooks")


class WandbWriter(TrackerWriter):
    """Records the run in Weights & Biases, from a thread: numbers, pictures, histograms, texts, configuration, files.

    The environment variables of W&B are honoured, and a run that the script has begun is used. Steps of W&B cannot go
    back: a late record, such as a picture that took long to draw, goes to the newest step and names its own. If the
    script itself logs and is ahead, each row has its step as ``iteration``.

    Args:
        project: The project; else ``WANDB_PROJECT``, else W&B's own default.
        name: The name of the run; the work directory's by default.
        config: Settings of the run to show besides the configuration.
        log_code: Whether the Python files of the current folder are recorded.
        mode: auto: offline if there is no key or no answer; online; offline; disabled.
        deadline: Seconds for which the end of a run waits for records that are being delivered.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.
        work_dir: The work directory of the run, which ``attach_hooks`` supplies.
    """

    imported_ahead = (
        "wandb",
        "wandb.sdk.artifacts._internal_artifact",
        "wandb.sdk.launch.inputs.internal",
        "opentelemetry.exporter.otlp.proto.http.metric_exporter",
        "opentelemetry.exporter.otlp.proto.http._log_exporter",
        "opentelemetry.sdk._logs.export",
        "opentelemetry.sdk.metrics",
    )

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        log_code: bool = False,
        mode: Mode = "auto",
        deadline: float = 20.0,
        on_resume: OnResume = "same",
        work_dir: str | Path | None = None,
    ) -> None:
        own = os.environ.get("WANDB_MODE", "")
        mode = own if mode == "auto" and own in ("online", "offline", "disabled") else mode  # type: ignore[assignment]
        super().__init__("wandb", mode, work_dir, deadline, on_resume)
        if mode != "disabled":
            installed("wandb", "wandb")
        self.project, self.name, self.config, self.log_code = (
            project,
            name,
            plain(Masks(config).tree(dict(config or {}))),
            log_code,
        )
        self.on_stop: Callable[[bool], None] | None = None
        """Stops the run when somebody stops it in W&B; it is told whether a sweep has begun the run."""
        self._in_sweep = False

    def has_unsent(self, run: str) -> bool:
        if not re.fullmatch(r"[\w-]+", run):
            return False
        files = self.work_dir.glob(f"wandb/offline-run-*-{run}/run-{run}.wandb")
        return any(not path.with_name(f"{path.name}.synced").exists() for path in files)

    def settings(self) -> dict[str, Any]:
        return {"project": self.project, "name": self.name}

    def connect(self) -> Tracker:
        import wandb

        if wandb.run is not None:
            if self.config:
                wandb.run.config.update(self.config, allow_val_change=True)
            self.page = wandb.run.url or ""
            return _Wandb(wandb.run, ends=False)
        self.work_dir.mkdir(parents=True, exist_ok=True)
        _follow_environment(wandb)
        self.takes_more = online = self._online(wandb)
        if self._continued is not None and self.run_id == self._continued and not online:
            logger.info("WandbWriter: W&B cannot continue run %s offline, so this is another run", self.run_id)
            self.run_id = None
        settings = wandb.Settings(
            console="off",
            silent=True,
            init_timeout=5.0,
            finish_timeout=FINISH,
            finish_timeout_raises=True,
            # SystemMonitorHook does this.
            x_disable_stats=True,
            **self._stopping(wandb),
        )
        run = wandb.init(
            project=self.project,
            name=self.name or os.environ.get("WANDB_NAME") or self.work_dir.name,
            config=self.config,
            id=self.run_id,
            resume="allow" if self.run_id else None,
            dir=str(self.work_dir),
            mode="online" if online else "offline",
            settings=settings,
            reinit="create_new",
        )
        self.run_id, self.page, self._in_sweep = run.id, run.url or "", bool(run.sweep_id)
        if self.log_code:
            run.log_code()
        return _Wandb(run, ends=True, unsent=Path(f"{run.settings.sync_file}{UNSENT}") if online else None)

    def _stopping(self, wandb: Any) -> dict[str, Any]:
        """Return what keeps W&B from interrupting the main thread; older versions can only do that."""

        def stop() -> None:
            if self.on_stop is not None:
                self.on_stop(self._in_sweep)

        known = "stop_fn" in wandb.Settings.model_fields
        return {"stop_fn": stop} if known and self.on_stop is not None else {}

    def _online(self, wandb: Any) -> bool:
        if self.mode != "auto":
            return self.mode == "online"
        reason = why_unreachable()
        if reason:
            self.offline_because(reason, self.work_dir / "wandb")
        return not reason


class _Wandb(Tracker):
    def __init__(self, run: Any, ends: bool, unsent: Path | None = None) -> None:
        self._run, self._ends, self._unsent = run, ends, unsent
        if unsent is not None:
            unsent.touch()
        # W&B counts no steps in a run that several processes share.
        self._shared = not ends and run.settings.mode == "shared"
        # A run that goes on takes no row of the steps that it has. At first its `step` is 0 nevertheless.
        self._at = int(getattr(run, "starting_step", 0)) if ends else 0

    def delivered(self) -> Delivered:
        # Its next step; W&B takes no row of an earlier one.
        last = max(int(self._run.step), int(getattr(self._run, "starting_step", 0))) - 1
        return Delivered(numbers=last, others=last)

    def scalars(self, record: TrackerRecord) -> None:
        self._log(dict(record.content), record.step)

    def image(self, record: TrackerRecord) -> None:
        import wandb

        late = self._ends and record.step < self._at
        caption = f"iteration {record.step}" if late else None
        self._log({record.content["name"]: wandb.Image(record.content["image"], caption=caption)}, record.step)

    def histogram(self, record: TrackerRecord) -> None:
        import wandb

        both = record.content["counts"], record.content["edges"]
        self._log({record.content["name"]: wandb.Histogram(np_histogram=both)}, record.step)

    def result(self, record: TrackerRecord) -> None:
        import wandb

        name, found = record.content["name"], record.content["result"]
        labels = found.get("labels") or [str(place) for place in range(len(found.get("values", ())))]
        if found["kind"] == "matrix":
            rows = [
                [labels[i], labels[j], count] for i, row in enumerate(found["values"]) for j, count in enumerate(row)
            ]
            table = wandb.Table(columns=["Actual", "Predicted", "nPredictions"], data=rows)
            fields = {column: column for column in ("Actual", "Predicted", "nPredictions")}
            shown = wandb.plot_table("wandb/confusion_matrix/v1", table, fields, {"title": name})
        elif found["kind"] == "vector":
            table = wandb.Table(
                columns=["class", "value"], data=[list(one) for one in zip(labels, found["values"], strict=True)]
            )
            shown = wandb.plot.bar(table, "class", "value", title=name)
        elif found["kind"] == "table":
            columns = [uniform(column) for column in zip(*found["rows"], strict=True)]
            data = [list(row) for row in zip(*columns, strict=True)]
            shown = wandb.Table(columns=found["columns"], data=data)
        else:
            xs, ys = ([line[place] for line in found["lines"].values()] for place in (0, 1))
            keys = [label or name for label in found["lines"]]
            shown = wandb.plot.line_series(xs, ys, keys=keys, title=name, xname=found["axes"][0])
        self._log({name: shown}, record.step)

    def _log(self, row: dict[str, Any], step: int) -> None:
        """Log a row at a step that W&B accepts; it drops rows of steps before its own."""
        if self._ends:
            self._at = max(self._at, step)
            self._run.log(row, step=self._at)
        elif not self._shared and step < self._run.step:
            self._run.log({**row, "iteration": step})
        else:
            self._run.log(row, step=step)

    def media(self, record: TrackerRecord) -> None:
        import wandb

        suffix = suffix_of(record)
        kind = wandb.Audio if TYPES[suffix][0] == "audio" else wandb.Video
        # W&B plays files as they are; of samples and frames it would need soundfile and moviepy.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind.__name__}.{suffix}"
            path.write_bytes(record.content["data"])
            self._log({record.content["name"]: kind(str(path))}, record.step)

    def text(self, record: TrackerRecord) -> None:
        self._run.summary[record.content["name"]] = record.content["text"]

    def values(self, record: TrackerRecord) -> None:
        self._run.summary.update(dict(record.content))

    def config(self, record: TrackerRecord) -> None:
        self._run.config.update(dict(record.content), allow_val_change=True)

    def artifact(self, record: TrackerRecord) -> None:
        path, name = Path(record.content["path"]), record.content["name"]
        if not path.exists():
            raise Refused(f"{path} is no longer there")
        kind, alias = record.content["kind"], alias_of(name)
        # All checkpoints are versions of one artifact, as W&B shows models.
        shown = kind if kind == "model" and alias else Path(name).stem
        plain = re.sub(r"[^\w.-]", "_", f"{shown}-{self._run.id}", flags=re.ASCII)
        self._run.log_artifact(str(path), name=plain, type=kind, aliases=[alias, "latest"] if alias else None)

    def close(self, ended: Ending = "finished") -> bool:
        if not self._ends:
            return True
        try:
            if ended == "stopped":
                self._run.summary["stopped"] = True
            self._run.finish(exit_code=int(ended == "failed"))
        except TimeoutError:
            logger.warning(
                "%s: the end of the run has not arrived at W&B and lies in %s; 'ignite-hooks send' sends it",
                self.name,
                self._run.settings.sync_file,
            )
            return False
        if self._unsent is not None:
            self._unsent.unlink(missing_ok=True)
        return True


def why_unreachable() -> str:
    """Return why no server can be talked to; empty if one can."""
    import wandb

    # What W&B will use, which is not always what the environment says now.
    settings = wandb.setup().settings
    if not settings.api_key and not _has_netrc(settings.base_url):
        return "no key is configured (wandb login)"
    return "" if answers(settings.base_url) else f"{settings.base_url} does not answer"


def alias_of(file: str) -> str:
    """Return the alias of a checkpoint, by which a script asks for it; empty for another file.

    Example:
        >>> alias_of("best_accuracy_epoch_3.pth"), alias_of("last.pth"), alias_of("swa_epoch_4.pth")
        ('best', 'last', '')
    """
    return next((alias for alias in ("best", "last") if re.match(rf"{alias}(_|\.|$)", file)), "")


def uniform(column: Sequence[Any]) -> list[Any]:
    """Return the cells of a column as W&B takes them, all of one type: pictures, numbers or texts.

    Example:
        >>> uniform([1.0, 2.0]), uniform([1.0, "a"])
        ([1.0, 2.0], ['1', 'a'])
    """
    import wandb

    pictures = [picture_in(cell) for cell in column]
    if any(picture is not None for picture in pictures):
        return [None if picture is None else wandb.Image(picture) for picture in pictures]
    return list(column) if len({type(cell) for cell in column}) <= 1 else [shown_cell(cell) for cell in column]


def _follow_environment(wandb: Any) -> None:
    """Begin a new session of W&B if its variables have changed since, which it would ignore."""
    session = wandb.setup()
    if not session.did_environment_change():
        return
    if session.most_recent_active_run is None:
        wandb.teardown()
        return
    logger.warning(
        "WandbWriter: the variables WANDB_... have changed, but the ones before hold, with %s, "
        "because another run of this process is open; finish it first",
        session.settings.base_url,
    )


def _has_netrc(url: str) -> bool:
    import netrc
    from urllib.parse import urlsplit

    try:
        return netrc.netrc().authenticators(urlsplit(url).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False
