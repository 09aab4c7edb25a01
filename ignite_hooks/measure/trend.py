"""Growth of a number over a run, such as memory that leaks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import StatisticsError, correlation, linear_regression


class Trend:
    """The growth of a number over a run of any length; at most a few hundred points are kept.

    Example:
        >>> trend = Trend()
        >>> for step in range(1000):
        ...     trend.add(step, 500 + 0.25 * step)
        >>> f"{trend.growth():.2f}", len(trend.points) <= Trend.MOST
        ('0.25', True)
    """

    MOST = 256
    FEWEST = 8
    STEADY = 0.8
    """Share of the variance that a straight line has to explain."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._every = 1
        self._seen = 0

    def add(self, step: float, value: float) -> None:
        """Add a point."""
        if self._seen % self._every == 0:
            self.points.append((step, value))
        self._seen += 1
        if len(self.points) > self.MOST:
            self.points = self.points[::2]
            self._every *= 2

    def settled(self) -> list[tuple[float, float]]:
        """Return the points without the first quarter, in which everything grows."""
        return self.points[len(self.points) // 4 :]

    def growth(self) -> float | None:
        """Return the growth per step; None unless it grows steadily up to the end."""
        points = self.settled()
        if len(points) < self.FEWEST:
            return None
        slope, steady = line_through(points)
        late, _ = line_through(points[len(points) // 2 :])
        return slope if slope > 0 and steady >= self.STEADY and late >= slope / 2 else None


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of the line that fits best, and the share of the variance it explains.

    Example:
        >>> line_through([(0, 1.0), (1, 3.0), (2, 5.0)])
        (2.0, 1.0)
    """
    x, y = zip(*points, strict=True)
    try:
        return linear_regression(x, y).slope, correlation(x, y) ** 2
    except StatisticsError:  # all of them at one place, or of one height
        return 0.0, 0.0
