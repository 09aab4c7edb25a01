"""Times the iterations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.points import Priority
from ignite_hooks.schedule import scheduled


@settings
class IterTimerHook(BaseHook):
    """Measure how long iterations and their data take, and how long the run will.

    Evaluations do not count. Other hooks read the figures of now from the service ``timer``: ``timer.figures()``.

    Args:
        interval: How many iterations lie between two writings, and are averaged.
        log_eta: Whether the time that is left is among the figures.

    Reads: data_batch.
    Writes: time/iter, time/data, time/eta, iters_per_s, samples_per_s.
    """

    may_end_a_run: ClassVar[bool] = False

    interval: Annotated[int, Ge(1)] = 50
    log_eta: bool = True
    # Around all others: what other hooks do in an iteration is part of it, and not of the loading of data.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.perf_counter)

    # Last, so that what other hooks do between epochs belongs to no iteration.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train_epoch": 100}

    def __post_init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._ended = self._left = self.clock()
        self._iterations = 0
        self._seconds = 0.0
        self._data = 0.0
        self._largest = 0
        self._window = 0, 0.0, 0.0
        self._written: dict[str, float] = {}

    def attached(self) -> None:
        self.runner.register_service("timer", self)

    def before_run(self) -> None:
        self._forget()

    def before_train_epoch(self) -> None:
        self._ended = self.clock()

    def before_train_iter(self) -> None:
        self._iterations += 1
        self._data += self.clock() - self._ended

    def after_train_iter(self) -> None:
        now = self.clock()
        self._seconds += now - self._ended
        self._ended = now

    @scheduled
    def after_step(self) -> None:
        """The same point by its other name: this one is scheduled."""
        self._write()

    @scheduled
    def after_train_epoch(self) -> None:
        self._write()

    def before_val(self) -> None:
        self._left = self.clock()

    def after_val(self) -> None:
        # As if the evaluation had not happened.
        self._ended += self.clock() - self._left

    before_test, after_test = before_val, after_val

    def figures(self) -> dict[str, float]:
        """The means since the last writing, the running iteration included; right after it, what was written."""
        runner = self.runner
        total = self._seconds + self.clock() - self._ended
        iterations = self._iterations - self._window[0]
        seconds = total - self._window[1]
        if iterations == 0 or seconds <= 0:
            return self._written
        found = {
            "time/iter": seconds / iterations,
            "time/data": (self._data - self._window[2]) / iterations,
            "iters_per_s": iterations / seconds,
        }
        if samples := self._batch_size():
            found["samples_per_s"] = samples * iterations / seconds
        if self.log_eta and runner.max_iters is not None:
            remaining = max(0, runner.max_iters - runner.global_step)
            # By the iterations of this process, so that a run that goes on elsewhere is not judged by its past.
            found["time/eta"] = eta(self._iterations, self._iterations + remaining, total)
        return found

    def _write(self) -> None:
        runner = self.runner
        self._written = self.figures()
        self._window = self._iterations, self._seconds, self._data
        if self._written:
            epoch = int(runner.trainer.state.epoch)
            runner.writer.write_scalars(self._written, runner.global_step, kind="train", epoch=epoch)

    def _batch_size(self) -> int:
        """The samples of an iteration in all processes."""
        import ignite.distributed as idist

        # The largest seen: the schedule often falls on the last batch of an epoch, which is a smaller one.
        self._largest = max(self._largest, batch_size(self.runner.data_batch) or 0)
        return self._largest * int(idist.get_world_size())


def eta(done: int, total: int, seconds: float) -> float:
    """The seconds that are left when so many iterations of the total took so long.

    Example:
        >>> eta(10, 100, seconds=20.0)
        180.0
    """
    return (total - done) * seconds / done


def batch_size(batch: Any) -> int | None:
    """The first dimension of the first tensor in a batch.

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
