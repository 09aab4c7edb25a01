"""Readings of GPUs from NVIDIA's management library (NVML)."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import takewhile
from typing import Any

MB = 2**20


class Gpus:
    """The GPUs that this process may use, read through NVML.

    Args:
        use: Whether to read utilization, temperature and power.
        memory: Whether to read memory.
    """

    def __init__(self, *, use: bool = True, memory: bool = True) -> None:
        self._use, self._memory = use, memory
        self._nvml: Any = None
        self._handles: dict[int, Any] = {}

    def open(self) -> str | None:
        """Open the library; return why no GPU can be read, or None."""
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
                reason = str(error)  # a lost or forbidden GPU has no readings; the others have
        return None if self._handles else reason

    def read(self) -> dict[str, float]:
        """Return the readings of each GPU by name; leave out those a GPU does not support."""
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
        """Close the library."""
        self._handles = {}
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None


def visible(given: str | None, count: int) -> list[int]:
    """Return the numbers of the GPUs in ``CUDA_VISIBLE_DEVICES``; all if it is not set or names GPUs by UUID.

    As in CUDA, everything after an invalid number is ignored.

    Example:
        >>> visible("1,3", 4), visible(None, 2), visible("", 2), visible("GPU-8ae0", 2), visible("-1", 2)
        ([1, 3], [0, 1], [], [0, 1], [])
    """
    parts = [part.strip() for part in given.split(",")] if given else []
    if given is None or any(part.startswith(("GPU-", "MIG-")) for part in parts):
        return list(range(count))
    return [int(part) for part in takewhile(lambda part: part.isdigit() and int(part) < count, parts)]
