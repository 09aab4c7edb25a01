"""Models that are exported in tests, and the inputs of a batch of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Tied(nn.Module):
    """Its output layer has the weights of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embedding(tokens).mean(1))
        return scores


class Named(nn.Module):
    """It takes a mapping, returns one, and has a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        found = self.one(x) * mask[:, None] + self.shift
        return {"scores": found, "best": found.argmax(1)}


class Norms(nn.Module):
    """Convolution, batch norm and dropout, which differ in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten())
        self.head = nn.LazyLinear(4)
        self(torch.randn(4, 1, 6, 6))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layers(images))
        return scores


class ByValue(nn.Module):
    """What it computes depends on a value, which no trace can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.sum()) > 0 else x


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "tied": (Tied, lambda: torch.randint(7, (3, 5))),
    "named": (Named, lambda: {"x": torch.randn(3, 3), "mask": torch.ones(3), "id": torch.arange(3)}),
    "norms": (Norms, lambda: torch.randn(3, 1, 6, 6)),
}
