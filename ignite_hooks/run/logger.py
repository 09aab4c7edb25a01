"""The logger of a run, which also has the methods of its writer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ignite_hooks.secrets import MASKING

if TYPE_CHECKING:
    from ignite_hooks.writers.interface import Writer

LOGGER_NAME = "ignite_hooks"


class RunLogger(logging.Logger):
    """A standard logger that also carries the methods of the run's writer."""

    def __init__(self, parent: logging.Logger, writer: Writer) -> None:
        super().__init__(f"{parent.name}.run")
        self.parent = parent
        self.writer = writer
        self.addFilter(MASKING)

    def isEnabledFor(self, level: int) -> bool:
        """Return whether a level is logged, without the cache.

        Python clears only the caches of loggers in its own table, and this one is not in it.
        """
        self._cache.clear()
        return super().isEnabledFor(level)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("write_"):
            return getattr(self.writer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
