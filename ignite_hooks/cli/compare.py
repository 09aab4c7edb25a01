"""The command ``compare``: several runs side by side, and in what they differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.terminal import width_of
from ignite_hooks.text import counted, table

if TYPE_CHECKING:
    from ignite_hooks.results.comparison import Comparison

MAX_COLUMNS = 4
"""Number of runs up to which the terminal shows differences as a column for each run."""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    compared = commands.add_parser("compare", help="show several runs side by side, and in what they differ")
    compared.add_argument("folders", metavar="DIR", nargs="+", help="a work directory, or a folder of them")
    compared.add_argument("--sort", metavar="METRIC", help="show the best run by this metric first")
    compared.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with curves, such as compare.html"
    )
    compared.add_argument("--wide", action="store_true", help="show every column, however wide the terminal is")
    compared.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from ignite_hooks.results.comparison import read_runs

    try:
        comparison = read_runs(options.folders)
        rows = comparison.rows(options.sort)
    except (FileNotFoundError, ValueError, KeyError) as error:
        print(error.args[0] if isinstance(error, KeyError) else error, file=sys.stderr)
        return 2
    width = None if options.wide else width_of(sys.stdout)
    print(table(rows, width))
    for run in comparison.runs:
        for problem in run.problems:
            print(problem, file=sys.stderr)
    _print_differences(comparison, width)
    if options.html is not None:
        from ignite_hooks.report.compare_page import write_comparison

        write_comparison(comparison, options.html, options.sort)
        print(f"\n{options.html}")
    return 0


def _print_differences(comparison: Comparison, width: int | None) -> None:
    for what in ("configuration", "environment", "bits", "plan"):
        rows = comparison.differences(what)
        if not rows:
            continue
        title = {"bits": "what decides the bits"}.get(what, what)
        if len(comparison.runs) > MAX_COLUMNS:
            print(f"\n{title}: {counted(len(rows), 'difference')}; --html shows them")
            continue
        print(f"\n{title}")
        print(table([{title: row.pop(""), **row} for row in rows], width))
