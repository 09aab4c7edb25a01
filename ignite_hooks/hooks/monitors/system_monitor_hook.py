"""Measures the load of the machine in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.amd_gpus import AmdGpus
from ignite_hooks.measure.findings import machine_findings
from ignite_hooks.measure.machine import Machine, Sampler, means
from ignite_hooks.measure.nvml import Gpus
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class SystemMonitorHook(BaseHook):
    """Measure every few seconds how busy the machine is, and log the means.

    Args:
        frequency: Number of iterations between two log entries.
        interval: Seconds between two readings, which a thread takes.
        track_cpu: Whether to measure the use of the cores.
        track_memory: Whether to measure the use of memory.
        track_gpu: Whether to measure use, temperature and power of GPUs.
        track_gpu_memory: Whether to measure the memory of GPUs.
        track_disk: Whether to measure what is read from and written to disks.
        track_network: Whether to measure what is sent and received.

    Writes: system/cpu_percent, system/memory_percent, gpu0/percent, gpu0/memory_mb and others.
    """

    frequency: Annotated[int, Ge(1)] = 10
    interval: Annotated[float, Gt(0)] = 2.0
    track_cpu: bool = True
    track_memory: bool = True
    track_gpu: bool = True
    track_gpu_memory: bool = True
    track_disk: bool = True
    track_network: bool = True
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"
    read: Callable[[], Mapping[str, float]] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._sampler: Sampler | None = None
        self._gpus: Gpus | AmdGpus | None = None
        self._sums: dict[str, tuple[int, float]] = {}

    def before_run(self, runner: Runner) -> None:
        self._sums = {}
        if self.track_gpu or self.track_gpu_memory:
            from torch import version

            kind = Gpus if version.hip is None else AmdGpus
            self._gpus = kind(use=self.track_gpu, memory=self.track_gpu_memory)
            if (reason := self._gpus.open()) is not None:
                runner.logger.info("GPUs are not measured: %s", reason)
                self._gpus.close()
                self._gpus = None
        machine = Machine(
            cpu=self.track_cpu,
            memory=self.track_memory,
            disk=self.track_disk,
            network=self.track_network,
            gpus=self._gpus,
        )
        self._sampler = Sampler(self.read or machine.read, self.interval)
        self._sampler.start()

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._write(runner)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        self._write(runner)

    def after_train(self, runner: Runner) -> None:
        """Write the readings since the last entry: a run may be shorter than the frequency."""
        self._write(runner)

    def cleanup(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None

    def findings(self) -> list[str]:
        """Return what stands out in the readings of the whole run."""
        return machine_findings(self._sums)

    def _write(self, runner: Runner) -> None:
        readings = self._sampler.take() if self._sampler is not None else []
        if not readings:
            return
        found = means(readings)
        for reading in readings:
            for name, value in reading.items():
                count, total = self._sums.get(name, (0, 0.0))
                self._sums[name] = count + 1, total + value
        runner.writer.write_scalars(found, runner.global_step, kind="system", epoch=int(runner.trainer.state.epoch))
