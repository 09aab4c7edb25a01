"""The end of a run that somebody asks for: a hook, a signal, another rank."""

from __future__ import annotations

import signal
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from ignite_hooks.engine.agreement import Agreement, Verdict

if TYPE_CHECKING:
    from ignite_hooks.engine.fast_path import IterationBox
    from ignite_hooks.engine.signals import Signals
    from ignite_hooks.run.runner import Runner


class Stopping:
    """Takes wishes at any time, and ends the run where all ranks come by and agree.

    Args:
        runner: Has the reason once it is decided.
        agreement: What the ranks agree about; alone, nobody is asked.
        boxes: The iterations that are going on, so that the next one is looked at.
    """

    def __init__(self, runner: Runner, agreement: Agreement, boxes: MutableMapping[str, IterationBox]) -> None:
        self.runner, self.agreement, self.boxes = runner, agreement, boxes
        self.running = False
        """Whether a run has begun that has not ended."""
        self.signals: Signals | None = None

    def ask(self, reason: str) -> None:
        """Ask for the end of the run; the running iteration is finished."""
        if self.running and self.agreement.needed:
            self.agreement.wish(reason)
        elif self.running and self.runner.stop_reason is None:
            self.runner.stop_reason = reason
        for box in self.boxes.values():
            box.next_due = 0

    def on_signal(self, name: str) -> None:
        """Ask for the end because of a signal, which also ends an evaluation."""
        if self.agreement.needed:
            self.agreement.wish(f"{name} received", int(signal.Signals[name]))
        else:
            self.runner.aborting = True
            self.ask(f"{name} received")

    def if_wanted(self, place: int) -> None:
        """Here all ranks come by: end the run if any of them has asked for it."""
        if self.agreement.needed and self.runner.stop_reason is None:
            self.vote(place)
        self.terminate_if_stopped()

    def vote(self, place: int, step: int = 0) -> None:
        """Hear what the ranks want; all call this at the same place."""
        state = self.runner.trainer.state
        verdict: Verdict = self.agreement.vote(place, int(state.epoch), int(state.iteration), step)
        if verdict.reason is not None and self.runner.stop_reason is None:
            self.runner.stop_reason = verdict.reason
        if verdict.signal:
            self.runner.aborting = True
            if self.signals is not None:
                self.signals.share(verdict.signal)
        self.come_by()

    def come_by(self) -> None:
        """Let the iteration of the next vote not be passed over, on whatever rank."""
        if self.agreement.needed and "after_train_iter" in self.boxes:
            box = self.boxes["after_train_iter"]
            box.next_due = min(box.next_due, self.agreement.next_vote)

    def terminate_if_stopped(self) -> None:
        """Let Ignite end the run where that is decided."""
        if self.runner.stop_reason is not None:
            self.runner.trainer.terminate()
