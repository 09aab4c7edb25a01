"""The end of a run for hooks and writers: writers close when nobody can deliver any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Dispatcher
    from ignite_hooks.run.runner import Runner

WRITERS_CLOSED = "after_writers_closed"
"""The point of hooks that tell what has arrived: after the cleanup, when nothing is written any longer."""


def clean_up(dispatcher: Dispatcher, runner: Runner, failed: bool) -> None:
    """Call ``cleanup``, and close the writers once every hook and its threads have delivered."""
    runner.writer.prepare_to_close()
    try:
        dispatcher.run("cleanup", quietly=failed, to_the_end=True)
    finally:
        runner.writer.close()
        dispatcher.run(WRITERS_CLOSED, quietly=failed, to_the_end=True)
