"""How far a run has come: finished iterations and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


class Progress(NamedTuple):
    """How far a run has come at one moment."""

    begun: int
    """The iterations that have begun."""
    iteration: int
    """The iterations whose effect on the weights is complete."""
    epoch: int
    """The epochs whose effect on the weights is complete; the epoch that is ending counts."""
    in_step: bool
    """Whether an iteration has begun that has not ended."""


def progress_of(runner: Runner) -> Progress:
    """Return how far a run has come."""
    trainer = runner.trainer
    state, in_step = trainer.state, str(getattr(trainer.last_event_name, "name", "")) == "ITERATION_STARTED"
    iteration, length = int(state.iteration) - in_step, state.epoch_length
    ended = runner.state.epoch_complete or (length is not None and iteration - runner.state.epoch_began_at >= length)
    epoch = int(state.epoch) if ended else max(0, int(state.epoch) - 1)
    return Progress(int(state.iteration), iteration, epoch, in_step)


def finished_iterations(runner: Runner) -> int:
    """Return how many iterations have had their whole effect on the weights."""
    return progress_of(runner).iteration


def finished_epochs(runner: Runner) -> int:
    """Return how many epochs have had their whole effect on the weights."""
    return progress_of(runner).epoch


def planned_epochs(runner: Runner) -> int | None:
    """Return how many epochs the run will begin; None where that is not known."""
    length = runner.trainer_state.epoch_length
    if runner.max_epochs is not None or runner.max_iters is None or not length:
        return runner.max_epochs
    return -(-runner.max_iters // length)


def at_last_batch(runner: Runner) -> bool:
    """Return whether the running epoch has had all its iterations, where their number is known."""
    state = runner.trainer_state
    return state.epoch_length is not None and state.iteration - runner.state.epoch_began_at >= state.epoch_length
