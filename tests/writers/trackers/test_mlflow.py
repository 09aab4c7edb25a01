"""The settings of the writer for MLflow; what it records is tested in `tests/hooks/trackers/test_mlflow_hook.py`."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from ignite_hooks.writers.convert import flattened
from ignite_hooks.writers.trackers.mlflow import MLflowWriter
from ignite_hooks.writers.trackers.spool import Spool
from tests.tools import trackers_at

pytest.importorskip("mlflow")


@pytest.fixture(scope="module", autouse=True)
def _trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with trackers_at(tmp_path_factory.mktemp("trackers")):
        yield


def test_a_run_begins_while_another_thread_imports_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = MLflowWriter("http://127.0.0.1:1", mode="offline", work_dir=tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    writer.write_scalar("loss", 1.0, 1)
    monkeypatch.undo()
    writer.close()
    assert [record.step for record in Spool(tmp_path / "mlflow.spool")] == [1]


def test_without_settings_the_database_is_in_the_work_directory(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI")
        writer = MLflowWriter(work_dir=tmp_path)
    assert writer.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert writer.experiment == "ignite_hooks"


def test_environment_variables_of_mlflow_are_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "by variable")
    writer = MLflowWriter(work_dir=tmp_path)
    assert (writer.tracking_uri, writer.experiment) == (os.environ["MLFLOW_TRACKING_URI"], "by variable")


def test_a_password_in_an_address_is_not_saved(tmp_path: Path) -> None:
    writer = MLflowWriter("http://me:hush-4711@host:1", mode="offline", work_dir=tmp_path)
    writer.write_scalar("loss", 1.0, 1)
    writer.close()
    [path] = tmp_path.iterdir()
    assert "hush-4711" not in path.read_text()
    assert Spool(path).read_header()["settings"]["tracking_uri"] == "http://host:1"


@pytest.mark.parametrize(
    ("config", "flat"),
    [
        ({"a": {"b": [1, {"c": 2}]}}, [("a.b.0", 1), ("a.b.1.c", 2)]),
        ({"empty": [], "none": None, "also": {}}, [("empty", "[]"), ("none", None), ("also", {})]),
    ],
)
def test_a_configuration_becomes_parameters(config: Any, flat: Any) -> None:
    assert flattened(config) == flat


def test_a_long_configuration_is_sent_in_parts_that_mlflow_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import mlflow

    sent, log_batch = [], mlflow.MlflowClient.log_batch

    def counted(self: Any, run_id: str, *given: Any, **named: Any) -> Any:
        sent.append(len(named.get("params", ())))
        return log_batch(self, run_id, *given, **named)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", counted)
    writer = MLflowWriter(f"sqlite:///{tmp_path}/a.db", work_dir=tmp_path, deadline=240.0)
    writer.write_config({"layers": [{"size": size} for size in range(250)]})
    writer.close()
    found = mlflow.MlflowClient(writer.tracking_uri).get_run(writer.run_id)
    assert found.data.params == {f"layers.{size}.size": str(size) for size in range(250)}
    assert [number for number in sent if number] == [100, 100, 50]
    assert "does not take" not in caplog.text


def test_no_name_blocks_later_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """MLflow rejects a whole batch if one name is not a path, and pictures with names that are not ASCII."""
    import mlflow

    writer = MLflowWriter(f"sqlite:///{tmp_path}/a.db", work_dir=tmp_path, deadline=240.0)
    names = ["损失", "a//b", "../x", "/y/", "f(1)", "", "."]
    writer.write_config({**dict.fromkeys(names, 1), "f)1)": 2, 3: 4})
    for name in names:
        writer.write_scalar(name, 1.0, 1)
        writer.write_image(name, numpy.zeros((2, 2, 3), numpy.uint8), 1)
        writer.write_text(name, "x", 1)
    writer.write_scalar("last", 1.0, 1)
    writer.close()
    assert [found.getMessage() for found in caplog.records if found.name == "ignite_hooks"] == []
    found = mlflow.MlflowClient(writer.tracking_uri).get_run(writer.run_id)
    assert found.data.metrics.keys() == {"损失", "a/b", "x", "y", "f_1_", "_", "last"}
    assert found.data.params["f_1_"] == "1"
    assert not list(tmp_path.glob("*.spool"))
