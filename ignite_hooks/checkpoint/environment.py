"""What the bits of a run depend on besides its script: threads, torch, and the flags of its kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

VARIABLES = ("MKL_CBWR", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "CUBLAS_WORKSPACE_CONFIG", "ATEN_CPU_CAPABILITY")
"""The environment variables by which libraries choose other kernels."""


def environment() -> dict[str, Any]:
    """Return what decides which kernels compute, and in which order they add, as plain types."""
    import torch

    return {
        "torch": str(torch.__version__),
        "torch threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "CPU kernels": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": bool(torch.backends.mkldnn.enabled),
        **{name: os.environ.get(name) for name in VARIABLES},
    }


def environment_changes(saved: Any) -> str | None:
    """Return a line that names each difference to the environment of a checkpoint and the remedy; None without any.

    Args:
        saved: What `environment` returned, or anything else that a file may hold.
    """
    if not isinstance(saved, Mapping):
        return None
    now = environment()
    changed = [
        f"{name} {_shown(saved[name])} -> {_shown(value)}"
        for name, value in now.items()
        if name in saved and saved[name] != value
    ]
    if not changed:
        return None
    before = _shown(saved.get("torch threads"))
    remedy = f"; {{type: DeterminismHook, threads: {before}}} sets the number of threads"
    threads = "torch threads" in saved and saved["torch threads"] != now["torch threads"]
    return f"other bits may come out than before, because of {', '.join(changed)}{remedy if threads else ''}"


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)[:50]
