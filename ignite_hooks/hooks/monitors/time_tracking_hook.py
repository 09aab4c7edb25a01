"""Logs the time of epochs and the end of the run to expect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.text import clock

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@dataclass
class TimeState:
    """The state from which a resumed run continues."""

    seconds: float = 0.0
    """Seconds of training, in this process and those before it."""


@settings
class TimeTrackingHook(BaseHook):
    """Log the time of each whole epoch, the total time of the run, and when it will be done.

    Args:
        frequency: Number of epochs between two lines.
        log_to_file: Whether to write the lines to a separate file as well.
        log_path: This file; a relative path is below the work directory.

    Writes: time/epoch, time/total, time/left.
    Saves: the time that has been taken.
    """

    frequency: Annotated[int, Ge(1)] = 1
    log_to_file: bool = True
    log_path: Path = Path("time_tracking.log")
    # Around everything else in an epoch: evaluation and checkpoint are part of it.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    state: TimeState = field(init=False, default_factory=TimeState)
    clock: Callable[[], float] = field(init=False, repr=False, default=time.monotonic)
    now: Callable[[], datetime] = field(init=False, repr=False, default=datetime.now)

    def __post_init__(self) -> None:
        self._began: float | None = None
        self._started = self._epoch_began = self._before = 0.0
        self._done_before = 0

    def before_run(self) -> None:
        self.state, self._began = TimeState(), None

    def before_train(self, runner: Runner) -> None:
        """Start the clock after a checkpoint has been loaded."""
        self._started = self._epoch_began = self.clock()
        self._before, self._done_before = self.state.seconds, runner.iter
        if runner.state.resumed_from is not None:
            self._log(runner, f"going on at epoch {runner.epoch + 1}, after {clock(self._before)}")

    def before_epoch(self) -> None:
        self._epoch_began = self.clock()
        # Until here the state is that of the checkpoint.
        self._began = self._started if self._began is None else self._began

    @scheduled
    def after_epoch(self, runner: Runner) -> None:
        epoch = int(runner.trainer.state.epoch)
        found = {"time/epoch": self.clock() - self._epoch_began, "time/total": self._total()}
        words = [f"epoch {epoch}" if runner.max_epochs is None else f"epoch {epoch}/{runner.max_epochs}"]
        if not runner.state.epoch_complete:
            words = [f"{words[0]}, cut short"]
        words += [f"took {clock(found['time/epoch'])}", f"total {clock(found['time/total'])}"]
        done, wanted = runner.global_step - self._done_before, runner.max_iters
        if wanted is not None and done > 0 and wanted > runner.global_step:
            # Estimated from this process alone, evaluations included: an earlier one may have been faster.
            left = (found["time/total"] - self._before) * (wanted - runner.global_step) / done
            found["time/left"] = left
            words += [f"left {clock(left)}", f"done at {self.now() + timedelta(seconds=left):%Y-%m-%d %H:%M}"]
        runner.writer.write_scalars(found, runner.global_step, kind="train", epoch=epoch)
        self._log(runner, "  ".join(words))

    def after_run(self, runner: Runner) -> None:
        done = runner.max_iters is None or runner.global_step >= runner.max_iters
        self._log(runner, f"{'done' if done else 'ended'} after {clock(self._total())}")

    def cleanup(self) -> None:
        self.state.seconds, self._began = self._total(), None

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the time until now."""
        self.state.seconds = self._total()
        return super().state_dict()

    def _total(self) -> float:
        return self.state.seconds if self._began is None else self._before + self.clock() - self._began

    def _log(self, runner: Runner, line: str) -> None:
        if not is_main_process():
            return
        runner.logger.info("%s", line)
        if self.log_to_file:
            path = runner.work_dir / self.log_path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{self.now():%Y-%m-%d %H:%M:%S}  {line}\n")
