"""Imports before the first iteration: in a thread they would hold the interpreter, and the training would wait."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.text import duration

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

TOLD_FROM = 1.0
"""The seconds from which on an import is logged."""


def import_ahead(
    names: Sequence[str], owner: str, logger: Any, *, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Import modules that threads need later, and log it if it takes long.

    Args:
        names: The modules; those that are not there are left out, because they differ between versions.
        owner: The name of the hook or writer that needs them.
        logger: Receives the line.
        clock: Returns the time in seconds.
    """
    began = clock()
    for name in names:
        if name not in sys.modules:
            # Whoever needs it fails in the same way, and says what that means.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    seconds = clock() - began
    if seconds >= TOLD_FROM:
        logger.info("%s: imports took %s, before the first iteration", owner, duration(seconds))


def import_for_writers(runner: Runner) -> None:
    """Import what the writers of a run need."""
    for writer in runner.writer.writers:
        import_ahead(writer.imported_ahead, type(writer).__name__, runner.logger)
