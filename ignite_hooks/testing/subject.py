"""The hook that is being checked, and the training script it is attached to."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ignite.engine import Engine, Events

from ignite_hooks.attach import attach_hooks
from ignite_hooks.config.build import build_hook
from ignite_hooks.errors import ConfigError, HookError
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.run.runner import Runner
from ignite_hooks.testing.tiny import TinyRun, build_tiny_run
from ignite_hooks.writers.memory import MemoryWriter


class Script:
    """A training script as it stands before hooks are attached: it trains, and evaluates after every epoch."""

    def __init__(self, run: TinyRun | None = None) -> None:
        self.run = run or build_tiny_run()
        trainer, evaluator, val_data = self.run.trainer, self.run.evaluator, self.run.val_data
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))

    def train(self) -> None:
        self.run.trainer.run(self.run.data, max_epochs=2)

    def weights(self) -> dict[str, Any]:
        """Return copies of what training changes."""
        return copy.deepcopy({"model": self.run.model.state_dict(), "optimizer": self.run.optimizer.state_dict()})

    def restore(self, weights: Mapping[str, Any]) -> None:
        self.run.model.load_state_dict(weights["model"])
        self.run.optimizer.load_state_dict(weights["optimizer"])


@dataclass(frozen=True)
class Subject:
    """The hook that is checked: how to make it, and with which services and settings."""

    make: Callable[..., Any]
    services: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return getattr(self.make, "__name__", type(self.make).__name__)

    def breaks(self, promise: str, cause: BaseException | None = None) -> NoReturn:
        raise AssertionError(f"{self.name} {promise}") from cause

    def build(self, settings: Mapping[str, Any]) -> Any:
        try:
            return build_hook({"type": self.make, **settings}, {**build_tiny_run().services, **self.services})
        except ConfigError as error:
            self.breaks(f"cannot be built: {error}", error)

    @contextlib.contextmanager
    def attached(self, script: Script, *others: BaseHook, settings: Mapping[str, Any] | None = None) -> Iterator[Scene]:
        """Attach the hook to a script, together with others, for as long as the context lasts."""
        entry = {"type": self.make, **(self.settings if settings is None else settings)}
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                runner = attach_hooks(
                    script.run.trainer,
                    {"hooks": [entry, *others], "writers": [MemoryWriter()]},
                    evaluators=script.run.evaluator,
                    work_dir=folder,
                    **{**script.run.services, **self.services},
                )
            except ConfigError as error:
                self.breaks(f"cannot be attached: {error}", error)
            try:
                yield Scene(self, script, runner, *next(iter(runner.hooks.items())))
            finally:
                runner.detach()


@dataclass(frozen=True)
class Scene:
    """The hook, attached to a script."""

    subject: Subject
    script: Script
    runner: Runner
    called: str
    hook: Any

    def train(self) -> None:
        """Run the script, in which nothing is wrong."""
        try:
            self.script.train()
        except HookError as error:
            self.subject.breaks(f"fails where nothing is wrong: {error}", error)
        except ConfigError as error:
            self.subject.breaks(f"cannot run: {error}", error)
        self.must_not_have_failed()

    def must_not_have_failed(self) -> None:
        """Raise for failures that were only logged, too."""
        if failures := self.runner.report().failures.get(self.called):
            self.subject.breaks(f"fails where nothing is wrong: {failures.last}")


class Enough(Exception):
    """Ends a run that has been observed for long enough."""


def end_early(trainer: Engine, error: BaseException | None) -> None:
    """Make the fifth step, in the middle of an epoch, raise an error, or terminate the run if there is none."""
    step = trainer._process_function

    def ending_step(engine: Engine, batch: Any) -> Any:
        if engine.state.iteration == 5:
            if error is not None:
                raise error
            engine.terminate()
        return step(engine, batch)

    trainer._process_function = ending_step
