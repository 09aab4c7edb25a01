"""Cells in a real kernel, and what they show."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import nbclient
import nbformat

from tests import warm
from tests.faults.tools import LONG

SECONDS = 250
"""For one cell."""
ANEW = """
get_ipython().reset(new_session=True)
import gc, os, sys
for name, module in list(sys.modules.items()):
    if (getattr(module, "__file__", None) or "").startswith({before!r}):
        del sys.modules[name]
if "matplotlib.pyplot" in sys.modules:
    sys.modules["matplotlib.pyplot"].close("all")
gc.collect()
gc.freeze()
os.chdir({folder!r})
os.environ.update({variables!r})
get_ipython().reset(new_session=True)
"""


@contextlib.contextmanager
def forked_kernels() -> Iterator[None]:
    """Fork the kernels that begin within the context; in the long form they start as in a notebook of a user."""

    def begin(command: list[str], *, env: dict[str, str], **settings: Any) -> warm.Popen:
        # With another parent than this it would end itself; it ends with the server that has forked it.
        env.pop("JPY_PARENT_PID", None)
        return warm.Popen(command, also=(*warm.LEARNS, "ipykernel.kernelapp"), env=env, **settings)

    with contextlib.nullcontext() if LONG else patch("jupyter_client.launcher.Popen", begin):
        yield


class Kernel:
    """A kernel for many notebooks, as starting one and importing everything takes longer than most of them.

    Each finds no names, no figures and no modules of the one before, and lies in a folder of its own.
    """

    def __init__(self) -> None:
        self._client = nbclient.NotebookClient(
            nbformat.v4.new_notebook(), timeout=SECONDS, startup_timeout=SECONDS, kernel_name="python3"
        )
        self._variables = dict(os.environ)
        self._folder = "no folder yet"

    def run(self, notebook: Any, folder: Path, allow_errors: bool = False) -> Any:
        """Run a notebook from top to bottom; return it with its outputs."""
        variables = {name: value for name, value in os.environ.items() if self._variables.get(name) != value}
        anew = nbformat.v4.new_code_cell(ANEW.format(before=self._folder, folder=str(folder), variables=variables))
        self._run(nbformat.v4.new_notebook(cells=[anew]), allow_errors=False)
        self._folder = f"{folder}{os.sep}"
        self._run(notebook, allow_errors)
        return notebook

    def outputs_of(self, cells: Sequence[str], folder: Path) -> list[list[Any]]:
        """Run cells one after the other, also after one that fails; return the outputs of each."""
        code = [nbformat.v4.new_code_cell(dedent(source)) for source in cells]
        return [cell.outputs for cell in self.run(nbformat.v4.new_notebook(cells=code), folder, True).cells]

    def close(self) -> None:
        """End the kernel."""
        self._client._cleanup_kernel()

    def _run(self, notebook: Any, allow_errors: bool) -> None:
        self._client.nb, self._client.allow_errors = notebook, allow_errors
        with forked_kernels():
            self._client.execute(cleanup_kc=False)


def kinds(outputs: Sequence[Any]) -> list[str]:
    """Return the kind of each output: the name of a stream or an error, or the forms of what is shown.

    What is printed in several pieces comes once.
    """
    found = [str(one.get("name") or one.get("ename") or "+".join(sorted(one["data"]))) for one in outputs]
    return [kind for kind, _ in itertools.groupby(found)]


def printed(outputs: Sequence[Any], stream: str = "stdout") -> str:
    """Return what a cell has printed to a stream."""
    return "".join(one.text for one in outputs if one.get("name") == stream)
