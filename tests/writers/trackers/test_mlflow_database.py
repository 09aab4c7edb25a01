"""`mlflow_database.py`: the database of MLflow is there with all its tables or not at all."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ignite_hooks.writers.trackers.mlflow import MLflowWriter
from ignite_hooks.writers.trackers.mlflow_database import _not_synchronised, make_database
from tests import warm
from tests.tools import trackers_at

mlflow = pytest.importorskip("mlflow")
sqlalchemy = pytest.importorskip("sqlalchemy")

DIES = """
import os, signal, sys
from sqlalchemy import Engine, event
from ignite_hooks.writers.trackers.mlflow import MLflowWriter

@event.listens_for(Engine, "before_cursor_execute")
def die(connection, cursor, statement, *_):
    if "INSERT INTO _alembic_tmp_" in statement:
        os.kill(os.getpid(), signal.SIGKILL)

MLflowWriter(sys.argv[1]).load()
"""


@pytest.fixture(autouse=True)
def _trackers(tmp_path: Path) -> Iterator[None]:
    with trackers_at(tmp_path):
        yield


@pytest.mark.slow
def test_a_process_that_is_killed_while_tables_are_made_leaves_no_broken_database(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/runs/of/mine.db"
    command = [sys.executable, "-W", "ignore", "-c", DIES, uri]
    done = warm.run(command, also=warm.TRACKERS, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    writer = MLflowWriter(uri, "after", work_dir=tmp_path, deadline=240.0)
    for step in (1, 2):
        writer.write_scalar("loss", 1.0, step)
    writer.close()
    client = mlflow.MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name("after").experiment_id])
    assert [point.step for point in client.get_metric_history(run.info.run_id, "loss")] == [1, 2]
    assert [path.name for path in (tmp_path / "runs/of").iterdir()] == ["mine.db"]


def test_only_what_is_being_made_is_written_without_waiting_for_the_disk(tmp_path: Path) -> None:
    made, another = tmp_path / "made.db", tmp_path / "another.db"

    def synchronous(path: Path) -> int:
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            found: int = connection.execute(sqlalchemy.text("PRAGMA synchronous")).scalar()
        engine.dispose()
        return found

    off, full = 0, 2
    with _not_synchronised(made):
        assert (synchronous(made), synchronous(another)) == (off, full)
    assert synchronous(made) == full


@pytest.mark.parametrize("links", [True, False])
def test_a_database_that_another_run_has_made_meanwhile_stays(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlflow.db"

    def asked(*_: object, **__: object) -> list[object]:
        path.write_text("of another run")
        return []

    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(mlflow.MlflowClient, "search_experiments", asked)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    make_database(f"sqlite:///{path}")
    assert path.read_text() == "of another run"
    assert [found.name for found in tmp_path.glob("*mlflow.db*")] == ["mlflow.db"]


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1", "sqlite:///:memory:", "sqlite://", "file:///tmp/mlruns"])
def test_what_is_no_file_is_left_to_mlflow(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "MlflowClient", None)
    make_database(uri)
