"""The process of one trial: ``python -m ignite_hooks.search.worker``, with what to do as JSON."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

PARENT_DIES = 1
"""``PR_SET_PDEATHSIG`` of Linux."""


def main(argument: str) -> int:
    """Train a configuration, report to the study, and return the exit code."""
    wanted = json.loads(argument)
    die_with(wanted["parent"])
    from ignite_hooks.hooks.training.pruning_hook import PruningHook
    from ignite_hooks.trainer.base_trainer import BaseTrainer
    from ignite_hooks.trainer.commands import exit_code_of

    def run() -> None:
        trainer = BaseTrainer(wanted["config"], work_dir=wanted["work_dir"])
        trainer.register_hook(PruningHook(**wanted["pruning"]))
        trainer.train()

    return exit_code_of(run)


def die_with(parent: int) -> None:
    """Let the system kill this process when the search is killed, which repeats the trial when it goes on."""
    ctypes.CDLL(None, use_errno=True).prctl(PARENT_DIES, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
