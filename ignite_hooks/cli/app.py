"""``ignite-hooks``: train from a configuration, and look at configurations and hooks without running anything."""

from __future__ import annotations

import argparse
import atexit
import io
import os
import re
import sys
import threading
from collections.abc import Sequence
from typing import Final

from ignite_hooks.cli import (
    compare,
    completion,
    convert,
    diff,
    explain,
    export,
    schema,
    search,
    send,
    tell,
    train,
    validate,
)
from ignite_hooks.cli import list as list_
from ignite_hooks.terminal import coloured
from ignite_hooks.version import __version__

COMMANDS = (train, export, explain, validate, list_, search, compare, diff, send, tell, convert, schema, completion)
"""In the order in which ``--help`` shows them."""
OVERRIDE: Final = re.compile(r"--[A-Za-z_]\w*(\.[\w-]+)+=.*", re.DOTALL)
"""A setting as an option, ``--training.epochs=3``: so sweeps of W&B pass what they try."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; without ``argv`` this is the whole process, which torchrun may have started.

    Returns:
        0, 1 for a failure, 2 for a configuration with problems; argparse exits with 2 where the usage is wrong.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and units may have letters that the encoding of the terminal or the pipe lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = whole_parser()
    options, rest = parser.parse_known_args(argv)
    takes = hasattr(options, "overrides")
    if wrong := [word for word in rest if not (takes and OVERRIDE.fullmatch(word))]:
        parser.error(f"unrecognized arguments: {' '.join(wrong)}")
    if takes:
        options.overrides = [*options.overrides, *(word.removeprefix("--") for word in rest)]
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe has gone; flushing at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(coloured(f"ignite-hooks: {error}", "red", sys.stderr), file=sys.stderr)
        return 1
    if argv is None and "TORCHELASTIC_RUN_ID" in os.environ:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process of a rank at once, as everything is saved and said.

    Threads of gloo may still hold tensors, and rarely abort an interpreter that takes itself apart: torchrun would show
    a finished training as failed (https://github.com/pytorch/pytorch/pull/179291).
    """
    # What an interpreter does first: it waits for threads, then calls what was registered.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="ignite-hooks",
        description="Train from a configuration, or look at configurations and hooks without running anything.",
    )
    parser.add_argument("--version", action="version", version=f"ignite-hooks {__version__}")
    # For the command that writes completions of all others.
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser
