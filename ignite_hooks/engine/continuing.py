"""Where a resumed run ends: for Ignite, all epochs are equally long, and each call of ``run`` is a new run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, State

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


def end_by_epochs(trainer: Engine) -> None:
    """Make a trainer end after its epochs, whatever the number of iterations: earlier epochs had more of them."""
    trainer._is_done = _is_done  # type: ignore[method-assign]


def end_as_usual(trainer: Engine) -> None:
    """Undo `end_by_epochs`."""
    if trainer._is_done is _is_done:
        del trainer._is_done


def note_idle_run(runner: Runner) -> None:
    """Note whether a run that was just resumed has nothing to train: its script may ask for more, pass by pass."""
    trainer, state = runner.trainer, runner.trainer.state
    runner.state.idle_limit = (state.max_iters or state.max_epochs) if trainer._is_done(state) else None


def has_been_done(runner: Runner, limits: Mapping[str, Any]) -> bool:
    """Return whether a call of ``run`` asks for a pass that the resumed run has behind it.

    A script may train in a loop, ``trainer.run(loader, max_epochs=epoch + 1)``. When such a script resumes, its first
    call has nothing to train; the calls after it, up to the first that asks for more, are skipped. Ignite would begin
    the run again.

    Args:
        runner: The run.
        limits: The arguments of ``run`` by name.
    """
    name = "max_iters" if limits.get("max_iters") is not None else "max_epochs"
    wanted, last = limits.get(name), runner.state.idle_limit
    state = runner.trainer.state
    if last is None or getattr(state, name) is None or not isinstance(wanted, int) or wanted <= last:
        return False
    if wanted > (state.iteration if name == "max_iters" else state.epoch):
        return False
    runner.state.idle_limit = wanted
    runner.logger.info(
        "%s=%d: the resumed run has finished %d epochs, %d iterations: nothing to train in this call of run()",
        name,
        wanted,
        state.epoch,
        state.iteration,
    )
    return True


def _is_done(state: State) -> bool:
    enough = state.max_iters is not None and state.iteration >= state.max_iters
    return enough or (state.max_epochs is not None and state.epoch >= state.max_epochs)
