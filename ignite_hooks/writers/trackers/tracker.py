"""The interface of a tracker, as the thread that delivers to it sees it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.spool import TrackerRecord

logger = logging.getLogger("ignite_hooks")


Ending = Literal["finished", "stopped", "failed"]
"""How a run has ended, as a tracker shows it."""


class Unreachable(ConnectionError):
    """The tracker cannot be reached now; records wait in the spool."""


class Offline(Unreachable):
    """The tracker is not contacted, because that was asked for or has been logged already."""


class Refused(ValueError):
    """The tracker does not accept this record, now or later."""


OF_A_RECORD = (Refused, ValueError, TypeError, AttributeError, LookupError)
"""Errors of a tracker's client that are about one record."""


class Tracker:
    """One run in a tracker; only one thread calls it.

    An error means that nothing can be delivered now. But ``Refused``, and errors of ``OF_A_RECORD`` that are not about
    the connection, are about one record, which is skipped, because it would block all others.
    """

    vouches = True
    """Whether records are safe once ``send`` returns; otherwise copies are kept until ``close``."""
    name = "the tracker"
    refused = 0

    def send(self, records: Sequence[TrackerRecord]) -> None:
        """Deliver records in order."""
        for record in records:
            try:
                getattr(self, record.what)(record)
            except OF_A_RECORD as error:
                # Errors of `requests` are OSErrors, and some are ValueErrors too.
                if isinstance(error, OSError):
                    raise
                self.refused += 1
                if self.refused <= 3:
                    words = " ".join(str(error).split())[:300]
                    logger.warning("%s does not take the %s of step %d: %s", self.name, record.what, record.step, words)

    def delivered(self) -> Delivered:
        """Return how far the run has got, for a resumed run that goes on in it."""
        return Delivered()

    def arrived(self) -> Delivered:
        """Return what certainly is there, which is not sent again after a failure; nothing, if that cannot be told."""
        return Delivered()

    def scalars(self, record: TrackerRecord) -> None:
        """Deliver numbers; ``content`` has them by name."""

    def image(self, record: TrackerRecord) -> None:
        """Deliver a picture; ``content`` has name and image, as bytes of height x width x channels."""

    def histogram(self, record: TrackerRecord) -> None:
        """Deliver a histogram; ``content`` has name, counts and edges, one more than counts."""

    def result(self, record: TrackerRecord) -> None:
        """Deliver a result; ``content`` has name and result: a matrix, a vector, curves or a table of plain data."""

    def media(self, record: TrackerRecord) -> None:
        """Deliver a sound or a video; ``content`` has name, suffix, the bytes of a file as data, and rate."""

    def text(self, record: TrackerRecord) -> None:
        """Deliver a text; ``content`` has name and text."""

    def config(self, record: TrackerRecord) -> None:
        """Deliver the configuration, which is ``content``."""

    def values(self, record: TrackerRecord) -> None:
        """Deliver single values of the whole run, which a tracker shows in its table; ``content`` has them by name."""

    def source(self, record: TrackerRecord) -> None:
        """Deliver which file the run began from; ``content`` has its address and why."""

    def artifact(self, record: TrackerRecord) -> None:
        """Deliver a file; ``content`` has path, name and kind."""

    def close(self, ended: Ending = "finished") -> bool:
        """Close the run as it ended, and return whether everything is known to have arrived."""
        return True


class Continued(Tracker):
    """A tracker whose run is continued: what it had before is not sent again.

    Args:
        tracker: The tracker.
        there: What it had when this run was resumed.
    """

    def __init__(self, tracker: Tracker, there: Delivered) -> None:
        self._tracker, self._there = tracker, there
        self.name, self.vouches = tracker.name, tracker.vouches

    def arrived(self) -> Delivered:
        return self._tracker.arrived()

    def send(self, records: Sequence[TrackerRecord]) -> None:
        parts = [self._there.missing_of(record) for record in records]
        self._tracker.send([part for part in parts if part is not None])

    def close(self, ended: Ending = "finished") -> bool:
        return self._tracker.close(ended)
