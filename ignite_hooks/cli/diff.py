"""The command ``diff``: the first iteration at which two runs part, and what parts first."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    diff = commands.add_parser("diff", help="name the first iteration at which two runs part, and what parts first")
    diff.add_argument(
        "one",
        metavar="RUN_A",
        type=Path,
        help="a work directory; its run has a DeterminismHook, or comes from a configuration",
    )
    diff.add_argument("other", metavar="RUN_B", type=Path, help="another one")
    diff.add_argument(
        "--replay",
        action="store_true",
        help="run both again, from checkpoints, where they part between two digests or have none",
    )
    diff.set_defaults(command=_diff)


def _diff(options: argparse.Namespace) -> int:
    """Return 0 if no digest differs, 1 if one does, 2 if nothing can be compared."""
    from ignite_hooks.errors import ResultError
    from ignite_hooks.results.parting import part

    try:
        if options.replay:
            from ignite_hooks.trainer.replay import part_with_replay

            parting = part_with_replay(options.one, options.other)
        else:
            parting = part(options.one, options.other)
    except ResultError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(parting.lines()))
    return 0 if parting.iteration is None else 1
