"""The process of one trial: ``python -m ignite_hooks.search.worker``, with what to do as JSON."""

from __future__ import annotations

import json
import sys

from ignite_hooks.system.host import die_with


def main(argument: str) -> int:
    """Train a configuration, report to the study, and return the exit code."""
    wanted = json.loads(argument)
    # The search repeats the trial when it goes on.
    die_with(wanted["parent"])
    from ignite_hooks.hooks.training.pruning_hook import PruningHook
    from ignite_hooks.trainer.base_trainer import BaseTrainer
    from ignite_hooks.trainer.commands import exit_code_of

    def run() -> None:
        trainer = BaseTrainer(wanted["config"], work_dir=wanted["work_dir"])
        trainer.register_hook(PruningHook(**wanted["pruning"]))
        trainer.train()

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
