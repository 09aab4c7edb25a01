"""One writer among several: its failures are counted, and its pictures come at their own interval."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from ignite_hooks.secrets import Masks
from ignite_hooks.writers.interface import Writer

FAILURES_ALLOWED = 3

logger = logging.getLogger("ignite_hooks")


@dataclass
class Destination:
    """Calls a writer whose failures are logged and not raised.

    The first failure is logged with its traceback, the next ones with a line each; three in a row disable the writer.
    """

    writer: Writer
    name: str
    masks: Masks = field(default_factory=Masks)
    has_own_schedule: bool = False
    """Whether its own hook measures for it, at its own interval."""
    pictures_every: int | None = 1
    """The least number of steps between pictures; None for no pictures."""
    failures: int = 0
    last_failure: str = ""
    disabled: bool = False
    _in_a_row: int = 0
    _pictures_at: int | None = None

    def call(self, method: str, *args: Any, even_if_disabled: bool = False, **kwargs: Any) -> None:
        """Call a method of the writer, and note a failure."""
        if self.disabled and not even_if_disabled:
            return
        try:
            getattr(self.writer, method)(*args, **kwargs)
        except Exception as error:
            self._note(method, error)
        else:
            # A flush without anything to write always succeeds, which says nothing about the next write.
            if method.startswith("write_"):
                self._in_a_row = 0

    def takes_pictures_of(self, step: int) -> bool:
        """Return whether pictures of a step are due; those of one step are all written, or none of them."""
        every, last = self.pictures_every, self._pictures_at
        if self.disabled or every is None:
            return False
        if last is not None and step != last and abs(step - last) < every:
            return False
        self._pictures_at = step
        return True

    def _note(self, method: str, error: Exception) -> None:
        self.failures += 1
        self._in_a_row += 1
        # Messages of torch and of servers have many lines.
        self.last_failure = self.masks.text(f"{method}: {type(error).__name__}: {error}".partition("\n")[0])
        traceback = error if self.failures == 1 else None
        logger.warning("writer %s failed in %s", self.name, self.last_failure, exc_info=traceback)
        if self._in_a_row >= FAILURES_ALLOWED and not self.disabled:
            self.disabled = True
            logger.warning("writer %s is switched off: %d failures in a row", self.name, FAILURES_ALLOWED)
