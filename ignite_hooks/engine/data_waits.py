"""The wait for data, measured in a few iterations now and then: all others pay nothing for it."""

from __future__ import annotations

from collections.abc import Callable

from ignite.engine import Engine, Events

from ignite_hooks.engine.handlers import HandlerOrder, Handlers

PASSED_OVER = 2
"""The batches that are not measured: while a line was logged, they were loaded beside it."""
MEASURED = 8
"""The batches that are measured, as workers bring them in turn."""


class DataWaits:
    """Measure the wait for some batches of a trainer.

    Args:
        trainer: The engine.
        clock: Returns seconds.
    """

    def __init__(self, trainer: Engine, clock: Callable[[], float]) -> None:
        self._handlers, self._clock = Handlers(trainer), clock
        self._is_open = False
        self._to_pass = self._to_measure = 0
        self._began: float | None = None
        self._seconds, self._batches = 0.0, 0

    def measure(self, interval: int) -> None:
        """Measure batches from the next one on, for a line that comes after so many iterations."""
        self._seconds, self._batches = 0.0, 0
        self._to_pass = PASSED_OVER if interval > PASSED_OVER + MEASURED else 0
        # Where lines come often, adding the handlers again would cost more than all batches.
        self._to_measure = MEASURED if self._to_pass else -1
        if not self._is_open:
            self._is_open, self._began = True, None
            self._handlers.add(Events.GET_BATCH_STARTED, self._begin)
            self._handlers.add(Events.GET_BATCH_COMPLETED, self._end, HandlerOrder.FIRST)

    def mean(self) -> float | None:
        """Return the mean wait for a batch; None if none was measured."""
        return self._seconds / self._batches if self._batches else None

    def stop(self) -> None:
        """Measure no more."""
        self._handlers.remove_all()
        self._is_open = False

    def _begin(self) -> None:
        self._began = self._clock()

    def _end(self) -> None:
        if self._began is None:
            return
        if self._to_pass:
            self._to_pass -= 1
            return
        self._seconds += self._clock() - self._began
        self._batches += 1
        if self._batches == self._to_measure:
            self.stop()
