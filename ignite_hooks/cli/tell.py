"""The command ``tell``: ask a run that is going on to save, to stop or to evaluate."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    tell = commands.add_parser("tell", help="ask a run that is going on to save, to stop or to evaluate")
    tell.add_argument("folder", metavar="DIR", help="its work directory")
    tell.add_argument(
        "word",
        choices=("save", "stop", "evaluate"),
        help="save last.pth and go on; stop as at SIGTERM; evaluate and go on",
    )
    tell.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        help="how long to wait for the answer; by default until the run has obeyed, after its current iteration",
    )
    tell.set_defaults(command=_tell)


def _tell(options: argparse.Namespace) -> int:
    from ignite_hooks.engine.tell import NotTold, tell
    from ignite_hooks.results.folders import not_a_run

    folder = Path(options.folder)
    # A run that writes nothing can be told, too.
    if not folder.is_dir():
        print(f"{folder}: {not_a_run(folder)}", file=sys.stderr)
        return 1

    def say() -> None:
        print("taken; it is obeyed after the current iteration", file=sys.stderr, flush=True)

    try:
        print(tell(folder, options.word, timeout=options.timeout, on_taken=say))
    except NotTold as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("not waited for: a run that has taken the order obeys it all the same", file=sys.stderr)
        return 130
    return 0
