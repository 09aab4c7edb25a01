"""The command ``send``: deliver what trackers could not be given during a run."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from ignite_hooks.secrets import masked

LEFT = 3
"""The exit code where nothing failed, but something was left to a process that still delivers it."""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    send = commands.add_parser("send", help="deliver what could not be delivered to trackers during a run")
    send.add_argument("folder", metavar="DIR", nargs="+", help="a work directory, or a folder that contains some")
    send.set_defaults(command=_send)


def _send(options: argparse.Namespace) -> int:
    from ignite_hooks.checkpoint.uploads import forget_sent
    from ignite_hooks.registry import WRITERS
    from ignite_hooks.results.folders import not_a_run
    from ignite_hooks.writers.trackers.resend import waiting
    from ignite_hooks.writers.trackers.turn import NotOurTurnError, every_turn

    found, failed, left = 0, 0, 0
    for folder in options.folder:
        if not Path(folder).is_dir():
            print(f"{folder}: {not_a_run(Path(folder))}", file=sys.stderr)
            failed += 1
            continue
        for path, send in waiting(Path(folder), WRITERS.get):
            found += 1
            try:
                print(f"{path}: {send()}")
            except NotOurTurnError as error:
                print(f"{path}: {error}: nothing to do; what it leaves can be sent once it has ended")
                left += 1
            except Exception as error:  # a tracker may raise anything: report it, and try the next one
                words = masked(" ".join(str(error).split())[:300])
                print(f"{path}: {type(error).__name__}: {words}", file=sys.stderr)
                failed += 1
            else:
                with contextlib.suppress(NotOurTurnError), every_turn(path.parent, "clearml", "send"):
                    forget_sent(path.parent, "clearml")
    if not found and not failed:
        print(f"{', '.join(options.folder)}: nothing waits to be sent")
    return 1 if failed else LEFT if left else 0
