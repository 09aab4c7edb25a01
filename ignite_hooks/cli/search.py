"""The command ``search``: many runs of one configuration, to find its best values."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ignite_hooks.secrets import masked
from ignite_hooks.terminal import width_of
from ignite_hooks.text import table


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    search = commands.add_parser("search", help="try values of a configuration, and find the best")
    search.add_argument("config", metavar="CONFIG", help="a configuration with a section 'search'")
    search.add_argument("--work-dir", metavar="DIR", help="where files go; a search in it that was stopped goes on")
    search.add_argument("--trials", metavar="N", type=int, help="the number of trials, instead of the configuration's")
    search.add_argument("--jobs", metavar="N", type=int, help="the number of trials at the same time")
    search.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="override a setting, as in training.epochs=3; may be repeated",
    )
    search.set_defaults(command=_search)


def _search(options: argparse.Namespace) -> int:
    from ignite_hooks.search.from_config import ConfigSearch
    from ignite_hooks.trainer.commands import exit_code_of

    overrides = list(options.overrides)
    overrides += [f"search.{n}={v}" for n in ("trials", "jobs") if (v := getattr(options, n)) is not None]

    def run() -> None:
        found = ConfigSearch(options.config, overrides, options.work_dir, _say).run()
        rows = found.rows()
        if rows:
            print("\n" + table(rows, width_of(sys.stdout)))
        print("\n" + repr(found).rpartition("\n")[2])
        if found.best_config is not None:
            print(f"best configuration: {found.best_config}")

    return exit_code_of(run)


def _say(line: str) -> None:
    print(masked(line), flush=True)
