"""The database of MLflow on this machine, which is there with all its tables or not at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ignite_hooks.system import host

PREFIX = "sqlite:///"


def make_database(uri: str) -> None:
    """Make the database of an address, unless it is there or is no file.

    MLflow makes its tables one after the other, for seconds: a process that is killed meanwhile leaves a database that
    nobody can use any more.

    Args:
        uri: As MLflow has it.
    """
    path = Path(uri.removeprefix(PREFIX))
    if not uri.startswith(PREFIX) or path.name in ("", ":memory:") or "?" in path.name or path.exists():
        return
    import mlflow

    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    # MLflow may keep it open, and on some systems what is open cannot be removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "mlflow.db"
        with _not_synchronised(made):
            mlflow.MlflowClient(f"{PREFIX}{made}").search_experiments(max_results=1)
        with contextlib.closing(sqlite3.connect(made)) as source, contextlib.closing(sqlite3.connect(whole)) as target:
            source.backup(target)
    try:
        # Not a rename: another run may have made it meanwhile.
        os.link(whole, path)
    except OSError:
        if not path.exists():
            host.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


@contextlib.contextmanager
def _not_synchronised(path: Path) -> Iterator[None]:
    """Let MLflow write a database that nobody needs after a crash without waiting for the disk hundreds of times."""
    from sqlalchemy import Engine, event

    def connected(connection: Any, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            [(*_, file)] = connection.execute("PRAGMA database_list").fetchall()[:1]
            if file and Path(file).resolve() == path.resolve():
                connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", connected)
