"""Helpers for several tests: small engines, runs that stop and resume, and trackers without servers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ignite.engine import Engine, Events

from ignite_hooks import Runner, attach_hooks

Log = list[tuple[Any, ...]]


def echo_trainer() -> Engine:
    """Return a trainer whose step returns its batch."""
    return Engine(lambda engine, batch: batch)


def straight_and_resumed(
    folder: Path, make: Callable[[], tuple[Engine, Any, dict[str, Any]]], hook: Any, *, stop: int, epochs: int = 4
) -> tuple[Runner, Runner]:
    """Return the runs of two trainers with a hook: an uninterrupted one, and one that was stopped and resumed.

    Args:
        folder: Where both save.
        make: Returns a trainer with its data and services, the same each time.
        hook: The entry of the hook in a configuration, or a function that makes the hook.
        stop: The iteration after which the second is stopped.
        epochs: The number of epochs of both in the end.
    """

    def run(name: str, stop: int | None = None, resume: str | None = None) -> Runner:
        trainer, data, services = make()
        saves = {"type": "CheckpointHook", "save_best": False}
        hooks = [hook() if callable(hook) else hook, saves]
        runner = attach_hooks(trainer, hooks, work_dir=folder / name, resume=resume, **services)
        if stop is not None:
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=stop), trainer.terminate)
        trainer.run(data, max_epochs=epochs)
        return runner

    straight = run("straight")
    run("stopped", stop=stop)
    return straight, run("stopped", resume="auto")


@contextlib.contextmanager
def trackers_at(folder: Path) -> Iterator[None]:
    """Let trackers work without servers, with caches and settings in a folder instead of the user's."""
    own = [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "CLEARML_", "TRAINS_"))]
    # Else ClearML reads every file of this repository at the begin of a task, and its end waits for that.
    (folder / "clearml.conf").write_text(f'sdk {{ development {{ detect_with_pip_freeze: "{os.devnull}" }} }}')
    settings = {
        "WANDB_MODE": "offline",
        "WANDB_CONFIG_DIR": f"{folder}/wandb-config",
        "WANDB_CACHE_DIR": f"{folder}/wandb-cache",
        "WANDB_DATA_DIR": f"{folder}/wandb-data",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "CLEARML_CACHE_DIR": f"{folder}/clearml",
        "CLEARML_CONFIG_FILE": f"{folder}/clearml.conf",
    }
    with patch.dict(os.environ, settings):
        for name in own:
            if name not in settings:
                del os.environ[name]
        try:
            yield
        finally:
            forget_trackers()


def forget_trackers() -> None:
    """End what trackers keep for the process: runs left open, sessions with servers and keys."""
    wandb, mlflow, clearml = (sys.modules.get(name) for name in ("wandb", "mlflow", "clearml"))
    if hasattr(wandb, "teardown"):
        wandb.teardown()
    if hasattr(mlflow, "active_run"):
        while mlflow.active_run():
            mlflow.end_run()
        mlflow.set_tracking_uri(None)
    if hasattr(clearml, "Task"):
        from clearml.backend_interface.base import InterfaceBase

        task = clearml.Task.current_task()
        if task is not None:
            task.close()
        # Back online each session would ask its server; the writer does so where one answers.
        InterfaceBase._set_default_session(None)
