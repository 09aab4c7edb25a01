"""Measures the throughput of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt

from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, settings
from ignite_hooks.measure.batches import batch_size
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.text import operations

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

TERA = 1e12


@dataclass
class ThroughputState:
    """The state from which a resumed run continues."""

    seconds: float = 0.0
    iterations: int = 0
    samples_per_iteration: int = 0
    flops: int = 0
    """Operations of one iteration in one process; 0 while unknown."""


@settings
class ThroughputHook(BaseHook):
    """Log samples and floating-point operations per second, and the share of the peak of the device.

    The operations of a whole step are counted once: in the first iteration that is due, whose time does not count.
    Evaluations and the time between epochs do not count either.

    Args:
        interval: Number of iterations between two log entries.
        flops: Whether to count operations.
        peak_tflops: Peak of one device in 1e12 operations per second, to log the utilisation too.

    Reads: data_batch.
    Writes: throughput/samples_per_s, throughput/tflops, throughput/utilisation.
    """

    interval: Annotated[int, Ge(1)] = 50
    flops: bool = True
    peak_tflops: Annotated[float, Gt(0)] | None = None
    on_error: OnError = "warn"
    state: ThroughputState = field(init=False, default_factory=ThroughputState)
    clock: Callable[[], float] = field(init=False, repr=False, default=time.perf_counter)

    may_end_a_run: ClassVar[bool] = False
    # Nothing but the step lies between the two.
    point_priority: ClassVar[dict[str, int]] = {
        "before_train_iter": Priority.LOWEST,
        "after_train_iter": Priority.LOWEST,
        "before_train_epoch": Priority.LOWEST,
    }

    def __post_init__(self) -> None:
        if self.peak_tflops is not None and not self.flops:
            raise SettingError("peak_tflops", "needs flops: true, to compare it with the operations that are counted")
        self._counter: Any = None
        self._counted = self._restart_after_evaluation = False
        self._since: float | None = None
        self._first = 0
        self._window = (0.0, 0)

    def before_run(self, runner: Runner) -> None:
        self._since, self._window, self._counted = None, (0.0, 0), False
        self.state = ThroughputState()

    def before_train_epoch(self, runner: Runner) -> None:
        self._start_clock(runner)

    @scheduled
    def before_train_iter(self, runner: Runner) -> None:
        if not self.flops or self._counted or self.state.flops:
            return
        from torch.utils.flop_counter import FlopCounterMode

        self._stop_clock(runner, unfinished=1)
        self._counted = True
        self._counter = FlopCounterMode(display=False)
        self._counter.__enter__()

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._count_samples(runner)
        if self._counter is not None:
            self.state.flops = self._stop_counting()
            if not self.state.flops:
                runner.logger.info("no operations could be counted in the step: it may be compiled")
        else:
            self._stop_clock(runner)
        self._write(runner)
        self._start_clock(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        self._stop_clock(runner)

    def after_train(self, runner: Runner) -> None:
        """Write what was measured since the last entry: a run may be shorter than the interval."""
        self._count_samples(runner)
        self._stop_clock(runner)
        self._write(runner)

    def before_val(self, runner: Runner) -> None:
        # In the middle of an iteration as well as between two.
        if self._since is not None:
            self._stop_clock(runner)
            self._restart_after_evaluation = True

    def after_val(self, runner: Runner) -> None:
        if self._restart_after_evaluation:
            self._restart_after_evaluation = False
            self._start_clock(runner)

    before_test, after_test = before_val, after_val

    def cleanup(self) -> None:
        self._stop_counting()
        self._since = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the time until now."""
        if self._since is not None:
            self._stop_clock(self.runner)
            self._start_clock(self.runner)
        return super().state_dict()

    def findings(self) -> list[str]:
        """Return the means of the whole run, in words."""
        found = throughput_of(self.state.iterations, self.state.seconds, self.state, self.peak_tflops)
        if not found:
            return []
        words: dict[str, Callable[[float], str]] = {
            "samples_per_s": "{:,.0f} samples/s".format,
            "tflops": lambda value: f"{operations(value * 1e12)}/s",
            "utilisation": "{:.1%} of the peak".format,
        }
        means = ", ".join(words[name](value) for name, value in found.items())
        return [f"{means} in the mean of the run"]

    def _count_samples(self, runner: Runner) -> None:
        self.state.samples_per_iteration = max(self.state.samples_per_iteration, batch_size(runner.data_batch) or 0)

    def _start_clock(self, runner: Runner) -> None:
        self._since, self._first = self.clock(), runner.global_step

    def _stop_clock(self, runner: Runner, unfinished: int = 0) -> None:
        """Stop the clock, and add the time and the iterations since it was started."""
        if self._since is None:
            return
        seconds, iterations = self.clock() - self._since, runner.global_step - unfinished - self._first
        self._since = None
        self.state.seconds += seconds
        self.state.iterations += iterations
        self._window = (self._window[0] + seconds, self._window[1] + iterations)

    def _stop_counting(self) -> int:
        counter, self._counter = self._counter, None
        if counter is None:
            return 0
        counter.__exit__(None, None, None)
        return int(counter.get_total_flops())

    def _write(self, runner: Runner) -> None:
        (seconds, iterations), self._window = self._window, (0.0, 0)
        found = throughput_of(iterations, seconds, self.state, self.peak_tflops)
        if found:
            named = {f"throughput/{name}": value for name, value in found.items()}
            epoch = int(runner.trainer.state.epoch)
            runner.writer.write_scalars(named, runner.global_step, kind="train", epoch=epoch)


def throughput_of(
    iterations: int, seconds: float, known: ThroughputState, peak_tflops: float | None
) -> dict[str, float]:
    """Return what all processes do per second, and the share of the peak of each.

    Example:
        >>> throughput_of(10, 2.0, ThroughputState(samples_per_iteration=8, flops=10**12), peak_tflops=20.0)
        {'samples_per_s': 40.0, 'tflops': 5.0, 'utilisation': 0.25}
    """
    if iterations <= 0 or seconds <= 0:
        return {}
    per_second, processes = iterations / seconds, world_size()
    found = {}
    if known.samples_per_iteration:
        found["samples_per_s"] = known.samples_per_iteration * processes * per_second
    if known.flops:
        found["tflops"] = known.flops * processes * per_second / TERA
        if peak_tflops is not None:
            found["utilisation"] = known.flops * per_second / TERA / peak_tflops
    return found
