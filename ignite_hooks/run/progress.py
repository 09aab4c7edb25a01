"""The progress of a run: finished iterations and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ignite_hooks.results.outcome import Outcome, outcome_of

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


class Progress(NamedTuple):
    """The progress of a run at one moment."""

    begun: int
    """The iterations that have begun."""
    iteration: int
    """The iterations whose effect on the weights is complete."""
    epoch: int
    """The epochs whose effect on the weights is complete, including one that is just ending."""
    in_step: bool
    """Whether an iteration is in progress."""


def progress_of(runner: Runner) -> Progress:
    """Return the progress of a run."""
    trainer = runner.trainer
    state, in_step = trainer.state, str(getattr(trainer.last_event_name, "name", "")) == "ITERATION_STARTED"
    iteration, length = int(state.iteration) - in_step, state.epoch_length
    ended = runner.state.epoch_complete or (length is not None and iteration - runner.state.epoch_began_at >= length)
    epoch = int(state.epoch) if ended else max(0, int(state.epoch) - 1)
    return Progress(int(state.iteration), iteration, epoch, in_step)


def finished_iterations(runner: Runner) -> int:
    """Return the number of iterations whose effect on the weights is complete."""
    return progress_of(runner).iteration


def finished_epochs(runner: Runner) -> int:
    """Return the number of epochs whose effect on the weights is complete."""
    return progress_of(runner).epoch


def outcome_now(runner: Runner) -> Outcome:
    """Return how a run that has ended without an exception has ended."""
    return outcome_of(
        stop_reason=runner.stop_reason,
        completed=runner.state.completed,
        epochs=runner.epoch,
        max_epochs=runner.max_epochs,
        iterations=runner.global_step,
        max_iters=runner.max_iters,
    )


def planned_epochs(runner: Runner) -> int | None:
    """Return the number of epochs that the run will begin; None if unknown."""
    length = runner.trainer_state.epoch_length
    if runner.max_epochs is not None or runner.max_iters is None or not length:
        return runner.max_epochs
    return -(-runner.max_iters // length)


def at_last_batch(runner: Runner) -> bool:
    """Return whether the current epoch has had all its iterations; False if their number is unknown."""
    state = runner.trainer_state
    return state.epoch_length is not None and state.iteration - runner.state.epoch_began_at >= state.epoch_length
