"""A tracker as the thread that delivers to it sees it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ignite_hooks.writers.trackers.spool import Record

logger = logging.getLogger("ignite_hooks")


class Unreachable(ConnectionError):
    """The tracker cannot be reached now; what is for it waits in the spool."""


class Offline(Unreachable):
    """It is not tried to reach the tracker, which was said already or was asked for."""


class Refused(ValueError):
    """The tracker does not take this record, now or later."""


OF_A_RECORD = (Refused, ValueError, TypeError, AttributeError, LookupError)
"""What the client of a tracker raises where it can make nothing of what it is given."""


class Tracker:
    """What a tracker takes; one thread alone calls it.

    What it raises means that nothing can be delivered now, except what is about one record: ``Refused``, and the errors
    in ``OF_A_RECORD`` that are none of a connection. Such a record is left out, or it would block all others.
    """

    vouches = True
    """Whether a ``send`` that returns means that all has arrived or is safe; else copies are kept until ``close``."""
    name = "the tracker"
    refused = 0

    def send(self, records: Sequence[Record]) -> None:
        """Deliver records in order."""
        for record in records:
            try:
                getattr(self, record.what)(record)
            except OF_A_RECORD as error:
                # The errors of `requests` are errors of the system, and some are of values too.
                if isinstance(error, OSError):
                    raise
                self.refused += 1
                if self.refused <= 3:
                    words = " ".join(str(error).split())[:300]
                    logger.warning("%s does not take the %s of step %d: %s", self.name, record.what, record.step, words)

    def scalars(self, record: Record) -> None:
        """``content``: numbers by name."""

    def image(self, record: Record) -> None:
        """``content``: name, and image as height x width x channels of bytes."""

    def histogram(self, record: Record) -> None:
        """``content``: name, counts, and edges: one more than counts."""

    def text(self, record: Record) -> None:
        """``content``: name and text."""

    def config(self, record: Record) -> None:
        """``content``: the configuration."""

    def artifact(self, record: Record) -> None:
        """``content``: path, name and kind."""

    def close(self, failed: bool) -> bool:
        """Let go of it; whether everything has arrived, as far as that can be known."""
        return True
