"""One writer among several: its failures are counted, and pictures of each name come at their own interval."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ignite_hooks.secrets import Masks
from ignite_hooks.writers.interface import Writer

FAILURES_ALLOWED = 3
RARE = frozenset({"gradient_flow", "history", "lr_finder", "profile"})
"""Pictures of the whole run so far, which no interval leaves out: there is one for each evaluation or run."""

_NUMBERS = frozenset({"write_scalar", "write_scalars", "write_measured"})

logger = logging.getLogger("ignite_hooks")


class Picture(NamedTuple):
    """A picture, and how and for which step it is to be written."""

    method: str
    picture: Any
    step: int


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
    takes_pictures: bool = True
    pictures_every: int = 1
    """The least number of steps between two pictures of one name."""
    failures: int = 0
    last_failure: str = ""
    disabled: bool = False
    numbers: int = 0
    """How often it got numbers."""
    pictures: int = 0
    """How many pictures it was offered."""
    has_left: bool = False
    _in_a_row: int = 0
    _shown_at: dict[str, int] = field(default_factory=dict)
    """The step of the last picture of each name that was written."""
    _held: dict[str, Picture] = field(default_factory=dict)
    """The pictures that came too early; each may be the last of its name."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _showing: threading.Lock = field(default_factory=threading.Lock)

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
                self.numbers += method in _NUMBERS

    def show(self, method: str, name: str, picture: Any, step: int) -> None:
        """Write a picture if one of its name is due; else keep it, as the last one of each name is written too."""
        self.pictures += 1
        if self.disabled or not self.takes_pictures:
            return
        # Each hook draws in its own thread.
        with self._lock:
            due = self._is_due(name, step)
            if due:
                self._shown_at[name] = step
                self._held.pop(name, None)
            else:
                self._held[name] = Picture(method, kept(picture), step)
        if due:
            with self._showing:
                self.call(method, name, picture, step)

    def show_last(self) -> None:
        """Write the last picture of each name, unless it was written when it came."""
        with self._lock:
            held, self._held = self._held, {}
        for name, last in held.items():
            self.call(last.method, name, last.picture, last.step)

    def leave(self) -> None:
        """Write the last pictures, close the writer, and take nothing more."""
        self.has_left = True
        self.show_last()
        with self._showing:
            # A picture that a thread writes at this moment would open the file of a closed writer again.
            self.disabled = True
        self.call("close", even_if_disabled=True)

    def _is_due(self, name: str, step: int) -> bool:
        last = self._shown_at.get(name)
        return last is None or name in RARE or step == last or abs(step - last) >= self.pictures_every

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


def kept(picture: Any) -> Any:
    """Return a copy of an array or a tensor, into which the next picture may be drawn; a figure is kept as it is."""
    if hasattr(type(picture), "detach"):
        return picture.detach().clone()
    return picture.copy() if hasattr(type(picture), "copy") else picture
