"""Signals during a run: the first one that ends it does so in order, the second one at once; others only save."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

BY_DEFAULT: Mapping[int, str] = {signal.SIGINT: "stop", signal.SIGTERM: "stop"}
"""What is done at a signal: ``save``, ``stop`` or ``save and stop``. Other signals are left alone."""


class Signals:
    """Signal handlers for the duration of a run; afterwards the script's are restored and the signal is delivered.

    Args:
        on_signal: Called with the name of a signal and what is to be done; must do no more than set a flag.
        actions: What is done at further signals, or in place of the default.
    """

    def __init__(self, on_signal: Callable[[str, str], None], actions: Mapping[int, str] | None = None) -> None:
        self._on_signal, self._actions = on_signal, {**BY_DEFAULT, **(actions or {})}
        self._before: dict[int, Any] = {}
        self._pid = os.getpid()
        self._saving: list[int] = []
        """The signals since the last save that have asked for one."""
        self.received: int | None = None
        """The signal that ends the run."""
        self.on_interrupt: Callable[[], None] | None = None
        """What is done at the end of a run that Ctrl-C has ended, in place of raising KeyboardInterrupt."""
        self.expects_end = False
        """Whether Slurm, asked to requeue the job, will send SIGTERM to a run that is ending already."""

    def __enter__(self) -> Signals:
        self.received = None
        if threading.current_thread() is threading.main_thread():
            for number in self._actions:
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
            handler = before[self.received]
            if (
                self.received == signal.SIGINT
                and handler is signal.default_int_handler
                and self.on_interrupt is not None
            ):
                self.on_interrupt()
            else:
                _deliver(self.received, handler)

    def share(self, number: int) -> None:
        """Adopt a signal that another process of the run has received."""
        if self.received is None and number in self._before:
            self.received = number

    def call_script(self) -> None:
        """Call the script's handlers of the signals that have asked for the save that was just made."""
        while self._saving:
            number = self._saving.pop(0)
            handler = self._before.get(number)
            if callable(handler) and handler is not signal.default_int_handler and not _swallows(handler, number):
                handler(number, sys._getframe(1))

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            return  # A forked data loader worker leaves the signal to the main process.
        action = self._actions[number]
        if action == "save":
            self._saving.append(number)
            self._on_signal(signal.Signals(number).name, action)
            return
        if self.received is None:
            self.received = number
            self._on_signal(signal.Signals(number).name, action)
            return
        if self.expects_end and number == signal.SIGTERM:
            self.expects_end = False
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
