"""The command ``completion``: print what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
FILES: Final = ("FILE", "CONFIG", "DIR|FILE", "auto|required|PATH", "delivered|best|last|PATH", "PATH|DATASET")
FOLDERS: Final = ("DIR", "RUN_A", "RUN_B")


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    completion = commands.add_parser(
        "completion",
        help="print a script that makes your shell complete commands and options",
        description='In .bashrc: eval "$(ignite-hooks completion bash)"; in .zshrc, after compinit, the same with zsh; '
        "in fish: ignite-hooks completion fish > ~/.config/fish/completions/ignite-hooks.fish",
    )
    completion.add_argument("shell", choices=SHELLS, help="your shell")
    completion.set_defaults(command=_completion)


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        print("shtab writes the script: pip install 'ignite-hooks[completion]'", file=sys.stderr)
        return 1
    _mark_paths(options.parser, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(options.parser, options.shell))
    return 0


def _mark_paths(parser: argparse.ArgumentParser, file: Any, folder: Any) -> None:
    """Say which arguments of a parser and of its commands are files, and which are folders."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_paths(command, file, folder)
        elif action.metavar in (*FILES, *FOLDERS):
            action.complete = folder if action.metavar in FOLDERS else file  # type: ignore[attr-defined]
