"""Puts our line before every run of software that others wrote.

As a plugin of pytest (``-p tests.clients.line``) and for single scripts; ``IGNITE_HOOKS_LINE`` says what the line is:
``none``, ``empty`` (a list of no hooks) or ``default``.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from ignite.engine import Engine

LINES = ("none", "empty", "default")
_running: list[Engine] = []
_attached: weakref.WeakSet[Engine] = weakref.WeakSet()


def install(line: str) -> None:
    """Attach hooks to every engine whose run no other engine has begun, just before its first run."""
    if line == "none":
        return
    plain_run = Engine.run

    def run(self: Engine, *args: Any, **kwargs: Any) -> Any:
        if not _running and self not in _attached:
            _attached.add(self)
            from ignite_hooks import attach_hooks

            attach_hooks(self, [] if line == "empty" else None)
            if type(self).run is run:
                return self.run(*args, **kwargs)
            # A subclass with a `run` of its own, which has come here already.
        return _counted(plain_run, self, *args, **kwargs)

    Engine.run = run  # type: ignore[method-assign]


def _counted(plain_run: Callable[..., Any], engine: Engine, *args: Any, **kwargs: Any) -> Any:
    _running.append(engine)
    try:
        return plain_run(engine, *args, **kwargs)
    finally:
        _running.remove(engine)


def pytest_configure(config: Any) -> None:
    """Put the line before the runs of a foreign test suite."""
    install(os.environ.get("IGNITE_HOOKS_LINE", "none"))
    sys.stderr.write(f"our line: {os.environ.get('IGNITE_HOOKS_LINE', 'none')}\n")
