"""The commands ``train``, ``resume``, ``test`` and ``demo``: train and test what a configuration describes."""

from __future__ import annotations

import argparse
import os
from typing import Any


def add_to(commands: Any) -> None:
    """Add the commands to the parser."""
    train = commands.add_parser("train", help="train what a configuration describes; also under torchrun")
    train.add_argument("config", metavar="CONFIG", help="a .yaml, .json, .toml or .py file with model and dataset")
    train.add_argument(
        "--resume",
        metavar="auto|required|PATH",
        help="continue from the newest checkpoint of the work directory (required: fail without one), or from this one",
    )
    train.add_argument("--work-dir", metavar="DIR", help="where files go, instead of where the configuration says")
    train.add_argument(
        "--dry-run", action="store_true", help="build everything, run two iterations and an evaluation, keep nothing"
    )
    train.add_argument(
        "--queue", metavar="NAME", help="make a task of ClearML and put it into this queue: an agent trains it"
    )
    train.set_defaults(command=_train)

    resume = commands.add_parser("resume", help="continue the run of a work directory")
    resume.add_argument("folder", metavar="DIR", help="the work directory of a run")
    resume.set_defaults(command=_resume)

    demo = commands.add_parser("demo", help="train a small model on real digits with every kind of hook on")
    demo.add_argument("--work-dir", metavar="DIR", default="work_dirs/demo", help="where files go (%(default)s)")
    demo.add_argument("--no-show", action="store_true", help="do not open the report, even if there is a display")
    demo.set_defaults(command=_demo)

    test = commands.add_parser("test", help="test the weights of a run that has ended; also under torchrun")
    test.add_argument(
        "run", metavar="DIR|FILE", help="its work directory, its configuration, or one of its checkpoints"
    )
    test.add_argument(
        "--checkpoint",
        metavar="delivered|best|last|PATH",
        help="the weights to test: by default those that the run delivers",
    )
    test.add_argument(
        "--weights",
        metavar="raw|ema|NAME",
        help="raw weights, their averages, or further averages by name; by default as evaluations of the run",
    )
    test.add_argument("--split", metavar="NAME", default="test", help="the part of the data: val or %(default)s")
    test.add_argument(
        "--data",
        metavar="PATH|DATASET",
        help="other data: the place of data of the same kind, or what stands under dataset, as in '{type: csv, ...}'",
    )
    test.set_defaults(command=_test)

    for command in (train, resume, demo, test):
        command.add_argument(
            "--set",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            dest="overrides",
            help="override a setting, as in hooks.0.interval=10; may be repeated",
        )


def _quieten_torch() -> None:
    """Silence what torch's profiler writes to stderr; torch reads this once, when it is loaded."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _train(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.config.connected.sweep import of_sweep
    from ignite_hooks.trainer import commands

    return commands.train(
        options.config,
        resume=options.resume,
        # What a sweep tries is never overwritten.
        overrides=[*options.overrides, *of_sweep()],
        work_dir=options.work_dir,
        dry_run=options.dry_run,
        queue=options.queue,
    )


def _resume(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.trainer import commands

    return commands.resume(options.folder, overrides=options.overrides)


def _test(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.trainer import commands

    return commands.test(
        options.run,
        checkpoint=options.checkpoint,
        weights=options.weights,
        split=options.split,
        data=options.data,
        overrides=options.overrides,
    )


def _demo(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.trainer import commands

    return commands.demo(work_dir=options.work_dir, overrides=options.overrides, show=not options.no_show)
