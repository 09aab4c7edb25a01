"""What CUDA (NVIDIA, AMD) and MPS (macOS) do differently. MPS follows torch's documentation: never run here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

MB: Final = 2**20


def has_mps() -> bool:
    """Return whether torch can use the GPU of a Mac."""
    import torch

    return torch.backends.mps.is_available()


def unavailable(device: torch.device) -> str:
    """Return why a device cannot be used here, or an empty text."""
    import torch

    if device.type == "cuda" and not torch.cuda.is_available():
        return "torch sees no GPU here"
    if device.type == "mps" and not has_mps():
        return "torch sees no GPU of a Mac here"
    return ""


def timed_event(device_type: str) -> Any:
    """Return an event for the queue of a device, which takes the time."""
    import torch

    if device_type == "mps":
        return torch.mps.Event(enable_timing=True)
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def memory_of_gpu() -> dict[str, float]:
    """Return the memory in use on the current GPU, what torch holds of it, and its peak, in MB; empty without one.

    MPS knows no peak. What torch holds comes close to it: it gives nothing back by itself.
    """
    import torch

    if torch.cuda.is_available():
        found = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()
        return dict(zip(("allocated", "reserved", "peak"), (size / MB for size in found), strict=True))
    if has_mps():
        return {
            "allocated": torch.mps.current_allocated_memory() / MB,
            "reserved": torch.mps.driver_allocated_memory() / MB,
        }
    return {}


def peak_of_gpu() -> dict[str, float]:
    """Return the peak memory of the current GPU, as ``memory_mb``; empty if it is not used."""
    import torch

    # For every line of the log: this asks for less than whether there is a GPU.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        used = torch.cuda.max_memory_allocated()
    elif torch.backends.mps.is_available():
        used = torch.mps.driver_allocated_memory()
    else:
        return {}
    return {"memory_mb": used / MB} if used else {}


def memory_summary() -> list[str]:
    """Return what torch says of the memory of the current GPU."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.memory_summary().splitlines()
    if has_mps():
        found = {**memory_of_gpu(), "recommended at most": torch.mps.recommended_max_memory() / MB}
        return [f"{name}: {size:,.0f} MB" for name, size in found.items()]
    return []


def empty_cache() -> None:
    """Give back memory that torch holds on the GPU, but does not use."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif has_mps():
        torch.mps.empty_cache()


def random_states() -> dict[str, Any]:
    """Return the states of the random generators of GPUs."""
    import torch

    found: dict[str, Any] = {}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state_all()
    if has_mps():
        found["mps"] = torch.mps.get_rng_state()
    return found


def set_random_states(states: Mapping[str, Any]) -> None:
    """Restore what `random_states` returned, as far as these GPUs are here."""
    import torch

    if "cuda" in states and torch.cuda.is_available():
        for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, device)
    if "mps" in states and has_mps():
        torch.mps.set_rng_state(states["mps"])


def generators_in_use() -> dict[str, Any]:
    """Return for ``torch.random.fork_rng`` whose generators to restore besides that of the CPU."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {"devices": list(range(torch.cuda.device_count()))}
    return {"devices": [0], "device_type": "mps"} if has_mps() else {"devices": []}


def is_read_in_place(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a tensor can be copied by bytes: that of the CPU and of CUDA."""
    return tensor.is_cpu or tensor.is_cuda


def in_double(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision; MPS has none, so that the CPU has to hold it."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()
