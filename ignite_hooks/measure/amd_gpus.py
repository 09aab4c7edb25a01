"""Readings of GPUs of AMD, by torch's own calls of AMD's library; not yet tested on hardware."""

from __future__ import annotations

from collections.abc import Callable

MB = 2**20


class AmdGpus:
    """The GPUs that this process may use; torch knows which these are, whatever hides the others.

    Args:
        use: Whether to read utilization, temperature and power.
        memory: Whether to read memory.
    """

    def __init__(self, *, use: bool = True, memory: bool = True) -> None:
        self._use, self._memory = use, memory
        self._count = 0

    def open(self) -> str | None:
        """Count them; return why no GPU can be read, or None."""
        import torch

        try:
            count = torch.cuda.device_count()
            if count:
                torch.cuda.device_memory_used(0)
        except Exception as error:  # the library, its module or the driver is missing, each with an error of its own
            return f"{type(error).__name__}: {error}"
        self._count = count
        return None if count else "there is none"

    def read(self) -> dict[str, float]:
        """Return the readings of each GPU by name; leave out those a GPU does not support."""
        found: dict[str, float] = {}
        for number in range(self._count):
            for name, ask in self._questions().items():
                try:
                    found[f"gpu{number}/{name}"] = float(ask(number))
                except Exception:  # not every card knows its power or temperature
                    continue
        return found

    def _questions(self) -> dict[str, Callable[[int], float]]:
        from torch import cuda

        asked: dict[str, Callable[[int], float]] = {}
        if self._use:
            # Watts here, although torch's documentation speaks of milliwatts: those are NVIDIA's.
            asked = {"percent": cuda.utilization, "temperature_c": cuda.temperature, "power_w": cuda.power_draw}
        if self._memory:
            asked["memory_mb"] = lambda number: cuda.device_memory_used(number) / MB
        return asked

    def close(self) -> None:
        """Forget them."""
        self._count = 0
