"""The process of one trial: ``python -m ignite_hooks.search.worker``, with what to do as JSON on its standard input."""

from __future__ import annotations

import json
import socket
import sys

from ignite_hooks.system.host import die_with


class AskedTrial:
    """A trial whose study is elsewhere: who has started this process asks it.

    Args:
        line: The socket to ask on.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line, self._answers = line, line.makefile("rb")
        self._reported: tuple[float, int] | None = None

    def report(self, value: float, step: int) -> None:
        """Tell the value of the metric at a step."""
        self._reported = value, step

    def should_prune(self) -> bool:
        """Return whether the trial is to be stopped."""
        assert self._reported is not None
        value, step = self._reported
        self._line.sendall(json.dumps({"value": value, "step": step}).encode() + b"\n")
        return bool(json.loads(self._answers.readline()))


def main(argument: str) -> int:
    """Train a configuration, report to the study, and return the exit code."""
    wanted = json.loads(argument)
    # The search repeats the trial when it goes on.
    die_with(wanted["parent"])
    from ignite_hooks.hooks.training.pruning_hook import PruningHook
    from ignite_hooks.trainer.base_trainer import BaseTrainer
    from ignite_hooks.trainer.commands import exit_code_of

    pruning = wanted["pruning"]
    if "line" in wanted:
        pruning["trial"] = AskedTrial(socket.socket(fileno=wanted["line"]))

    def run() -> None:
        trainer = BaseTrainer(wanted["config"], work_dir=wanted["work_dir"])
        trainer.register_hook(PruningHook(**pruning))
        trainer.train()

    return exit_code_of(run)


if __name__ == "__main__":
    # Not an argument, which everybody on the machine could read: the address of a storage may have a password.
    sys.exit(main(sys.stdin.read()))
