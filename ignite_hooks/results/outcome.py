"""How a run has ended."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

State = Literal["running", "finished", "stopped", "failed", "killed"]
"""The state of a run; only somebody else can say that it is running or was killed."""


StopKind = Literal["", "pruned", "planned"]
"""Who has stopped a run: a search that prunes it, a hook whose condition is met, as planned, or anybody else."""

_STOPS: Final = (KeyboardInterrupt, SystemExit)
_PRUNES: Final = frozenset(["optuna.exceptions.TrialPruned"])
"""Exceptions of search libraries, by name: to know them must not mean to import them."""


class Outcome(NamedTuple):
    """How a run has ended, and why."""

    state: State
    reason: str = ""
    kind: StopKind = ""


def is_stop(error: BaseException | None) -> bool:
    """Return whether an exception stops a run on purpose, so that the run is stopped and has not failed.

    Example:
        >>> is_stop(KeyboardInterrupt()), is_stop(SystemExit(0)), is_stop(ValueError())
        (True, True, False)
    """
    return isinstance(error, _STOPS) or is_pruning(error)


def is_pruning(error: BaseException | None) -> bool:
    """Return whether an exception is that by which a search library prunes a trial."""
    return any(f"{cls.__module__}.{cls.__qualname__}" in _PRUNES for cls in type(error).__mro__)


def outcome_of(
    *,
    failure: str | None = None,
    stop_reason: str | None = None,
    kind: StopKind = "",
    completed: bool = True,
    epochs: int = 0,
    max_epochs: int | None = None,
    iterations: int = 0,
    max_iters: int | None = None,
) -> Outcome:
    """Return how a run has ended: what was asked for and reached is finished, what ended before it is stopped.

    Args:
        failure: The exception that ended the run, in a line.
        stop_reason: The reason why a hook, a signal or a tracker stopped it.
        kind: Who has stopped it.
        completed: Whether the trainer got to the end of its run.
        epochs: Number of finished epochs.
        max_epochs: Number of epochs that were asked for.
        iterations: Number of finished iterations.
        max_iters: Number of iterations that were asked for.

    Example:
        >>> outcome_of(epochs=3, max_epochs=3), outcome_of(epochs=2, max_epochs=3, iterations=8, max_iters=12).state
        (Outcome(state='finished', reason='', kind=''), 'stopped')
    """
    if failure is not None:
        return Outcome("failed", failure)
    if stop_reason:
        return Outcome("stopped", stop_reason, kind)
    if not completed:
        return Outcome("stopped", "left before its end")
    if max_epochs is not None and epochs < max_epochs and (max_iters or epochs) > iterations:
        return Outcome("stopped", "the script ended it by terminate()")
    return Outcome("finished")
