"""Readings of GPUs from NVIDIA's management library (NVML)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        try:
            count = int(pynvml.nvmlDeviceGetCount())
            by_uuid = given is not None and given.strip().startswith(("GPU-", "MIG-"))
            chosen = visible(given, count, self._uuids(count) if by_uuid else ())
        except pynvml.NVMLError as error:
            return str(error)
        for number in chosen:
            try:
                self._handles[number] = pynvml.nvmlDeviceGetHandleByIndex(number)
            except pynvml.NVMLError as error:
                reason = str(error)  # a lost or forbidden GPU has no readings; the others have
        return None if self._handles else reason

    def _uuids(self, count: int) -> list[tuple[str, ...]]:
        """Return the UUIDs of each GPU: its own, and those of its parts where it is divided."""
        nvml, found = self._nvml, list[tuple[str, ...]]()

        def ask(question: Callable[..., Any], *args: Any) -> Any:
            try:
                return question(*args)
            except nvml.NVMLError:
                return None  # lost, or not divided

        for number in range(count):
            handle = ask(nvml.nvmlDeviceGetHandleByIndex, number)
            if handle is None:
                found.append(())
                continue
            parts = [
                ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, part)
                for part in range(ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)
            ]
            uuids = [ask(nvml.nvmlDeviceGetUUID, one) for one in (handle, *parts) if one is not None]
            found.append(tuple(str(uuid) for uuid in uuids if uuid is not None))
        return found

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


def visible(given: str | None, count: int, uuids: Sequence[Sequence[str]] = ()) -> list[int]:
    """Return the numbers of the GPUs in ``CUDA_VISIBLE_DEVICES``; all if it is not set.

    As in CUDA, a UUID may be its beginning, and everything after what is invalid or ambiguous is ignored. A part of a
    divided GPU stands for that GPU.

    Args:
        given: The value of the variable.
        count: How many GPUs there are.
        uuids: Those of each GPU and of its parts.

    Example:
        >>> visible("1,3", 4), visible(None, 2), visible("", 2), visible("-1", 2)
        ([1, 3], [0, 1], [], [])
        >>> visible("GPU-8a, MIG-7", 2, [("GPU-1f4c", "MIG-77"), ("GPU-8ae0",)])
        [1, 0]
    """
    if given is None:
        return list(range(count))
    parts = [part.strip() for part in given.split(",")]
    if not parts[0].startswith(("GPU-", "MIG-")):
        return [int(part) for part in takewhile(lambda part: part.isdigit() and int(part) < count, parts)]
    owners = [[number for number, own in enumerate(uuids) for uuid in own if uuid.startswith(part)] for part in parts]
    return list(dict.fromkeys(found[0] for found in takewhile(lambda found: len(found) == 1, owners)))
