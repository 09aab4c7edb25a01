"""The state of a run, which only the engine and checkpoints assign and everything else reads."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ignite_hooks.results.outcome import StopKind
from ignite_hooks.text import number

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.distributed.metric_merging import SharedEvaluation
    from ignite_hooks.run.best import Record


class RankTime(NamedTuple):
    """The mean time of an iteration on one rank, in seconds."""

    whole: float
    own: float
    """Without the backward pass and the votes, in which it may wait for others."""


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


@dataclass(frozen=True)
class Delivered:
    """The weights that a run delivers where they are not those of its last iteration."""

    what: str
    """What they are: ``the best val_loss``, ``the mean of the weights``."""
    epoch: int
    step: int
    metric: str | None = None
    """The metric by which they are the best."""
    score: float | None = None
    file: str | None = None
    """The file that holds them, below the work directory."""

    @classmethod
    def best(cls, metric: str, record: Record) -> Delivered:
        """Return the weights with the best score of a metric."""
        return cls(f"the best {metric}", record.epoch, record.step, metric, record.score, record.file)

    def __str__(self) -> str:
        """Say what they are.

        Example:
            >>> print(Delivered("the best val_loss", 9, 900, "val_loss", 1.51))
            the weights of epoch 9, the best val_loss, 1.5100
        """
        score = "" if self.score is None else f", {number(self.score)}"
        return f"the weights of epoch {self.epoch}, {self.what}{score}"

    @property
    def in_words(self) -> str:
        """What they are, and their file."""
        return f"{self}: {self.file}" if self.file else str(self)


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
    script_to_come: bool = False
    """Whether an epoch is complete, and the script's own handlers of its end are still to come."""
    epoch_began_at: int = 0
    """The number of iterations before the current epoch."""
    length_offset: int = 0
    """The iterations of earlier epochs beyond the length that epochs have now; less than 0 if they had fewer."""
    stop_reason: str | None = None
    """The reason why the run was stopped before its end."""
    stop_kind: StopKind = ""
    """Who has stopped it."""
    leaves_with: BaseException | None = None
    """The exception that ``trainer.run`` raises once the stopped run is cleaned up, for a library that wants one."""
    aborting: bool = False
    """Whether a signal ends the run, which leaves time only for saving."""
    save_at_end: bool = False
    """Whether the last state is saved when the run ends, because a signal has asked for it."""
    requeue_at_end: bool = False
    """Whether Slurm is asked to start the job again when the last state is saved."""
    resume_from: Path | str | bool | dict[str, Any] | None = None
    """The checkpoint to resume from at the start of the next run, or what it holds."""
    run_id: str = ""
    """The id of this run, made at its first start and kept when it is resumed; empty before."""
    first_settings: dict[str, Any] | None = None
    """The settings of the optimizer as they were when the run first started."""
    first_schedulers: dict[str, Any] | None = None
    """The settings of the schedulers as they were when the run first started."""
    idle_limit: int | None = None
    """The epochs or iterations asked for by a run that was resumed and had nothing to train; None in other runs."""
    began: float = 0.0
    """The time at which the run began, in seconds since 1970."""
    first_iteration: int = 0
    """The number of iterations that were finished when the run began: those before a resume."""
    completed: bool = False
    """Whether the trainer has come to the end of its run."""
    resumed_from: Path | None = None
    """The checkpoint this run was resumed from."""
    delivered: Delivered | None = None
    """The weights that the run delivers; None for those of its last iteration."""
    waited_for_ranks: float = 0.0
    """The seconds spent in votes after iterations, waiting for the slowest rank."""
    rank_times: Sequence[RankTime] = ()
    """The time of an iteration on each rank, by rank; known from the end of a run of several on."""

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
    found_by_extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the extra evaluations before the last one of each evaluator have found, as in ``raw_accuracy``."""
    for_script: dict[str, Callable[[], AbstractContextManager[Any]]] = field(default_factory=dict)
    """The contexts in which the script's handlers see the end of an evaluation, after ``after_val_epoch``."""
    shared: SharedEvaluation | None = None
    """How the ranks share the next evaluation; None if each rank runs all of it."""
    weights: str | None = None
    """The weights that an evaluation uses, ``raw`` or ``ema``; None for those that hooks choose."""
    of_others: bool = False
    """Whether the model has other weights than the last ones, by which nothing is ranked."""
    repeated: Engine | None = None
    """The evaluator whose run a signal may cut short, because a resumed run repeats that evaluation."""
