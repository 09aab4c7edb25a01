"""What is said about gradients: models with known faults, and healthy ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ignite_hooks.hooks.monitors.gradient_flow_hook import by_layer, kinds_of
from ignite_hooks.measure.gradient_findings import gradient_findings, outliers
from ignite_hooks.measure.gradients import GradientFlow, GradientSample, LayerGradient

Disturb = Callable[[nn.Module, int], None]


def found_in(
    model: nn.Module,
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]],
    *,
    iterations: int = 60,
    disturb: Disturb = lambda model, step: None,
    rate: float = 1e-3,
) -> list[str]:
    """Train a model with AdamW, look at the gradients of each iteration, and return what is said of them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    flow, generator = GradientFlow(), torch.Generator().manual_seed(0)
    layers = by_layer(model, None)
    for step in range(1, iterations + 1):
        inputs, targets = batch(generator)
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        disturb(model, step)
        sample = GradientSample(layers, step)
        sample.note_gradients(lambda _: True, optimizer=optimizer)
        optimizer.step()
        sample.note_update()
        found = sample.fetch()
        flow.add(found, kinds_of(model, found))
    return gradient_findings(flow)


def vectors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(16, 16, generator=generator)
    return inputs, inputs[:, :4].argmax(1)


def pictures(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(8, 3, 8, 8, generator=generator)
    return inputs, inputs.mean((2, 3)).argmax(1)


def words(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randint(0, 100, (8, 10), generator=generator)
    return inputs, inputs[:, 0] % 4


def mlp(depth: int = 8, activation: type[nn.Module] = nn.ReLU, scale: float = 1.0) -> nn.Sequential:
    layers = [part for _ in range(depth) for part in (nn.Linear(16, 16), activation())]
    model = nn.Sequential(*layers, nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


class Residual(nn.Module):
    """Blocks that add nothing at first: the last scale of each is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)) for _ in range(4)
        )
        for block in self.blocks:
            nn.init.zeros_(block[1].weight)  # type: ignore[index]

    def forward(self, images: Tensor) -> Any:
        x = self.stem(images)
        for block in self.blocks:
            x = (x + block(x)).relu()
        return self.head(x.mean((2, 3)))


class Reader(nn.Module):
    """A small transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 3), nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Any:
        return self.head(self.encoder(self.table(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.cells, self.head = (
            nn.Embedding(100, 16),
            nn.LSTM(16, 16, 2, batch_first=True),
            nn.Linear(16, 4),
        )

    def forward(self, tokens: Tensor) -> Any:
        return self.head(self.cells(self.table(tokens))[0][:, -1])


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lost, self.rest = nn.Linear(16, 16), mlp(3)

    def forward(self, inputs: Tensor) -> Any:
        return self.rest(self.lost(inputs).detach())


def convolutions() -> nn.Module:
    blocks = [
        part
        for n in range(4)
        for part in (nn.Conv2d(3 if n == 0 else 8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def multiply(layer: str, factor: float, at: int | None = None) -> Disturb:
    def disturb(model: nn.Module, step: int) -> None:
        for name, parameter in model.named_parameters():
            if name.startswith(layer) and (at is None or step == at) and parameter.grad is not None:
                parameter.grad *= factor

    return disturb


FAULTS: dict[str, tuple[Callable[[], nn.Module], Disturb, str, str]] = {
    "weights 8 times too large": (
        lambda: mlp(18, scale=8.0),
        multiply("", 1.0),
        "the gradients explode: in the median layer",
        "vanishes",
    ),
    "one layer with 1e12 times the gradient": (
        mlp,
        multiply("6.", 1e12),
        "the gradient explodes in 6: relative to the weights",
        "vanishes",
    ),
    "many sigmoids": (lambda: mlp(14, nn.Sigmoid), multiply("", 1.0), "the gradient vanishes in 0", "explodes"),
    "a detached layer": (Detached, multiply("", 1.0), "no gradient comes to lost: detached", "vanishes"),
    "one iteration with 1e4 times the gradient": (
        mlp,
        multiply("6.", 1e4, at=40),
        "the gradient jumps in 6: in one iteration",
        "explodes",
    ),
}

HEALTHY: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "mlp": (mlp, vectors),
    "convolutions with normalisation": (convolutions, pictures),
    "residual blocks that begin at zero": (Residual, pictures),
    "transformer": (Reader, words),
    "recurrent": (Recurrent, words),
}


@pytest.fixture(autouse=True)
def _seeded() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("name", FAULTS)
def test_a_known_fault_is_found_and_only_the_outlier_is_named(name: str) -> None:
    make, disturb, said, unsaid = FAULTS[name]
    found = [text for text in found_in(make(), vectors, disturb=disturb) if "an update" not in text]
    assert len(found) == 1, found
    assert found[0].startswith(said)
    assert unsaid not in found[0]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_model_has_no_findings(name: str) -> None:
    make, batch = HEALTHY[name]
    assert found_in(make(), batch, iterations=120) == []


def same(gradient: float, ratio: float | None = None) -> LayerGradient:
    return LayerGradient(gradient, 1, ratio, weight=1.0)


def rest(**more: LayerGradient) -> dict[str, LayerGradient]:
    """Return four layers with a usual gradient, and others."""
    return {**{f"usual{n}": same(1.0) for n in range(4)}, **more}


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([rest(a=same(1.1e-3))], []),
        ([rest(a=same(0.9e-3))], ["the gradient vanishes in a: relative to the weights 9e-04 of"]),
        ([rest(a=same(999.0))], []),
        ([rest(a=same(1e12))], ["the gradient explodes in a: relative to the weights 1e+12 times"]),
        ([rest(a=same(math.nan))], ["the gradient is not finite in a"]),
        ([{"a": same(0.0)}], []),
        ([rest(a=same(1.0))] * 20 + [rest(a=same(99.0))], []),
        ([rest(a=same(1.0))] * 20 + [rest(a=same(101.0))], ["the gradient jumps in a: in one iteration 1e+02 times"]),
        ([rest(a=same(1.0))] * 20 + [rest(a=same(9e-3))], ["the gradient collapses in a: it fell to 9e-03"]),
        ([rest()] * 20 + [{name: same(1e-3) for name in rest()}], []),
        ([rest(a=same(1.0))] * 9 + [rest(a=same(101.0))], []),
        ([{"a": same(1.0), "b": same(1e-9)}], []),
        ([rest(a=same(1.0, 0.2))], ["an update changes a by more than 10%"]),
        ([rest(a=same(1.0, 1e-8))], ["an update hardly changes a"]),
        ([rest(a=same(1.0, 1e-3))], []),
        # A large layer has a larger norm for the same gradient of each weight, and as much larger weights.
        ([rest(a=LayerGradient(1e5, 10**10, weight=1e5))], []),
        # A layer of zeros has no relative gradient.
        ([rest(a=LayerGradient(1.0, 1, weight=0.0))], []),
    ],
)
def test_gradients_that_stand_out_are_named(samples: list[dict[str, LayerGradient]], said: list[str]) -> None:
    flow = GradientFlow()
    for sample in samples:
        flow.add(sample, dict.fromkeys(sample, "Linear"))
    found = gradient_findings(flow)
    assert len(found) == len(said), found
    assert all(text.startswith(words) for text, words in zip(found, said, strict=True)), found


def test_layers_of_a_rare_kind_are_compared_with_all() -> None:
    flow = GradientFlow()
    flow.add(rest(table=same(1e-4), odd=same(1e-6)), {**dict.fromkeys(rest(), "Linear"), "table": "E", "odd": "O"})
    (found,) = gradient_findings(flow)
    assert found.startswith("the gradient vanishes in odd: relative to the weights 1e-06 of the median of all layers")


def test_of_gradients_that_climb_through_the_model_only_the_early_end_stands_out() -> None:
    climbing = {str(n): 10.0**n for n in range(11)}
    assert outliers(climbing, 1e5, 1e3) == (["0", "1", "2"], [])
    falling = {str(n): 10.0**-n for n in range(11)}
    assert outliers(falling, 1e-5, 1e3) == ([], ["0", "1", "2"])
