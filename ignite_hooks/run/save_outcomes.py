"""The outcomes of the saves of one hook: a failure or a wait is said once, not at every save while it lasts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ignite_hooks.errors import CheckpointError
from ignite_hooks.text import counted

MOST_NAMED = 5
"""How many files a sentence names."""
LONG_WAIT = 1.0
"""Seconds of waiting that are worth a word."""
TOO_OFTEN = "save less often (a larger interval), or leave out what would wait (when_busy: skip)"


@dataclass
class SaveOutcomes:
    """The saves of a run that have failed, waited or were left out, and the newest that is there."""

    saved: str | None = None
    """The name of the newest checkpoint that is there."""
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """The seconds for which training waited for earlier saves, as far as they are worth a word."""
    last_reason: str = ""
    ended_without_last: bool = False
    """Whether the run ended without its last state."""
    _failing: list[str] = field(default_factory=list)
    _cause: object = None

    def succeeded(self, name: str, logger: logging.Logger) -> None:
        """Record that a file is there; say so where earlier ones failed."""
        self.saved = name
        if self._failing:
            logger.warning("%s is saved; before it failed: %s", name, some(self._failing))
            self._failing, self._cause = [], None

    def failed_with(self, name: str, error: CheckpointError, logger: logging.Logger) -> None:
        """Record that a save has failed; say so unless the one before failed for the same reason."""
        cause = cause_of(error)
        if not self._failing or cause != self._cause:
            logger.error("%s; the run continues without it", error)
        else:
            logger.debug("%s", error)
        self._cause, self.last_reason = cause, str(error)
        self._failing.append(name)
        self.failed.append(name)

    def waited(self, name: str, seconds: float, logger: logging.Logger) -> None:
        """Record that training waited for an earlier save; say so the first time that it was long."""
        if seconds < LONG_WAIT:
            return
        self.waits.append(seconds)
        if len(self.waits) == 1:
            logger.warning("%s waited %.1f s for the checkpoint before it to be written: %s", name, seconds, TOO_OFTEN)

    def leave_out(self, name: str, logger: logging.Logger) -> None:
        """Record that a save was left out because it would have waited; say so the first time."""
        self.skipped.append(name)
        if len(self.skipped) == 1:
            logger.warning("%s is left out, as the checkpoint before it is still being written (when_busy: skip)", name)

    def ended_without(self, name: str, error: CheckpointError, newest: str, logger: logging.Logger) -> None:
        """Record that the run ends without its last state, and say so."""
        self.failed.append(name)
        self.last_reason, self.ended_without_last = str(error), True
        logger.error(
            "%s; the run ends without its last state (saves that failed: %d): its newest checkpoint is %s; "
            'once the disk is there and has room, resume="auto" continues from it',
            error,
            len(self.failed),
            newest,
        )

    def sentences(self) -> list[str]:
        """Return what the report says."""
        found = []
        if self.failed:
            found.append(
                f"{counted(len(self.failed), 'save')} failed: {some(self.failed)}; the last: {self.last_reason}"
            )
        if self.skipped:
            found.append(
                f"{counted(len(self.skipped), 'save')} left out (when_busy: skip), as the one before was still being "
                f"written: {some(self.skipped)}"
            )
        if self.waits:
            found.append(
                f"training waited {sum(self.waits):.1f} s in {counted(len(self.waits), 'save')} for the checkpoint "
                f"before to be written: {TOO_OFTEN}"
            )
        return found


def cause_of(error: CheckpointError) -> tuple[str, int | None]:
    """Return the kind of an error: two of one kind need no two messages.

    Example:
        >>> error = CheckpointError("cannot save a.pth: disk full")
        >>> error.__cause__ = OSError(28, "No space left on device")
        >>> cause_of(error)
        ('OSError', 28)
    """
    cause = error.__cause__ or error
    # What a file of the store raises comes wrapped twice from its thread.
    while isinstance(cause, CheckpointError) and cause.__cause__ is not None:
        cause = cause.__cause__
    return type(cause).__name__, getattr(cause, "errno", None)


def some(names: list[str]) -> str:
    """Return the first names of a list as text, and how many more there are.

    Example:
        >>> some(list("abcdefg"))
        'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
