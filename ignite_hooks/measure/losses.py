"""The numbers of a line of the log: losses, learning rates, memory, and the metrics of engines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ignite_hooks.measure.loss_source import LossSource, losses_of, mean
from ignite_hooks.model.optimizers import learning_rates
from ignite_hooks.system.devices import peak_of_gpu

if TYPE_CHECKING:
    from ignite.engine import State

    from ignite_hooks.run.runner import Runner

INTERVALS_KEPT = 16
"""The intervals for which losses are kept for a late reporter, whose hook may have been disabled."""


# -- losses -----------------------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Return whether a value is one number, plain or as a tensor of one element.

    Example:
        >>> is_number(1), is_number(0.5), is_number(True), is_number("1"), is_number([1])
        (True, True, False, False, False)
    """
    return bool(losses_of({"": value}))


class Window:
    """The latest losses of a run. Nothing waits for a device until ``means`` is called.

    Example:
        >>> window = Window()
        >>> window.add(0.25)
        >>> window.add({"loss": 0.75, "aux": 1.0})
        >>> window.means(), window.means(since=1)
        ({'loss': 0.5, 'aux': 1.0}, {'loss': 0.75, 'aux': 1.0})
    """

    def __init__(self, source: LossSource | None = None) -> None:
        read = None if source is None or source.where is None else source.detached
        self.read: Callable[[Any], dict[str, Any]] = read or partial(losses_of, detached=True)
        """Returns the losses of an output."""
        self.plain = float if read is None else None
        """The class of outputs that are a loss as they are."""
        self.rows: list[Any] = []
        """One row per iteration: a float, or the losses by name."""
        self.dropped = 0
        """The number of rows that were dropped."""
        self._means: tuple[tuple[int, int], dict[str, float]] = (0, 0), {}

    @property
    def count(self) -> int:
        """The number of recorded iterations."""
        return self.dropped + len(self.rows)

    def add(self, outputs: Any) -> None:
        """Record the output of a step."""
        self.rows.append(outputs if outputs.__class__ is self.plain else self.read(outputs))

    def means(self, since: int = 0) -> dict[str, float]:
        """Return the mean of each loss after the first ``since`` iterations, fetched in one transfer."""
        span = since, self.count
        if self._means[0] != span:
            self._means = span, means_of(self.rows[max(0, since - self.dropped) :])
        return self._means[1]

    def drop(self, before: int) -> None:
        """Drop the losses of the first ``before`` iterations."""
        if before > self.dropped:
            del self.rows[: before - self.dropped]
            self.dropped = before


class Measured(NamedTuple):
    """The numbers of one line of the log."""

    step: int
    epoch: int
    max_epochs: int | None
    epoch_length: int | None
    losses: dict[str, float]
    """The mean of each loss."""
    rates: dict[str, float]
    """The learning rates."""
    memory: dict[str, float]
    scalars: dict[str, float]
    """All of these numbers by name."""


class LossReporter:
    """Reports the mean losses of a run to one hook, each time since its last report.

    All reporters of a run share one window. One of them records the losses; each only remembers where its next mean
    begins, so every hook may have its own interval.

    Args:
        interval: Iterations between two reports.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.since = 0
        """The number of recorded iterations before the next mean."""
        self.records = False
        """Whether this reporter records the losses of the run."""
        self._share(_Shared())

    def begin(self, runner: Runner) -> None:
        """Begin a run, and share one window with its other reporters."""
        shared = _SHARED.get(runner)
        if shared is None or not shared.reporters or self in shared.reporters:
            shared = _SHARED[runner] = _Shared(runner.trainer.state, runner.loss_source)
        self._share(shared)

    def _share(self, shared: _Shared) -> None:
        self._shared, self._window, self._rows = shared, shared.window, shared.window.rows
        self._plain, self._read = shared.window.plain, shared.window.read
        self._reported_at = 0
        self.records = False
        shared.reporters.add(self)
        self.since = shared.window.count

    def end(self) -> None:
        """End a run."""
        self._shared.reporters.discard(self)
        if self.records:
            self._shared.record_by(None)

    def add(self, outputs: Any) -> None:
        """Record the output of an iteration, unless another reporter does."""
        if self.records:
            # The body of `Window.add`, to save a call in every iteration.
            self._rows.append(outputs if outputs.__class__ is self._plain else self._read(outputs))
        elif self._shared.recorder is None:
            self._shared.record_by(self, outputs)

    def restart(self) -> None:
        """Begin the next mean with the next iteration."""
        self.since = count = self._window.count
        self._shared.drop_old(count)

    def is_overdue(self, runner: Runner, by_iterations: bool) -> bool:
        """Return whether the epoch that ends now was too short for a report.

        Args:
            runner: The run.
            by_iterations: Whether the hook reports by iterations; else it is one without any report.
        """
        if by_iterations:
            return runner.batch_idx + 1 < self.interval
        return self._reported_at <= runner.state.epoch_began_at

    def report(self, runner: Runner, optimizer: Any = None) -> Measured | None:
        """Return the numbers since the last report, or None if this iteration has been reported already."""
        shared = self._shared
        state = shared.state or runner.trainer.state
        step = int(state.iteration)
        if not self.records and shared.is_behind():
            # The recording hook was disabled, or is called after this one.
            shared.record_by(self, state.output)
        losses = self._window.means(self.since) if step != self._reported_at else None
        self.restart()
        if losses is None:
            return None
        self._reported_at = step
        if not losses:
            runner.note_once(runner.loss_source.remedy(state.output))
        rates, memory = shared.rates_of(optimizer, step), peak_of_gpu()
        scalars = losses | rates | memory
        return Measured(step, state.epoch, state.max_epochs, state.epoch_length, losses, rates, memory, scalars)


class _Shared:
    """The window of a run, its reporters, and the one that records."""

    def __init__(self, state: State | None = None, source: LossSource | None = None) -> None:
        self.window = Window(source)
        self.reporters: set[LossReporter] = set()
        self.recorder: LossReporter | None = None
        self.state = state
        self._rates: tuple[Any, int, dict[str, float]] | None = None
        self._offset: int | None = None
        """The number of iterations of the run that were not recorded."""

    def record_by(self, reporter: LossReporter | None, outputs: Any = None) -> None:
        """Let another reporter record the losses, from the running iteration on."""
        if self.recorder is not None:
            self.recorder.records = False
        self.recorder = reporter
        if reporter is None:
            return
        reporter.records = True
        if self._offset is None or self.is_behind():
            self.window.add(outputs)
            self._offset = self._iteration() - self.window.count

    def is_behind(self) -> bool:
        """Return whether the running iteration was not recorded."""
        return self._offset is not None and self.window.count + self._offset < self._iteration()

    def rates_of(self, optimizer: Any, step: int) -> dict[str, float]:
        """Return the learning rates of an optimizer, read once for all reporters of an iteration."""
        if self._rates is None or self._rates[0] is not optimizer or self._rates[1] != step:
            self._rates = optimizer, step, learning_rates(optimizer)
        return self._rates[2]

    def drop_old(self, count: int) -> None:
        """Drop the losses that every reporter has reported; ``count`` iterations were recorded."""
        if len(self.reporters) == 1:
            self.window.drop(count)
            return
        waiting = [r.since for r in self.reporters if count - r.since <= INTERVALS_KEPT * r.interval]
        self.window.drop(min(waiting, default=count))

    def _iteration(self) -> int:
        return self.window.count if self.state is None else int(self.state.iteration)


_SHARED: WeakKeyDictionary[Runner, _Shared] = WeakKeyDictionary()


def means_of(rows: list[Any]) -> dict[str, float]:
    """Return the mean of each loss in the rows of a window, fetched in one transfer."""
    values: dict[str, list[Any]] = {}
    if set(map(type, rows)) == {float}:
        values["loss"] = rows
    else:
        for row in rows:
            for name, value in row.items() if isinstance(row, dict) else (("loss", row),):
                values.setdefault(name, []).append(value)
    means = {name: mean(found) for name, found in values.items()}
    tensors = {name: value for name, value in means.items() if not isinstance(value, float)}
    if tensors:
        import torch

        device = next(iter(tensors.values())).device
        together = torch.stack([value.to(device) for value in tensors.values()])
        means.update(zip(tensors, together.tolist(), strict=True))
    return means
