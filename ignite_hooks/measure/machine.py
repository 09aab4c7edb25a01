"""What the machine says of itself: CPU, memory, disk, network, GPUs; and a thread that asks it now and then."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

MB = 2**20

# -- one look --------------------------------------------------------------------------------------------------


def memory_of_machine() -> dict[str, float]:
    """Memory and swap of the machine, in MB and percent."""
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
    """Resident memory of this process, its peak, and that of those it has started, as loader workers; in MB."""
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
    """The most memory this process has had at once, in MB; 0 where the system does not say."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    return 0.0


def give_back() -> None:
    """Give memory that is not in use any more back to the machine, where the C library knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Machine:
    """Readings of everything that is asked for; the first is taken as the point from which rates count.

    Args:
        cpu: The share of all cores in use, and the cores this process uses.
        memory: The share of memory in use, and what this process uses.
        disk: What is read and written.
        network: What comes and goes.
        gpus: The GPUs to ask.
        clock: Seconds.
    """

    def __init__(
        self,
        *,
        cpu: bool = True,
        memory: bool = True,
        disk: bool = True,
        network: bool = True,
        gpus: Gpus | None = None,
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
        """All readings by name."""
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
        # A container may have no disks of its own.
        if self._disk and (disk := self._psutil.disk_io_counters()) is not None:
            counts |= {"system/disk_read_mb_s": disk.read_bytes, "system/disk_write_mb_s": disk.write_bytes}
        if self._network and (network := self._psutil.net_io_counters()) is not None:
            counts |= {"system/net_sent_mb_s": network.bytes_sent, "system/net_received_mb_s": network.bytes_recv}
        passed, before = now - self._counted_at, self._counted
        self._counted, self._counted_at = counts, now
        if passed <= 0:
            return {}
        return {name: (count - before[name]) / MB / passed for name, count in counts.items() if name in before}


class Gpus:
    """The GPUs of this process, asked through NVIDIA's management library.

    Args:
        use: Whether to ask how busy they are, how hot, and what they draw.
        memory: Whether to ask for their memory.
    """

    def __init__(self, *, use: bool = True, memory: bool = True) -> None:
        self._use, self._memory = use, memory
        self._nvml: Any = None
        self._handles: dict[int, Any] = {}

    def open(self) -> str | None:
        """Make ready; what is returned says why there is nothing to ask."""
        try:
            import pynvml
        except ImportError as error:
            return f"the package nvidia-ml-py is missing ({error})"
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return str(error)
        self._nvml = pynvml
        reason = "there is none"
        try:
            chosen = visible(os.environ.get("CUDA_VISIBLE_DEVICES"), int(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError as error:
            return str(error)
        for number in chosen:
            try:
                self._handles[number] = pynvml.nvmlDeviceGetHandleByIndex(number)
            except pynvml.NVMLError as error:
                reason = str(error)  # one that is lost or not ours has no readings; the others have
        return None if self._handles else reason

    def read(self) -> dict[str, float]:
        """What each GPU says of itself; what one cannot say is left out."""
        found: dict[str, float] = {}
        for number, handle in self._handles.items():
            for name, ask in self._questions().items():
                try:
                    found[f"gpu{number}/{name}"] = float(ask(handle))
                except self._nvml.NVMLError:
                    continue  # not every card knows its power or temperature
        return found

    def _questions(self) -> dict[str, Callable[[Any], float]]:
        nvml, asked = self._nvml, {}
        if self._use:
            asked = {
                "percent": lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                "temperature_c": lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                "power_w": lambda handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            }
        if self._memory:
            asked["memory_mb"] = lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).used / MB
        return asked

    def close(self) -> None:
        """Let go of the library."""
        self._handles = {}
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None


def visible(given: str | None, count: int) -> list[int]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves a process, all where it names them otherwise.

    As for CUDA, what follows a number that is none of a GPU does not count.

    Example:
        >>> visible("1,3", 4), visible(None, 2), visible("", 2), visible("GPU-8ae0", 2), visible("-1", 2)
        ([1, 3], [0, 1], [], [0, 1], [])
    """
    parts = [part.strip() for part in given.split(",")] if given else []
    if given is None or any(part.startswith(("GPU-", "MIG-")) for part in parts):
        return list(range(count))
    return [int(part) for part in takewhile(lambda part: part.isdigit() and int(part) < count, parts)]


# -- many looks ------------------------------------------------------------------------------------------------


class Sampler:
    """A thread that takes a reading every few seconds until it is stopped.

    Args:
        read: Takes a reading.
        interval: Seconds between two.
    """

    MOST = 10_000
    """So many readings are kept that nobody has taken."""

    def __init__(self, read: Callable[[], Mapping[str, float]], interval: float) -> None:
        self._read, self._interval = read, interval
        self._readings: deque[Mapping[str, float]] = deque(maxlen=self.MOST)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="SystemMonitorHook", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._readings.append(self._read())
            except Exception as error:
                self._error = error

    def take(self) -> list[Mapping[str, float]]:
        """The readings since the last time; where one has failed, its error first, and the readings the next time."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        found = []
        while self._readings:
            found.append(self._readings.popleft())
        return found

    def stop(self) -> None:
        """End, and wait for the end."""
        # A process that was forked has no such thread, and its lock may be held for ever.
        if os.getpid() == self._process and self._thread.ident is not None:
            self._stop.set()
            self._thread.join()


def means(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each reading.

    Example:
        >>> means([{"a": 1.0}, {"a": 3.0, "b": 5.0}])
        {'a': 2.0, 'b': 5.0}
    """
    by_name: dict[str, list[float]] = {}
    for reading in readings:
        for name, value in reading.items():
            by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}


class Trend:
    """How a number grows over a run; a few hundred points are kept, however long it is.

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
    """How much of what is seen a straight line has to explain."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._every = 1
        self._seen = 0

    def add(self, step: float, value: float) -> None:
        """Another point."""
        if self._seen % self._every == 0:
            self.points.append((step, value))
        self._seen += 1
        if len(self.points) > self.MOST:
            self.points = self.points[::2]
            self._every *= 2

    def settled(self) -> list[tuple[float, float]]:
        """The points without the first quarter, in which everything grows."""
        return self.points[len(self.points) // 4 :]

    def growth(self) -> float | None:
        """By how much it grows per step; None where it does not grow steadily, and up to the end."""
        points = self.settled()
        if len(points) < self.FEWEST:
            return None
        slope, steady = line_through(points)
        late, _ = line_through(points[len(points) // 2 :])
        return slope if slope > 0 and steady >= self.STEADY and late >= slope / 2 else None


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The slope of the line that fits best, and the share of the variance it explains.

    Example:
        >>> line_through([(0, 1.0), (1, 3.0), (2, 5.0)])
        (2.0, 1.0)
    """
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    xx = sum((x - x_mean) ** 2 for x, _ in points)
    yy = sum((y - y_mean) ** 2 for _, y in points)
    xy = sum((x - x_mean) * (y - y_mean) for x, y in points)
    if xx == 0 or yy == 0:
        return 0.0, 0.0
    return xy / xx, xy * xy / (xx * yy)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception says that a GPU or the machine had no memory left, or was caused by one that did."""
    import torch

    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator: " in str(error):
            return True
        error = error.__cause__
    return False
