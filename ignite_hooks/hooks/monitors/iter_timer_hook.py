"""Measures the time of iterations."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.batches import batch_size
from ignite_hooks.measure.findings import phase_findings, rank_findings
from ignite_hooks.measure.pace import eta, iterations_left
from ignite_hooks.measure.phases import BACKWARD, DATA, FORWARD, NAMES, OPTIMIZER, OTHER, Phases
from ignite_hooks.measure.processor_waits import ProcessorWaits
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Order, Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.run.state import RankTime

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class IterTimerHook(BaseHook):
    """Measure the time of iterations and their phases, and estimate the time left.

    Evaluations do not count. Other hooks read the current figures from the service ``timer``: ``timer.figures()``. Of
    several ranks each says at the end what an iteration took without waiting for others, and the slowest is named.

    Args:
        interval: Number of iterations between two log entries, which are averaged.
        log_eta: Whether to log the time left.
        phases: Whether to measure forward, backward and optimizer; data, hooks and the rest are always measured.

    Reads: data_batch, model, optimizer, criterion.
    Writes: time/iter, time/data, time/eta, share/<phase>, iters_per_s, samples_per_s; at the end time/own_rank_<n>.
    """

    interval: Annotated[int, Ge(1)] = 50
    log_eta: bool = True
    phases: bool = True
    # Around all others: the time of other hooks in an iteration belongs to it, not to loading data.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.perf_counter)

    # What other hooks do between epochs belongs to no iteration.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train_epoch": 100}

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._times = Phases(self.clock, sparing=True)
        self._waited_before = 0.0
        self._largest = 0
        self._workers: int | None = None
        self._processor: ProcessorWaits | None = None
        self._last = TimeSpan()
        self._written: dict[str, float] = {}
        self._found: tuple[TimeSpan, dict[str, float]] | None = None
        """The time and the means in the running iteration, once somebody has asked for them."""

    def attached(self) -> None:
        self.runner.register_service("timer", self)

    def before_run(self) -> None:
        self._reset()
        self._waited_before = self.runner.state.waited_for_ranks

    def before_train(self, runner: Runner) -> None:
        self._workers = getattr(runner.trainer.state.dataloader, "num_workers", None)
        self._processor = ProcessorWaits()
        if self.phases:
            self._times.watch(runner.model, runner.optimizer, runner.get_service("criterion"))

    def before_train_epoch(self) -> None:
        self._times.skip()

    @at("before_train_iter", order=Order.OUTERMOST)
    def before_train_iter(self) -> None:
        """Enter the hooks: the batch has been loaded."""
        self._times.batch_comes()

    @at("before_train_iter", order=Order.INNERMOST)
    def begin_step(self) -> None:
        """Begin the step, after all other hooks have run."""
        self._times.step_begins()

    @at("after_train_iter", order=Order.INNERMOST)
    def end_step(self) -> None:
        """End the step, before all other hooks run."""
        self._times.step_ends()

    @at("after_train_iter", order=1, scheduled=True)
    def write_figures(self) -> None:
        """Write the figures, after most other hooks have run."""
        self._write()

    @at("after_train_iter", order=Order.OUTERMOST)
    def after_train_iter(self) -> None:
        """Leave the hooks: the wait for the next batch begins."""
        self._times.iteration_ends()

    @property
    def quiet_calls(self) -> Mapping[Callable[..., Any], Callable[[], object]]:
        cls, times = IterTimerHook, self._times
        return {
            cls.before_train_iter: times.batch_comes,
            cls.begin_step: times.step_begins,
            cls.end_step: times.step_ends,
            cls.after_train_iter: times.iteration_ends,
        }

    @scheduled
    def after_train_epoch(self) -> None:
        self._write()

    def before_val(self) -> None:
        self._times.pause()

    def after_val(self) -> None:
        self._times.resume()

    before_test, after_test = before_val, after_val

    def after_train(self, runner: Runner) -> None:
        """Write what an iteration took on each rank, without the time in which it may wait for others."""
        if self._processor is not None:
            self._processor.stop()
        times = {f"time/own_rank_{rank}": one.own for rank, one in enumerate(runner.state.rank_times)}
        if times:
            runner.writer.write_scalars(times, runner.global_step, kind="train", epoch=int(runner.trainer.state.epoch))

    def cleanup(self) -> None:
        self._times.stop_watching()
        if self._processor is not None:
            self._processor.stop()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of the run in each phase that can be measured."""
        now, known = self._now()
        return now.phases(known)

    def findings(self) -> list[str]:
        """Return what stands out in the phases of the iterations."""
        waited = self._processor.share() if self._processor is not None else 0.0
        seconds = self.seconds()
        found = phase_findings(seconds, self._workers, self._times.iterations, world_size(), waited)
        times = self.runner.state.rank_times
        return found + rank_findings([one.own for one in times], [one.whole for one in times])

    def rank_time(self) -> RankTime | None:
        """Return what a mean iteration of this run took here; None before the first."""
        now, known = self._now()
        if not now.iterations:
            return None
        # In the backward pass gradients are exchanged, and votes belong to what is left.
        waiting = BACKWARD if NAMES[BACKWARD] in known else OTHER
        phases = now.phases(known)
        apart = sum(phases.get(NAMES[phase], 0.0) for phase in {waiting, OTHER})
        return RankTime(now.total / now.iterations, max(0.0, now.total - apart) / now.iterations)

    def figures(self) -> dict[str, float]:
        """Return the means since the last log entry, with the current iteration; right after an entry, that entry."""
        return self._measured()[1]

    def _measured(self) -> tuple[TimeSpan, dict[str, float]]:
        """Return the time of the run and the means; within an iteration all who ask receive the same."""
        if self._found is None or self._found[0].iterations != self._times.iterations:
            self._found = self._measure()
        return self._found

    def _measure(self) -> tuple[TimeSpan, dict[str, float]]:
        now, known = self._now()
        passed = now - self._last
        if passed.iterations == 0 or (total := passed.total) <= 0:
            return now, self._written
        found = {
            "time/iter": total / passed.iterations,
            "time/data": passed.host[DATA] / passed.iterations,
            "iters_per_s": passed.iterations / total,
        }
        state, offset = self.runner.trainer_state, self.runner.state.length_offset
        if samples := self._batch_size(state.batch):
            found["samples_per_s"] = samples * passed.iterations / total
        if self.log_eta and (remaining := iterations_left(state, offset)) is not None:
            # Only iterations of this process count: before a resume, the machine may have been another.
            found["time/eta"] = eta(now.iterations, now.iterations + remaining, now.total)
        parts = passed.phases(known)
        return now, found | {f"share/{phase}": part / total for phase, part in parts.items()}

    def _now(self) -> tuple[TimeSpan, tuple[str, ...]]:
        """Return the time of the run so far, and the phases that can be measured."""
        seconds, of_device, known = self._times.read()
        # The time after the last hook is the wait for data, except for messages between ranks.
        if waited := min(self.runner.state.waited_for_ranks - self._waited_before, seconds[DATA]):
            seconds[DATA] -= waited
            seconds[OTHER] += waited
        return TimeSpan(self._times.iterations, seconds, of_device), known

    def _write(self) -> None:
        runner = self.runner
        self._last, self._written = self._measured()
        if self._written:
            epoch = int(runner.trainer.state.epoch)
            runner.writer.write_scalars(self._written, runner.global_step, kind="train", epoch=epoch)

    def _batch_size(self, batch: Any) -> int:
        """Return the number of samples of an iteration in all processes."""
        # The largest so far: the schedule often falls on the last batch of an epoch, which is smaller.
        self._largest = max(self._largest, batch_size(batch) or 0)
        return self._largest * world_size()


@dataclass
class TimeSpan:
    """A number of iterations and their time, by phase."""

    iterations: int = 0
    host: list[float] = field(default_factory=lambda: [0.0] * len(NAMES))
    device: list[float] | None = None

    def __sub__(self, earlier: TimeSpan) -> TimeSpan:
        since = earlier.device or [0.0] * len(NAMES)
        device = None if self.device is None else [a - b for a, b in zip(self.device, since, strict=True)]
        host = [a - b for a, b in zip(self.host, earlier.host, strict=True)]
        # Steps that were not sampled are estimated from those that were, so an earlier estimate may shrink.
        return TimeSpan(self.iterations - earlier.iterations, [max(0.0, value) for value in host], device)

    @property
    def total(self) -> float:
        """Total seconds."""
        return sum(self.host)

    def phases(self, known: Collection[str]) -> dict[str, float]:
        """Return the seconds of each measured phase; the rest is ``other``."""
        seconds = dict(zip(NAMES, self.host, strict=True))
        if self.device is not None:
            # The host only queues the work of these phases.
            seconds |= {NAMES[phase]: self.device[phase] for phase in (FORWARD, BACKWARD, OPTIMIZER)}
        found = {name: seconds[name] for name in NAMES if name in known and name != "other"}
        return found | {"other": max(0.0, self.total - sum(found.values()))}
