"""Objects that measure as those of other libraries do, without the libraries."""

from __future__ import annotations

from typing import Any

import torch


def dim_zero_sum(states: Any) -> Any:
    """Name a reduction as torchmetrics does; it is never called."""
    raise AssertionError("it has synchronised itself")


dim_zero_cat: Any = type("dim_zero_cat", (), {"__name__": "dim_zero_cat"})()
dim_zero_mean: Any = type("dim_zero_mean", (), {"__name__": "dim_zero_mean"})()


class Reduced:
    """Counts right answers and keeps scores, with the states of torchmetrics."""

    def __init__(self, **reductions: Any) -> None:
        self._reductions = {"right": dim_zero_sum, "scores": dim_zero_cat, **reductions}
        self._to_sync = self.sync_on_compute = True
        self.reset()

    def reset(self) -> None:
        self.right, self.scores = torch.zeros(7, 7, dtype=torch.long), list[torch.Tensor]()
        self._update_count, self._computed = 0, None

    def update(self, predictions: torch.Tensor, truth: torch.Tensor) -> None:
        self._update_count, self._computed = self._update_count + 1, None
        for one, other in zip(truth.tolist(), predictions.argmax(1).tolist(), strict=True):
            self.right[one, other] += 1
        self.scores.append(predictions.max(1).values)

    def compute(self) -> dict[str, Any]:
        if self._computed is None:
            assert self._update_count, "torchmetrics warns here"
            if self._to_sync and torch.distributed.is_initialized():
                dim_zero_sum(self.right)
            scores = torch.cat(self.scores).double().sort().values
            self._computed = {"counts": self.right.clone(), "median": float(scores[len(scores) // 2])}  # type: ignore[assignment]
        return self._computed  # type: ignore[return-value]


class Mergeable:
    """Adds up losses as torcheval does, with states of its own."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total, self.samples = 0.0, 0

    def update(self, predictions: torch.Tensor, truth: torch.Tensor) -> None:
        self.total += float(torch.nn.functional.cross_entropy(predictions.double(), truth, reduction="sum"))
        self.samples += len(truth)

    def compute(self) -> float:
        return self.total / self.samples

    def merge_state(self, others: Any) -> None:
        for one in others:
            self.total, self.samples = self.total + one.total, self.samples + one.samples

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.samples = state["total"], state["samples"]


class Plain:
    """Counts samples, and nobody knows how its state could be merged."""

    def reset(self) -> None:
        self.samples = 0

    def update(self, predictions: torch.Tensor, truth: torch.Tensor) -> None:
        self.samples += len(truth)

    def compute(self) -> int:
        return self.samples
