"""The numbers of a line of the log: losses, learning rates, memory, and the metrics of engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ignite_hooks.model.optimizers import learning_rates

if TYPE_CHECKING:
    from ignite.engine import State

    from ignite_hooks.run.runner import Runner

PLAIN = frozenset((int, float))
INTERVALS_KEPT = 16
"""The intervals for which losses are kept for a late reporter, whose hook may have been disabled."""


# -- losses -----------------------------------------------------------------------------------------------------


def losses_of(output: Any, *names: str, detached: bool = False) -> dict[str, Any]:
    """Return the losses in the output of a step: a number, a tensor of one, or those in a mapping.

    Args:
        output: What a training step returned.
        *names: The losses to return; all by default.
        detached: Whether tensors are detached from their graph, which would keep the memory of a whole iteration.

    Example:
        >>> losses_of(0.5), losses_of({"loss": 1.0, "aux": 2, "y": "text"}), losses_of(("y_pred", "y"))
        ({'loss': 0.5}, {'loss': 1.0, 'aux': 2}, {})
    """
    found: dict[str, Any] = {}
    # A single loop, because this runs in every iteration.
    for name, value in output.items() if isinstance(output, Mapping) else (("loss", output),):
        kind = type(value)
        if kind is float or (kind is not bool and isinstance(value, (int, float))):
            found[name] = value
        elif hasattr(kind, "numel") and value.numel() == 1:
            found[name] = value.detach() if detached and value.requires_grad else value
    return {name: value for name, value in found.items() if name in names} if names else found


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

    def __init__(self) -> None:
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
        self.rows.append(outputs if outputs.__class__ is float else losses_of(outputs, detached=True))

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
            shared = _SHARED[runner] = _Shared(runner.trainer.state)
        self._share(shared)

    def _share(self, shared: _Shared) -> None:
        self._shared, self._window, self._rows = shared, shared.window, shared.window.rows
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
            self._rows.append(outputs if outputs.__class__ is float else losses_of(outputs, detached=True))
        elif self._shared.recorder is None:
            self._shared.record_by(self, outputs)

    def restart(self) -> None:
        """Begin the next mean with the next iteration."""
        self.since = count = self._window.count
        self._shared.drop_old(count)

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
        rates, memory = shared.rates_of(optimizer, step), cuda_memory()
        scalars = losses | rates | memory
        return Measured(step, state.epoch, state.max_epochs, state.epoch_length, losses, rates, memory, scalars)


class _Shared:
    """The window of a run, its reporters, and the one that records."""

    def __init__(self, state: State | None = None) -> None:
        self.window = Window()
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


def mean(values: list[Any]) -> Any:
    """Return the mean of numbers, or of tensors as a tensor on their device."""
    if set(map(type, values)) <= PLAIN or all(isinstance(value, (int, float)) for value in values):
        return sum(values) / len(values)
    import torch

    try:
        together = torch.stack(values)
    except (TypeError, RuntimeError):  # numbers among tensors, or tensors of the shapes () and (1,)
        together = torch.stack([torch.as_tensor(value).reshape(()).float() for value in values])
    return together.float().mean()


def cuda_memory() -> dict[str, float]:
    """Return the peak memory of the current GPU."""
    import torch

    used = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {"memory_mb": used / 2**20} if used else {}


# -- metrics ----------------------------------------------------------------------------------------------------


def batch_size(batch: Any) -> int | None:
    """Return the first dimension of the first tensor in a batch.

    Example:
        >>> import torch
        >>> batch_size({"id": "a", "image": [torch.zeros(8, 3)]}), batch_size("text")
        (8, None)
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for part in parts if (size := batch_size(part)) is not None), None)
