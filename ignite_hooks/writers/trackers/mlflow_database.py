"""The database of MLflow on this machine, which is there with all its tables or not at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

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
