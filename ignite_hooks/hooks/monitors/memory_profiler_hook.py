"""Measures memory of the machine, of this process and its workers, and of the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt

from ignite_hooks.distributed.collectives import rank, world_size
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.findings import WATCHED, memory_findings
from ignite_hooks.measure.machine import is_out_of_memory, memory_of_machine, memory_of_process
from ignite_hooks.measure.trend import Trend
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.system.devices import memory_of_gpu

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


SNAPSHOT = "memory_snapshot.pickle"
MOST_ENTRIES = 100_000


@settings
class MemoryProfilerHook(BaseHook):
    """Log memory and swap of the machine, of this process, its workers and the GPU; find leaks.

    Args:
        interval: Number of iterations between two measurements.
        log_gpu: Whether to measure the memory of the GPU, if there is one.
        log_cpu: Whether to measure the memory of the machine and of processes.
        warn_threshold: Number of GB used by this process and its workers, or by the GPU, above which to warn; once per
            crossing.
        dump_snapshot_on_oom: Whether to record CUDA's allocations, and write them to memory_snapshot.pickle when the
            GPU runs out of memory.
        snapshot: Iterations whose allocations on the GPU are recorded, as ``{start: 100, steps: 3}``, and written to
            memory_snapshot_iter_100.pickle; of several ranks each writes its own. Untested on a real GPU.

    Writes: memory/process_mb, memory/children_mb, memory/used_mb, memory/gpu_allocated_mb and others.
    """

    interval: Annotated[int, Ge(1)] = 50
    log_gpu: bool = True
    log_cpu: bool = True
    warn_threshold: Annotated[float, Gt(0)] | None = None
    dump_snapshot_on_oom: bool = False
    snapshot: Mapping[str, int] | None = None
    # Last after an iteration: what other hooks allocate is included.
    priority: PriorityLike = Priority.VERY_HIGH
    on_error: OnError = "warn"
    read: Callable[[], Mapping[str, float]] | None = field(init=False, repr=False, default=None)

    # Around all other hooks: their allocations belong to the iteration.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train_iter": Priority.HIGHEST}

    def __post_init__(self) -> None:
        if self.snapshot is not None:
            check_snapshot(self.snapshot)
        self._reset()

    def _reset(self) -> None:
        self._trends: dict[str, Trend] = {}
        self._is_above: dict[str, bool] = {}
        self._recording = self._described = self._is_due = False

    def before_run(self) -> None:
        self._reset()
        if self.dump_snapshot_on_oom and cuda() is not None:
            self._record()
        if self.snapshot is not None and cuda() is None:
            self.runner.note_once("MemoryProfilerHook: snapshot: there is no GPU, so nothing is recorded")

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        found = super().answers()
        return (
            found if self.snapshot else {name: method for name, method in found.items() if name != "before_train_iter"}
        )

    def before_train_iter(self, runner: Runner) -> None:
        """Begin to record at the first iteration of the snapshot, and write it before the one after the last."""
        if not self.snapshot or cuda() is None:
            return
        first, steps = self.snapshot["start"], self.snapshot["steps"]
        if runner.global_step == first:
            self._record()
            self._is_due = True
        elif runner.global_step == first + steps:
            self._write_snapshot(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._measure(runner)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        self._measure(runner)

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        if self._recording and is_out_of_memory(exception):
            self._dump(runner, SNAPSHOT, "out of memory")

    def cleanup(self, runner: Runner) -> None:
        self._write_snapshot(runner)
        self._stop_recording()

    def findings(self) -> list[str]:
        """Return the kinds of memory that grow steadily."""
        return memory_findings(self._trends)

    def _write_snapshot(self, runner: Runner) -> None:
        if not self._is_due or not self.snapshot:
            return
        self._is_due, first = False, self.snapshot["start"]
        whose = f"_rank_{rank()}" if world_size() > 1 else ""
        self._dump(runner, f"memory_snapshot_iter_{first}{whose}.pickle", f"memory from iteration {first} on")
        if not self.dump_snapshot_on_oom:
            self._stop_recording()

    def _record(self) -> None:
        if not self._recording:
            cuda().memory._record_memory_history(max_entries=MOST_ENTRIES)
            self._recording = True

    def _stop_recording(self) -> None:
        if self._recording:
            self._recording = False
            cuda().memory._record_memory_history(enabled=None)

    def _dump(self, runner: Runner, name: str, why: str) -> None:
        path = runner.work_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cuda().memory._dump_snapshot(str(path))
        runner.logger.info("%s: open %s at https://pytorch.org/memory_viz", why, path)

    def _measure(self, runner: Runner) -> None:
        found = dict(self.read() if self.read is not None else self._read())
        if not found:
            return
        for name in WATCHED:
            if name in found:
                self._trends.setdefault(name, Trend()).add(runner.global_step, found[name])
        runner.writer.write_scalars(found, runner.global_step, kind="system", epoch=int(runner.trainer.state.epoch))
        if not self._described and (words := in_words(found)):
            self._described = True
            runner.logger.info("%s", words)
        runner.logger.info("Memory information %s", readings_line(found))
        self._warn(runner, found)

    def _read(self) -> dict[str, float]:
        found = {**memory_of_machine(), **memory_of_process()} if self.log_cpu else {}
        if self.log_gpu:
            found |= {f"memory/gpu_{name}_mb": value for name, value in memory_of_gpu().items()}
        return found

    def _warn(self, runner: Runner, found: Mapping[str, float]) -> None:
        if self.warn_threshold is None:
            return
        used = {"GPU": found.get("memory/gpu_allocated_mb")}
        if "memory/process_mb" in found:
            used["process"] = found["memory/process_mb"] + found.get("memory/children_mb", 0.0)
        for name, megabytes in used.items():
            above = megabytes is not None and megabytes / 1024 > self.warn_threshold
            if above and not self._is_above.get(name, False):
                what = "the GPU" if name == "GPU" else "this process with its workers"
                words = "memory of %s is %.2f GB, above warn_threshold (%g GB)"
                runner.logger.warning(words, what, (megabytes or 0.0) / 1024, self.warn_threshold)
            self._is_above[name] = above


def check_snapshot(given: Mapping[str, Any]) -> None:
    """Raise `SettingError` if this does not say of which iterations a snapshot is.

    Example:
        >>> check_snapshot({"start": 100, "steps": 3})
    """
    if {*given} != {"start", "steps"}:
        raise SettingError("snapshot", f"start and steps are needed, as in {{start: 100, steps: 3}}, not {dict(given)}")
    for name, value in given.items():
        if value < 1:
            raise SettingError(f"snapshot.{name}", f"a number of iterations from 1 on is needed, not {value!r}")


def cuda() -> Any:
    """Return ``torch.cuda``, or None if there is no GPU."""
    import torch

    return torch.cuda if torch.cuda.is_available() else None


def in_words(found: Mapping[str, float]) -> str:
    """Return sentences about the memory of the machine; an empty text where it was not measured.

    Example:
        >>> machine = {"available_mb": 246360, "used_mb": 9407, "percent": 4.4}
        >>> swap = {"swap_free_mb": 5740, "swap_used_mb": 2452, "swap_percent": 29.9}
        >>> in_words({f"memory/{name}": value for name, value in (machine | swap | {"process_mb": 5434}).items()})[:91]
        'The system has 250 GB (246360 MB + 9407 MB) of memory and 8 GB (5740 MB + 2452 MB) of swap '
    """
    names = ("available_mb", "used_mb", "swap_free_mb", "swap_used_mb", "percent", "swap_percent", "process_mb")
    if not all(f"memory/{name}" in found for name in names):
        return ""
    free, used, swap_free, swap_used, percent, swap_percent, process = (found[f"memory/{name}"] for name in names)
    return (
        f"The system has {(free + used) / 1024:.0f} GB ({free:.0f} MB + {used:.0f} MB) of memory and "
        f"{(swap_free + swap_used) / 1024:.0f} GB ({swap_free:.0f} MB + {swap_used:.0f} MB) of swap memory in total. "
        f"Currently {used:.0f} MB ({percent:.1f}%) of memory and {swap_used:.0f} MB ({swap_percent:.1f}%) of swap "
        f"memory were consumed. And the current training process consumed {process:.0f} MB of memory."
    )


def readings_line(found: Mapping[str, float]) -> str:
    """Return the readings in one line.

    Example:
        >>> readings_line({"memory/used_mb": 9407.2, "memory/percent": 4.4, "memory/process_mb": 5434.0})
        'used_memory: 9407 MB, memory_utilization: 4.4 %, current_process_memory: 5434 MB'
    """
    words = []
    for name, shown in NAMES.items():
        if name in found:
            value = found[name]
            words.append(f"{shown}: {value:.1f} %" if name.endswith("percent") else f"{shown}: {value:.0f} MB")
    return ", ".join(words)


NAMES = {
    "memory/available_mb": "available_memory",
    "memory/used_mb": "used_memory",
    "memory/percent": "memory_utilization",
    "memory/swap_free_mb": "available_swap_memory",
    "memory/swap_used_mb": "used_swap_memory",
    "memory/swap_percent": "swap_memory_utilization",
    "memory/process_mb": "current_process_memory",
    "memory/process_peak_mb": "peak_process_memory",
    "memory/children_mb": "worker_memory",
    "memory/gpu_allocated_mb": "gpu_allocated",
    "memory/gpu_reserved_mb": "gpu_reserved",
    "memory/gpu_peak_mb": "gpu_peak",
}
"""The names of the readings in the log."""
