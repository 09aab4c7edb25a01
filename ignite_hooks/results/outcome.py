"""How a run has ended."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["running", "finished", "stopped", "failed", "killed"]
"""The state of a run; only somebody else can say that it is running or was killed."""


class Outcome(NamedTuple):
    """How a run has ended, and why."""

    state: State
    reason: str = ""


def outcome_of(
    *,
    failure: str | None = None,
    stop_reason: str | None = None,
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
        completed: Whether the trainer got to the end of its run.
        epochs: Number of finished epochs.
        max_epochs: Number of epochs that were asked for.
        iterations: Number of finished iterations.
        max_iters: Number of iterations that were asked for.

    Example:
        >>> outcome_of(epochs=3, max_epochs=3), outcome_of(epochs=2, max_epochs=3, iterations=8, max_iters=12).state
        (Outcome(state='finished', reason=''), 'stopped')
    """
    if failure is not None:
        return Outcome("failed", failure)
    if stop_reason:
        return Outcome("stopped", stop_reason)
    if not completed:
        return Outcome("stopped", "left before its end")
    if max_epochs is not None and epochs < max_epochs and (max_iters or epochs) > iterations:
        return Outcome("stopped", "the script ended it by terminate()")
    return Outcome("finished")
