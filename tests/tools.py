"""What several tests need: hooks that write down when they are called, and small engines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy

from ignite_hooks import BaseHook, Runner, attach_hooks
from ignite_hooks.plan.points import POINTS

Log = list[tuple[Any, ...]]


def recorder(log: Log, name: str = "recorder", points: Iterable[str] = POINTS, **settings: Any) -> BaseHook:
    """A hook that appends (name, point, epoch, iteration) to a log, both counted from 1 as Ignite does."""

    def answer(point: str) -> Any:
        def method(self: BaseHook, runner: Any) -> None:
            log.append((name, point, runner.trainer.state.epoch, runner.global_step))

        return method

    cls = type("Recorder", (BaseHook,), {point: answer(point) for point in points})
    return cls(name=name, **settings)


def failing(point: str, at: int = 3, error: BaseException | None = None, **settings: Any) -> BaseHook:
    """A hook that raises at its at-th call."""
    calls = []

    def method(self: BaseHook) -> None:
        calls.append(point)
        if len(calls) == at:
            raise error or ValueError("boom")

    return type("Failing", (BaseHook,), {point: method})(**settings)


def echo_trainer() -> Engine:
    """A trainer whose step returns its batch."""
    return Engine(lambda engine, batch: batch)


def small_run(seed: int = 0) -> tuple[Engine, Engine, list[Any], list[Any], torch.nn.Module]:
    """A real trainer and evaluator with their data and model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def batches(count: int) -> list[Any]:
        return [
            (torch.randn(8, 4, generator=generator), torch.randint(0, 3, (8,), generator=generator))
            for _ in range(count)
        ]

    trainer = create_supervised_trainer(model, optimizer, torch.nn.CrossEntropyLoss())
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()})
    return trainer, evaluator, batches(3), batches(2), model


def straight_and_resumed(
    folder: Path, make: Callable[[], tuple[Engine, Any, dict[str, Any]]], hook: Any, *, stop: int, epochs: int = 4
) -> tuple[Runner, Runner]:
    """The runs of two trainers with a hook: one that was never stopped, and one that was and has gone on.

    Args:
        folder: Where both save.
        make: Makes a trainer with its data and services, the same each time.
        hook: Its entry in a configuration, or a function that makes it.
        stop: The iteration after which the second is stopped.
        epochs: How many both have in the end.
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
    """Trackers without servers: their caches and settings lie in a folder, and none of the user's are seen."""
    own = [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "CLEARML_"))]
    (folder / "clearml.conf").write_text("api { }")
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
        yield
