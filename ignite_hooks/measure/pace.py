"""The pace of a run: the time of an iteration and the time left, from a few readings of a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ignite.engine import State


class Pace:
    """Measure the mean time of iterations between two reports; an iteration itself costs nothing.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.begin(0)

    def begin(self, step: int) -> None:
        """Begin a run after this number of iterations."""
        self._seconds = 0.0
        self._since: float | None = None
        self._first = self._last = step
        self._seconds_before = 0.0

    def pause(self) -> bool:
        """Pause for something that belongs to no iteration; return False if it is paused already."""
        if self._since is None:
            return False
        self._seconds += self._clock() - self._since
        self._since = None
        return True

    def resume(self) -> None:
        """Continue with iterations."""
        if self._since is None:
            self._since = self._clock()

    def restart(self, step: int) -> None:
        """Begin the next mean after this iteration."""
        self._last, self._seconds_before = step, self._now()

    def figures(self, step: int, remaining: int | None) -> dict[str, float]:
        """Return the mean time of the iterations since the last report, and the time left where it is known.

        Args:
            step: The number of finished iterations.
            remaining: The number of iterations to come, if known.
        """
        seconds = self._now()
        since, in_all = step - self._last, step - self._first
        if since <= 0:
            return {}
        found = {"time/iter": (seconds - self._seconds_before) / since}
        if remaining is not None:
            found["time/eta"] = eta(in_all, in_all + remaining, seconds)
        self.restart(step)
        return found

    def _now(self) -> float:
        return self._seconds + (0.0 if self._since is None else self._clock() - self._since)


def iterations_left(state: State, offset: int = 0) -> int | None:
    """Return the number of iterations until the end of the run, where it is known.

    Args:
        state: The state of the trainer.
        offset: The iterations of earlier epochs beyond the length of an epoch.

    Example:
        >>> from ignite.engine import State
        >>> iterations_left(State(iteration=3, max_epochs=2, epoch_length=5)), iterations_left(State())
        (7, None)
    """
    epochs = (state.max_epochs or 0) * (state.epoch_length or 0)
    last = state.max_iters or (epochs and epochs + offset)
    return max(0, last - state.iteration) if last else None


def eta(done: int, total: int, seconds: float) -> float:
    """Return the remaining seconds, given those of the iterations done so far.

    Example:
        >>> eta(10, 100, seconds=20.0)
        180.0
    """
    return (total - done) * seconds / done
