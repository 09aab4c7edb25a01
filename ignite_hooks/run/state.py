"""The state of a run, which only the engine and checkpoints assign and everything else reads."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ignite_hooks.distributed.metric_merging import SharedEvaluation


class Phase(enum.Enum):
    """The phase of a run."""

    IDLE = "idle"
    RUNNING = "running"
    REQUESTED = "requested"
    """This rank has requested the end of the run, and the others do not know yet."""
    AGREED = "agreed"
    """All ranks end the run after the current iteration."""
    CLOSING = "closing"
    """The run has ended, and the hooks clean up."""


@dataclass
class RunState:
    """The state of one run. Only ``engine/`` and ``checkpoint/`` assign it."""

    phase: Phase = Phase.IDLE
    evaluating: str | None = None
    """The name of the evaluator that is running."""
    in_iteration: bool = False
    """Whether the hooks of an iteration are being called."""
    in_epoch: bool = False
    epoch_complete: bool = True
    """Whether the last epoch was completed: False within an epoch, and after a run that was stopped within one."""
    epoch_began_at: int = 0
    """The number of iterations before the current epoch."""
    stop_reason: str | None = None
    """The reason why the run was stopped before its end."""
    aborting: bool = False
    """Whether a signal ends the run, which leaves time only for saving."""
    resume_from: Path | str | bool | None = None
    """The checkpoint to resume from at the start of the next run."""
    resumed_from: Path | None = None
    """The checkpoint this run was resumed from."""
    waited_for_ranks: float = 0.0
    """The seconds spent in votes after iterations, waiting for the slowest rank."""

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return self.phase in _RUNNING


_RUNNING = (Phase.RUNNING, Phase.REQUESTED, Phase.AGREED)


@dataclass
class EvaluationOptions:
    """Options for evaluations, set by hooks."""

    extra: dict[str, Callable[[], AbstractContextManager[Any]]] = field(default_factory=dict)
    """The extra evaluations before each evaluation: the suffix of the name, and the context to run it in."""
    shared: SharedEvaluation | None = None
    """How the ranks share the next evaluation; None if each rank runs all of it."""
