"""Ends a run when its time is up."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.distributed.collectives import broadcast_object
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, parse_every, scheduled
from ignite_hooks.text import shown

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

REASON = "time limit of"


@dataclass
class TimeLimitState:
    """The state of this hook, which checkpoints hold."""

    seconds: float = 0.0
    """The time that the run has taken, in this process and those before it."""


@settings
class TimeLimitHook(BaseHook):
    """Stop the run in good order when its time is up, and make sure that its state is saved.

    Args:
        limit: Seconds, or words such as ``2h 30m``, ``90 min`` or ``1 day``.
        per_process: Whether a resumed run counts from zero, as the time of a job does; otherwise the time
            of all processes of a run counts.

    Saves: the time that has been taken; time_limit_iter_<N>.pth where no other hook saves the last state.
    """

    limit: float | str
    per_process: bool = False
    # At the end of a run after all other hooks: their state belongs in the file.
    priority: PriorityLike = Priority.HIGHEST
    state: TimeLimitState = field(init=False, default_factory=TimeLimitState)
    clock: Callable[[], float] = field(init=False, repr=False, default=time.monotonic)

    # All ranks decide by the clock of rank 0, so there is nothing to vote on.
    may_end_a_run: ClassVar[bool] = False
    collective: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._limit = seconds_of(self.limit)
        self._began: float | None = None
        self._started = self._before = 0.0

    @property
    def when(self) -> When:
        """The interval at which the clock is read: short enough to be at most a hundredth late."""
        return When(min(10.0, self._limit / 100), "second")

    def before_run(self) -> None:
        self.state, self._began, self._before = TimeLimitState(), None, 0.0

    def before_train(self, runner: Runner) -> None:
        """Stop a resumed run whose time is up, unless it is given more."""
        self._started = self.clock()
        self._before = 0.0 if self.per_process else self.state.seconds
        if not self.per_process:
            self._look(runner)

    def before_train_epoch(self) -> None:
        if self._began is None:
            self._began = self._started

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._look(runner)

    def after_epoch(self, runner: Runner) -> None:
        self._look(runner)

    def after_train(self, runner: Runner) -> None:
        stopped_by_me = (runner.stop_reason or "").startswith(REASON)
        somebody_saves = any(getattr(hook, "save_last", False) for hook in runner.hooks.values())
        if stopped_by_me and not somebody_saves and runner.global_step > 0:
            path = runner.save_checkpoint(f"time_limit_iter_{runner.global_step}.pth")
            runner.logger.info("saved %s: resume from it with a higher limit", path)

    def _look(self, runner: Runner) -> None:
        if broadcast_object(self._taken() >= self._limit):
            runner.stop(f"{REASON} {self.limit}{' s' if not isinstance(self.limit, str) else ''} reached")

    def cleanup(self) -> None:
        self.state.seconds, self._began = self._taken(), None

    def state_dict(self) -> dict[str, Any]:
        """Return the time until now."""
        self.state.seconds = self._taken()
        return super().state_dict()

    def _taken(self) -> float:
        return self.state.seconds if self._began is None else self._before + self.clock() - self._began


def seconds_of(limit: float | str) -> float:
    """Read a length of time.

    Example:
        >>> seconds_of("2h 30m"), seconds_of("1 day"), seconds_of(90)
        (9000.0, 86400.0, 90.0)
    """
    if not isinstance(limit, str):
        total = float(limit)
    else:
        parts = re.findall(r"\d+(?:\.\d+)?\s*[a-zA-Z]+", limit)
        left = re.sub(r"\d+(?:\.\d+)?\s*[a-zA-Z]+|[\s,]+", "", limit)
        try:
            amounts = [parse_every(part) for part in parts]
        except ValueError:
            amounts = []
        if left or not amounts or any(unit != "second" for _, unit in amounts):
            raise SettingError("limit", f"{shown(limit)} is no length of time: write seconds, or '2h 30m'")
        total = float(sum(amount for amount, _ in amounts))
    if not 0 < total < float("inf"):
        raise SettingError("limit", f"a time above 0 is needed, not {shown(limit)}")
    return total
