"""The end of a run for hooks and writers: writers close when nobody can deliver any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ignite_hooks.engine.reporting import report_with_findings
from ignite_hooks.run.progress import finished_epochs
from ignite_hooks.text import counted

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Dispatcher
    from ignite_hooks.results.outcome import Outcome
    from ignite_hooks.run.runner import Runner

WRITERS_CLOSED = "after_writers_closed"
"""The point of hooks that tell what has arrived: after the cleanup, when nothing is written any longer."""


def log_summary(dispatcher: Dispatcher, runner: Runner, outcome: Outcome, by_exception: bool) -> None:
    """Log what the hooks have cost and, in the last line, how the run has ended and what it went without."""
    report = dispatcher.report
    report.logged = report.hooks()
    if report.rows():
        runner.logger.info("what the hooks cost:\n%s", report_with_findings(dispatcher, runner).brief())
    stopped = runner.stop_reason or (outcome.reason if outcome.state == "stopped" and by_exception else "")
    how = "failed" if outcome.state == "failed" else "stopped" if stopped else "ended"
    epochs, iterations = finished_epochs(runner), int(runner.trainer_state.iteration)
    words = [f"run {how} after {counted(epochs, 'epoch')}, {counted(iterations, 'iteration')}"]
    words += [stopped] if stopped else []
    runner.logger.info("; ".join([*words, *report.failure_lines(), *runner.writer.problem_lines()]))


def clean_up(dispatcher: Dispatcher, runner: Runner, failed: bool, record: Callable[[], None]) -> None:
    """Call ``cleanup``, and close the writers once every hook and its threads have delivered.

    Args:
        dispatcher: Calls the hooks.
        runner: The run.
        failed: Whether it has failed, so that no error of a hook may hide why.
        record: Writes the result of the run, of which trackers get a copy before they are closed.
    """
    runner.writer.prepare_to_close()
    try:
        dispatcher.run("cleanup", quietly=failed, to_the_end=True)
        # The result is made of what the files have.
        runner.writer.flush()
        record()
    finally:
        runner.writer.close()
        dispatcher.run(WRITERS_CLOSED, quietly=failed, to_the_end=True)
