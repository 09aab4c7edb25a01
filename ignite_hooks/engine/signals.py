"""SIGINT and SIGTERM during a run: the first one ends the run in order, the second one at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

WATCHED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Signal handlers for the duration of a run; afterwards the script's are restored and the signal is delivered.

    Args:
        on_first: Called with the name of the first signal; must do no more than set a flag.
    """

    def __init__(self, on_first: Callable[[str], None]) -> None:
        self._on_first = on_first
        self._before: dict[int, Any] = {}
        self._pid = os.getpid()
        self.received: int | None = None

    def __enter__(self) -> Signals:
        self.received = None
        if threading.current_thread() is threading.main_thread():
            for number in WATCHED:
                current = signal.getsignal(number)
                # An ignored signal stays ignored; a handler that is not Python's could not be restored.
                if current not in (None, signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = dict(self._before)
        self._restore()
        if self.received is not None:
            _deliver(self.received, before[self.received])

    def share(self, number: int) -> None:
        """Adopt a signal that another process of the run has received."""
        if self.received is None and number in self._before:
            self.received = number

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            return  # A forked data loader worker leaves the signal to the main process.
        if self.received is None:
            self.received = number
            self._on_first(signal.Signals(number).name)
            return
        before = dict(self._before)
        self._restore()
        self.received = None
        _deliver(number, before[number])


def _deliver(number: int, handler: Any) -> None:
    """Deliver a signal to the handler that the script had."""
    if callable(handler) and handler is not signal.default_int_handler and not _swallows(handler, number):
        handler(number, sys._getframe(1))
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        if callable(handler) and _swallows(handler, number):
            # ClearML shows the task of a script as stopped if it knows of a signal, else as completed.
            handler.__self__.signal = number
        raise SystemExit(128 + number)


def _swallows(handler: Callable[..., Any], number: int) -> bool:
    """Return whether a handler is not the script's and does nothing.

    A ClearML task takes all signals and hands them on to the handlers from before. Where there was none, it drops them,
    and the script would go on as if its training had ended by itself.
    """
    owner = getattr(handler, "__self__", None)
    if type(owner).__module__.partition(".")[0] != "clearml":
        return False
    return not callable(getattr(owner, "_org_handlers", {}).get(number))
