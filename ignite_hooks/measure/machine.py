"""Readings of the machine: CPU, memory, disk and network; and a thread that takes them regularly."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ignite_hooks.measure.amd_gpus import AmdGpus
from ignite_hooks.measure.nvml import Gpus

MB = 2**20
NO_MEMORY = ("DefaultCPUAllocator: ", "MPS backend out of memory")
"""What a RuntimeError of torch says where it has no type of its own."""

# -- one reading -----------------------------------------------------------------------------------------------


def memory_of_machine() -> dict[str, float]:
    """Return memory and swap of the machine, in MB and percent."""
    import psutil

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return {
        "memory/available_mb": memory.available / MB,
        "memory/used_mb": memory.used / MB,
        "memory/percent": memory.percent,
        "memory/swap_free_mb": swap.free / MB,
        "memory/swap_used_mb": swap.used / MB,
        "memory/swap_percent": swap.percent,
    }


def memory_of_process() -> dict[str, float]:
    """Return the resident memory of this process, its peak, and that of its children such as loader workers; in MB."""
    import psutil

    mine = psutil.Process()
    children = 0
    for child in mine.children(recursive=True):
        try:
            children += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # it has ended in the meantime
    now = mine.memory_info().rss / MB
    return {
        "memory/process_mb": now,
        "memory/process_peak_mb": max(now, peak_of_process()),
        "memory/children_mb": children / MB,
    }


def peak_of_process() -> float:
    """Return the peak memory of this process in MB; 0 if the system does not report it."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    return 0.0


class Machine:
    """Readings of the machine; rates are counted from the previous reading, the first one from the construction.

    Args:
        cpu: Whether to read the use of all cores and that of this process.
        memory: Whether to read the share of memory in use and the memory of this process.
        disk: Whether to read the rates of disks.
        network: Whether to read the rates of the network.
        gpus: The GPUs to read.
        clock: Returns seconds.
    """

    def __init__(
        self,
        *,
        cpu: bool = True,
        memory: bool = True,
        disk: bool = True,
        network: bool = True,
        gpus: Gpus | AmdGpus | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import psutil

        self._psutil: Any = psutil
        self._process = psutil.Process()
        self._cpu, self._memory, self._disk, self._network, self._gpus = cpu, memory, disk, network, gpus
        self._clock = clock
        self._counted: dict[str, float] = {}
        self._counted_at = clock()
        self.read()

    def read(self) -> dict[str, float]:
        """Return all readings by name."""
        psutil, found = self._psutil, {}
        if self._cpu:
            found["system/cpu_percent"] = psutil.cpu_percent()
            found["system/process_cpu_percent"] = self._process.cpu_percent()
        if self._memory:
            found["system/memory_percent"] = psutil.virtual_memory().percent
            found["system/process_mb"] = self._process.memory_info().rss / MB
        found |= self._rates()
        return found | (self._gpus.read() if self._gpus is not None else {})

    def _rates(self) -> dict[str, float]:
        counts: dict[str, float] = {}
        now = self._clock()
        # A container may have no disks.
        if self._disk and (disk := self._psutil.disk_io_counters()) is not None:
            counts |= {"system/disk_read_mb_s": disk.read_bytes, "system/disk_write_mb_s": disk.write_bytes}
        if self._network and (network := self._psutil.net_io_counters()) is not None:
            counts |= {"system/net_sent_mb_s": network.bytes_sent, "system/net_received_mb_s": network.bytes_recv}
        passed, before = now - self._counted_at, self._counted
        self._counted, self._counted_at = counts, now
        if passed <= 0:
            return {}
        return {name: (count - before[name]) / MB / passed for name, count in counts.items() if name in before}


# -- many readings ---------------------------------------------------------------------------------------------


class Sampler:
    """A thread that takes a reading every few seconds until it is stopped.

    Args:
        read: Returns one reading.
        interval: Seconds between two readings.
    """

    MOST = 10_000
    """Maximum number of readings that are kept until they are fetched."""

    def __init__(self, read: Callable[[], Mapping[str, float]], interval: float) -> None:
        self._read, self._interval = read, interval
        self._readings: deque[Mapping[str, float]] = deque(maxlen=self.MOST)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="SystemMonitorHook", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._readings.append(self._read())
            except Exception as error:
                self._error = error

    def take(self) -> list[Mapping[str, float]]:
        """Return the readings since the last call; if one failed, raise its error and keep them for the next call."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        found = []
        while self._readings:
            found.append(self._readings.popleft())
        return found

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        # A forked process does not have the thread, and may have inherited a locked lock.
        if os.getpid() == self._process and self._thread.ident is not None:
            self._stop.set()
            self._thread.join()


def means(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each reading.

    Example:
        >>> means([{"a": 1.0}, {"a": 3.0, "b": 5.0}])
        {'a': 2.0, 'b': 5.0}
    """
    by_name: dict[str, list[float]] = {}
    for reading in readings:
        for name, value in reading.items():
            by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an exception, or one that caused it, says that a GPU or the machine is out of memory."""
    import torch

    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in NO_MEMORY):
            return True
        error = error.__cause__
    return False
