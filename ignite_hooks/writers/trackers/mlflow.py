"""The writer for MLflow: a server, or a SQLite file in the work directory."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ignite_hooks.secrets import masked
from ignite_hooks.system.host import second_name
from ignite_hooks.writers.convert import flattened, shown_cell
from ignite_hooks.writers.interface import installed
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.mlflow_database import make_database
from ignite_hooks.writers.trackers.probe import answers
from ignite_hooks.writers.trackers.spool import TrackerRecord, suffix_of
from ignite_hooks.writers.trackers.tracker import Ending, Offline, Refused, Tracker, Unreachable
from ignite_hooks.writers.trackers.tracker_writer import Mode, OnResume, TrackerWriter

# The limits of one request.
METRICS_AT_ONCE = 1000
PARAMETERS_AT_ONCE = 100
LONGEST_PARAMETER = 6000
PICTURES = "mlflow.loggedImages"
"""The tag of a run that has pictures."""
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
# By default MLflow waits two minutes for an answer and asks seven times.
SHORTER = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}

logger = logging.getLogger("ignite_hooks")


class MLflowWriter(TrackerWriter):
    """Records the run in MLflow, from a thread: numbers, pictures, texts, the configuration, files; no histograms.

    The environment variables of MLflow are honoured, and a run that the script has made active is used.

    Args:
        tracking_uri: The server or database; else ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the work directory.
        experiment: The name of the experiment; else ``MLFLOW_EXPERIMENT_NAME``, else ``ignite_hooks``.
        run_name: The name of the run; the work directory's by default.
        mode: auto: offline if the server does not answer; online; offline: for a server, kept in a file for
            ``ignite-hooks send``; disabled.
        deadline: Seconds for which the end of a run waits for records that are being delivered.
        on_resume: Whether a resumed run goes on in the same run of the tracker, or begins a new one.
        work_dir: The work directory of the run, which ``attach_hooks`` supplies.
    """

    imported_ahead = (
        "mlflow",
        "mlflow.store.artifact.mlflow_artifacts_repo",
        "mlflow.store.tracking.rest_store",
        "mlflow.utils.search_logged_model_utils",
        "PIL.WebPImagePlugin",
    )

    draws_results = True

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        run_name: str | None = None,
        *,
        mode: Mode = "auto",
        deadline: float = 20.0,
        on_resume: OnResume = "same",
        work_dir: str | Path | None = None,
    ) -> None:
        super().__init__("mlflow", mode, work_dir, deadline, on_resume)
        if mode != "disabled":
            installed("mlflow", "mlflow")
            installed("sqlalchemy", "mlflow")
        database = f"sqlite:///{self.work_dir / 'mlflow.db'}"
        self.tracking_uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or database
        self._experiment_id = None if experiment else os.environ.get("MLFLOW_EXPERIMENT_ID")
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "ignite_hooks"
        self.run_name = run_name or os.environ.get("MLFLOW_RUN_NAME") or self.work_dir.name
        self._of_script = False
        self._asked = False

    def settings(self) -> dict[str, Any]:
        # Credentials are not kept; use MLFLOW_TRACKING_USERNAME and ..._PASSWORD when sending later.
        uri = re.sub(r"(?<=://)[^/@]*@", "", self.tracking_uri)
        return {"tracking_uri": uri, "experiment": self.experiment, "run_name": self.run_name}

    def write_model(self, path: Path, name: str, details: Mapping[str, Any]) -> None:
        """Write a checkpoint as a model of this name, with its step and its metrics."""
        content = {"path": str(path.absolute()), "name": name, "kind": "model", "details": dict(details)}
        self._put("artifact", details["iteration"], content)

    def resumed(self, step: int) -> None:
        super().resumed(step)
        self._of_script = False

    def prepare(self) -> None:
        # The active run belongs to the thread of the script. A module that is still being imported has none yet.
        mlflow: Any = sys.modules.get("mlflow")
        active = mlflow.active_run() if hasattr(mlflow, "active_run") else None
        if active is not None:
            self.run_id, self._of_script = active.info.run_id, True
            self.tracking_uri = mlflow.get_tracking_uri()

    def load(self) -> None:
        if self.tracking_uri.startswith("sqlite:///") and self.mode != "disabled":
            import mlflow

            make_database(self.tracking_uri)
            # The first call looks at all tables.
            mlflow.MlflowClient(self.tracking_uri).get_experiment_by_name(self.experiment)

    def connect(self) -> Tracker:
        remote = self.tracking_uri.startswith(("http://", "https://"))
        if remote and self.mode == "offline":
            raise Offline("mode: offline")
        if remote and not answers(f"{self.tracking_uri.rstrip('/')}/health"):
            reason = masked(f"{self.tracking_uri} does not answer")
            if self.mode != "auto":
                raise Unreachable(reason)
            if not self._asked:
                self.offline_because(reason, self.work_dir)
            self._asked = True
            raise Offline(reason)
        import mlflow

        client = mlflow.MlflowClient(self.tracking_uri)
        borrowed = {name: value for name, value in SHORTER.items() if remote and name not in os.environ}
        os.environ.update(borrowed)
        if self.run_id is not None and not self._of_script and not self._is_there(client):
            self.run_id = None
        if self.run_id is None:
            # MLflow would begin the run now, which is later than its first record, much later if it is sent again.
            began = None if self.began is None else int(self.began * 1000)
            self.run_id = (
                os.environ.get("MLFLOW_RUN_ID")
                or client.create_run(self._experiment(client, remote), began, run_name=self.run_name).info.run_id
            )
        if remote:
            experiment = client.get_run(self.run_id).info.experiment_id
            self.page = f"{self.settings()['tracking_uri'].rstrip('/')}/#/experiments/{experiment}/runs/{self.run_id}"
        return _MLflow(client, self.run_id, borrowed, ends=not self._of_script)

    def _is_there(self, client: Any) -> bool:
        """Let the run go on; return False if its database is another one, as on an emptied disk."""
        from mlflow.exceptions import MlflowException

        try:
            client.update_run(self.run_id, status="RUNNING")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            logger.warning(
                "MLflowWriter: run %s is not in %s: what comes goes to a new run; metrics.jsonl has the numbers before",
                self.run_id,
                masked(self.tracking_uri),
            )
            return False
        return True

    def _experiment(self, client: Any, remote: bool) -> str:
        if self._experiment_id:
            return self._experiment_id
        found = client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        # By default MLflow puts files into the current folder.
        folder = None if remote else (self.work_dir / "mlflow").as_uri()
        return str(client.create_experiment(self.experiment, artifact_location=folder))


class _MLflow(Tracker):
    def __init__(self, client: Any, run_id: str, borrowed: Mapping[str, str], ends: bool) -> None:
        self._client, self._run_id, self._borrowed, self._ends = client, run_id, borrowed, ends
        self._ended: int | None = None
        """The time of the last record in milliseconds."""

    def send(self, records: Sequence[TrackerRecord]) -> None:
        from mlflow.entities import Metric

        self._ended = max((int(record.time * 1000) for record in records), default=self._ended)
        metrics = [
            Metric(_name(name), value, int(record.time * 1000), record.step)
            for record in records
            if record.what == "scalars"
            for name, value in record.content.items()
        ]
        for start in range(0, len(metrics), METRICS_AT_ONCE):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + METRICS_AT_ONCE])
        super().send([record for record in records if record.what not in ("scalars", "histogram")])

    def delivered(self) -> Delivered:
        run = self._client.get_run(self._run_id)
        known = {metric.key: int(metric.step) for metric in run.data.to_proto().metrics}
        # The tag comes after the first picture.
        there = self._client.list_artifacts(self._run_id, "images") if PICTURES in run.data.tags else []
        return _InMLflow(known, pictures=frozenset(key for file in there if (key := _pictured(file.path)) is not None))

    def arrived(self) -> Delivered:
        # Everything was sent in order.
        return self.delivered()

    def image(self, record: TrackerRecord) -> None:
        name, picture = record.content["name"], record.content["image"]
        self._client.log_image(self._run_id, picture, key=_plain(_name(name)), step=record.step)

    def result(self, record: TrackerRecord) -> None:
        name, found = _plain(_name(record.content["name"])), record.content["result"]
        file = f"results/{name}_{record.step}.json"
        if found["kind"] == "table":
            columns, rows = found["columns"], [[shown_cell(cell) for cell in row] for row in found["rows"]]
            # What the page of a run shows as a table: a row is a list.
            self._client.log_dict(self._run_id, {"columns": columns, "data": rows}, file)
        else:
            self._client.log_dict(self._run_id, found, file)

    def media(self, record: TrackerRecord) -> None:
        name = _plain(_name(record.content["name"]))
        with tempfile.TemporaryDirectory() as elsewhere:
            path = Path(elsewhere) / f"{name.rpartition('/')[2]}_{record.step}.{suffix_of(record)}"
            path.write_bytes(record.content["data"])
            self._client.log_artifact(self._run_id, str(path), f"media/{name.rpartition('/')[0]}".rstrip("/"))

    def text(self, record: TrackerRecord) -> None:
        name = re.sub(r"[^\w.-]", "_", record.content["name"])
        self._client.log_text(self._run_id, record.content["text"], f"texts/{name}_{record.step}.txt")

    def config(self, record: TrackerRecord) -> None:
        from mlflow.entities import Param

        named = {_name(name): str(value)[:LONGEST_PARAMETER] for name, value in reversed(flattened(record.content))}
        known = self._client.get_run(self._run_id).data.params
        # MLflow does not allow a parameter to change.
        flat = [Param(name, value) for name, value in reversed(named.items()) if name not in known]
        for start in range(0, len(flat), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run_id, params=flat[start : start + PARAMETERS_AT_ONCE])
        whole = json.dumps(record.content, indent=2, ensure_ascii=False, default=str)
        self._client.log_text(self._run_id, whole, "config.json")

    def artifact(self, record: TrackerRecord) -> None:
        path, kind, name = Path(record.content["path"]), record.content["kind"], record.content["name"]
        if not path.exists():
            raise Refused(f"{path} is no longer there")
        if "details" in record.content and self._model(path, name, record):
            return
        name = path.name if kind == "model" else name
        folder = "checkpoints" if kind == "model" else None
        if path.name == name:
            self._client.log_artifact(self._run_id, str(path), folder)
            return
        with tempfile.TemporaryDirectory() as elsewhere:
            renamed = Path(elsewhere) / name
            second_name(path, renamed)
            self._client.log_artifact(self._run_id, str(renamed), folder)

    def _model(self, path: Path, name: str, record: TrackerRecord) -> bool:
        """Make a model of a checkpoint, with the metrics of its step; return False if the server knows no models."""
        from mlflow.entities import LoggedModelOutput, Metric
        from mlflow.exceptions import MlflowException

        details, name = record.content["details"], re.sub(r"[^\w -]", "_", name)
        experiment = self._client.get_run(self._run_id).info.experiment_id
        of_it = f"source_run_id = '{self._run_id}' AND name = '{name}' AND tags.checksum = '{details['checksum']}'"
        tags = {key: str(details[key]) for key in ("iteration", "epoch", "checksum", "file")}
        try:
            known = self._client.search_logged_models([experiment], filter_string=of_it)
            # A record that is sent again makes no second one; one that was cut off is made anew.
            if any(str(model.status) == "READY" for model in known):
                return True
            model = self._client.create_logged_model(experiment, name, self._run_id, tags, model_type="checkpoint")
        except MlflowException as error:
            if error.error_code != "ENDPOINT_NOT_FOUND":
                raise
            return False
        self._client.log_model_artifact(model.model_id, str(path))
        # The very entries that the run has: a number of both is one number.
        metrics = [Metric(m.key, m.value, m.timestamp, m.step, model.model_id) for m in self._of_step(record.step)]
        if metrics:
            self._client.log_batch(self._run_id, metrics=metrics)
        self._client.log_outputs(self._run_id, [LoggedModelOutput(model.model_id, record.step)])
        self._client.finalize_logged_model(model.model_id, "READY")
        return True

    def _of_step(self, step: int) -> Iterator[Any]:
        """Yield what the run has of a step; the whole history of a metric only where that has gone on since."""
        for latest in self._client.get_run(self._run_id).data.to_proto().metrics:
            if latest.step == step:
                yield latest
            elif latest.step > step:
                history = self._client.get_metric_history(self._run_id, latest.key)
                yield from [one for one in history if one.step == step][-1:]

    def close(self, ended: Ending = "finished") -> bool:
        try:
            if self._ends:
                self._client.set_terminated(self._run_id, STATUS[ended], self._ended)
        finally:
            for name, value in self._borrowed.items():
                if os.environ.get(name) == value:
                    del os.environ[name]
        return True


@dataclass(frozen=True)
class _InMLflow(Delivered):
    """What MLflow has, which changes some names; what becomes a file replaces that."""

    pictures: frozenset[tuple[str, int]] = frozenset()
    """The keys and steps of pictures."""

    def missing_of(self, record: TrackerRecord) -> TrackerRecord | None:
        if record.what == "image":
            return None if (_plain(_name(record.content["name"])), record.step) in self.pictures else record
        if record.what != "scalars":
            return record
        left = {name: value for name, value in record.content.items() if record.step > self.names.get(_name(name), -1)}
        return replace(record, content=left) if left else None


def _pictured(path: str) -> tuple[str, int] | None:
    """Return the key and the step of a picture; it consists of two files, of which the small one comes last.

    Example:
        >>> _pictured("images/val~cat+step+4+timestamp+17+0d-1+compressed.webp")
        ('val/cat', 4)
    """
    found = re.fullmatch(r"images/(.+)([+%])step\2(\d+)\2timestamp\2\d+\2.*\2compressed\.webp", path)
    return None if found is None else (re.sub("[~#]", "/", found[1]), int(found[3]))


def _name(name: str) -> str:
    """Return a name as MLflow accepts it, which has to be a path within a folder.

    Example:
        >>> _name("val/f1(macro)"), _name("./data//train/"), _name("..")
        ('val/f1_macro_', 'data/train', '_')
    """
    parts = re.sub(r"[^\w\-. :/]", "_", name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:250].rstrip("/") or "_"


def _plain(name: str) -> str:
    """Return a name for a picture, in ASCII as MLflow requires: other letters by their numbers.

    Example:
        >>> _plain("val/\u732b 1")
        'val/_732b 1'
    """
    return re.sub(
        r"[^\w\-. /]", lambda found: "_" if found[0].isascii() else f"_{ord(found[0]):x}", name, flags=re.ASCII
    )
