"""The command ``convert``: write the hooks of an MMEngine configuration as ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ignite_hooks.errors import ConfigError, Problem


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    convert = commands.add_parser("convert", help="convert the hooks of an MMEngine configuration, with remarks")
    convert.add_argument("config", metavar="FILE", help="a .py file, which is read and not run")
    convert.add_argument("-o", "--output", metavar="FILE", help="write the result to this file instead of printing it")
    convert.set_defaults(command=_convert)


def _convert(options: argparse.Namespace) -> int:
    from ignite_hooks.cli.conversion import converted

    output = None if options.output is None else Path(options.output)
    try:
        text = converted(options.config)
        if output is not None and output.exists() and output.samefile(options.config):
            raise ConfigError([Problem("-o", "that is the file that is read: name another")])
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return 2
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
    return 0
