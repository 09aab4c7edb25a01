"""Readings of GPUs from NVIDIA's management library (NVML)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, TypeVar

MB = 2**20
T = TypeVar("T")


class Gpus:
    """The GPUs that this process may use, read through NVML.

    Args:
        use: Whether to read utilization, temperature and power.
        memory: Whether to read memory.
    """

    def __init__(self, *, use: bool = True, memory: bool = True) -> None:
        self._use, self._memory = use, memory
        self._nvml: Any = None
        self._handles: dict[int, tuple[Any, Any]] = {}
        """By the number of a GPU: the card, and the part of it that is ours."""

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
        try:
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            return str(error)
        given, used = os.environ.get("CUDA_VISIBLE_DEVICES"), used_by_torch()
        by_uuid = given is not None and given.strip().startswith(("GPU-", "MIG-"))
        known = self._by_uuid(count) if used or by_uuid else {}
        chosen = [one for uuid, one in known.items() if uuid[4:] in used]
        if not chosen:
            chosen = named(given, known) if by_uuid else [(number, None) for number in numbered(given, count)]
        reason = "there is none"
        for number, part in chosen:
            try:
                card = pynvml.nvmlDeviceGetHandleByIndex(number)
            except pynvml.NVMLError as error:
                reason = str(error)  # a lost or forbidden GPU has no readings; the others have
                continue
            self._handles.setdefault(number, (card, card if part is None else part))
        return None if self._handles else reason

    def _by_uuid(self, count: int) -> dict[str, tuple[int, Any]]:
        """Return by each UUID the number of its GPU, and the part that it names where that GPU is divided."""
        nvml, found = self._nvml, dict[str, tuple[int, Any]]()

        def ask(question: Callable[..., Any], *args: Any) -> Any:
            try:
                return question(*args)
            except nvml.NVMLError:
                return None  # lost, or not divided

        for number in range(count):
            card = ask(nvml.nvmlDeviceGetHandleByIndex, number)
            most = 0 if card is None else ask(nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0
            parts = [ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, part) for part in range(most)]
            for handle in (card, *parts):
                uuid = None if handle is None else ask(nvml.nvmlDeviceGetUUID, handle)
                if uuid is not None:
                    found[str(uuid)] = number, None if handle is card else handle
        return found

    def read(self) -> dict[str, float]:
        """Return the readings of each GPU by name; leave out those a GPU does not support."""
        found: dict[str, float] = {}
        for number, handles in self._handles.items():
            for name, ask in self._questions().items():
                try:
                    found[f"gpu{number}/{name}"] = float(ask(*handles))
                except self._nvml.NVMLError:
                    continue  # not every card knows its power or temperature
        return found

    def _questions(self) -> dict[str, Callable[[Any, Any], float]]:
        nvml, asked = self._nvml, dict[str, Callable[[Any, Any], float]]()
        if self._use:
            asked = {
                "percent": lambda card, _: nvml.nvmlDeviceGetUtilizationRates(card).gpu,
                "temperature_c": lambda card, _: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
                "power_w": lambda card, _: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
            }
        if self._memory:
            # The memory of a whole card is mostly that of others.
            asked["memory_mb"] = lambda _, part: nvml.nvmlDeviceGetMemoryInfo(part).used / MB
        return asked

    def close(self) -> None:
        """Close the library."""
        self._handles = {}
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None


def used_by_torch() -> set[str]:
    """Return the UUIDs of the GPUs that torch has found, without ``GPU-`` and ``MIG-``; empty before it has looked.

    CUDA may count them in another order than NVML, the fastest first.
    """
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return set()
    return {str(torch.cuda.get_device_properties(number).uuid) for number in range(torch.cuda.device_count())}


def numbered(given: str | None, count: int) -> list[int]:
    """Return the GPUs whose numbers are in ``CUDA_VISIBLE_DEVICES``; all if it is not set.

    As in CUDA, everything after what is invalid is ignored, and what is there twice leaves none.

    Args:
        given: The value of the variable.
        count: How many GPUs there are.

    Example:
        >>> numbered("1,3", 4), numbered(None, 2), numbered("", 2), numbered("-1", 2), numbered("0,0", 2)
        ([1, 3], [0, 1], [], [], [])
    """
    parts = [str(number) for number in range(count)] if given is None else [part.strip() for part in given.split(",")]
    found = [int(part) for part in takewhile(lambda part: part.isdecimal() and int(part) < count, parts)]
    return found if len(found) == len({*found}) else []


def named(given: str | None, known: Mapping[str, T]) -> list[T]:
    """Return what the UUIDs in ``CUDA_VISIBLE_DEVICES`` name.

    As in CUDA, a UUID may be its beginning, everything after what is invalid or ambiguous is ignored, and what is there
    twice leaves none.

    Args:
        given: The value of the variable.
        known: What each UUID stands for.

    Example:
        >>> known = {"GPU-1f4c": 0, "MIG-77": 0.5, "GPU-8ae0": 1}
        >>> named("GPU-8a, MIG-7", known), named("GPU-8a,GPU-8ae", known), named("GPU-,MIG-7", known)
        ([1, 0.5], [], [])
    """
    parts = [part.strip() for part in (given or "").split(",")]
    matches = [[uuid for uuid in known if part and uuid.startswith(part)] for part in parts]
    found = [one for (one,) in takewhile(lambda uuids: len(uuids) == 1, matches)]
    return [known[uuid] for uuid in found] if len(found) == len({*found}) else []
