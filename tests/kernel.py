"""Cells in a real kernel, and what they show."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbclient
import nbformat

SECONDS = 250
"""For one cell."""


def outputs_of(cells: Sequence[str], folder: Path) -> list[list[Any]]:
    """Run cells one after the other in a new kernel, also after one that fails; return the outputs of each."""
    code = [nbformat.v4.new_code_cell(dedent(source)) for source in cells]
    notebook = nbformat.v4.new_notebook(cells=code)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=SECONDS, allow_errors=True, resources=resources).execute()
    return [cell.outputs for cell in notebook.cells]


def kinds(outputs: Sequence[Any]) -> list[str]:
    """Return the kind of each output: the name of a stream or an error, or the forms of what is shown.

    What is printed in several pieces comes once.
    """
    found = [str(one.get("name") or one.get("ename") or "+".join(sorted(one["data"]))) for one in outputs]
    return [kind for kind, _ in itertools.groupby(found)]


def printed(outputs: Sequence[Any], stream: str = "stdout") -> str:
    """Return what a cell has printed to a stream."""
    return "".join(one.text for one in outputs if one.get("name") == stream)
