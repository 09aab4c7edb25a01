"""Norms of gradients and updates, by layer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.measure.gradients import (
    GradientFlow,
    GradientSample,
    LayerGradient,
    LayerHistory,
    dense,
    trained_parameters,
)


def everything(parameter: Any) -> bool:
    return True


def layers_of(model: nn.Sequential) -> dict[str, list[nn.Parameter]]:
    return {name: list(layer.parameters()) for name, layer in model.named_children()}


def two_layers() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model(torch.tensor([[1.0, -2.0, 0.5]])).sum().backward()
    return model


def norm_of(tensors: list[Any]) -> float:
    return math.sqrt(sum(float(tensor.detach().double().pow(2).sum()) for tensor in tensors))


def test_gradient_and_update_of_a_layer_are_measured() -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    layers = layers_of(model)
    gradients = {name: norm_of([p.grad for p in layer]) for name, layer in layers.items()}
    weights = {name: norm_of(layer) for name, layer in layers.items()}
    sample = GradientSample(layers, step=1)
    sample.note_gradients(everything, optimizer=optimizer)
    optimizer.step()
    sample.note_update()
    found = sample.fetch()
    assert {name: layer.size for name, layer in found.items()} == {"0": 8, "1": 3}
    for name, layer in found.items():
        assert layer.gradient == pytest.approx(gradients[name], rel=1e-5)
        assert layer.per_weight == pytest.approx(gradients[name] / math.sqrt(layer.size), rel=1e-5)
        assert layer.ratio == pytest.approx(0.25 * gradients[name] / weights[name], rel=1e-4)


def test_a_scale_is_divided_out() -> None:
    plain, scaled = (GradientSample(layers_of(model), 1) for model in (two_layers(), two_layers()))
    plain.note_gradients(everything)
    for parameters in scaled._layers.values():
        for parameter in parameters:
            parameter.grad *= 1024
    scaled.note_gradients(everything, scale=torch.tensor(1024.0))
    assert scaled.fetch() == plain.fetch()


def test_parameters_without_gradient_count_as_zero() -> None:
    model = two_layers()
    model[1].weight.grad = None
    sample = GradientSample(layers_of(model), 1)
    sample.note_gradients(lambda parameter: parameter is not model[0].bias)
    found = sample.fetch()
    assert (found["1"].gradient, found["1"].size) == (1.0, 1), "the bias alone has a gradient"
    assert found["0"].size == 6, "only the weights were chosen"
    assert found["0"].ratio is None


def test_a_layer_that_was_not_chosen_is_left_out() -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    sample = GradientSample(layers_of(model), 1)
    assert sample.fetch() == {}
    sample.note_gradients(trained_parameters([optimizer]).__contains__)
    assert list(sample.fetch()) == ["1"]


def test_a_row_used_twice_is_one_sparse_gradient() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([3, 3, 1])).sum().backward()
    assert table.weight.grad is not None
    assert dense(table.weight.grad).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    sample = GradientSample({"table": [table.weight]}, 1)
    sample.note_gradients(everything)
    assert sample.fetch()["table"].gradient == pytest.approx(math.sqrt(10))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_not_finite_are_only_counted(bad: float) -> None:
    history = LayerHistory()
    assert (history.mean, history.ratio) == (0.0, None)
    for gradient in (2.0, bad, 6.0):
        history.add(LayerGradient(gradient, size=4, ratio=gradient))
    assert (history.samples, history.not_finite) == (3, 1)
    assert (history.mean, history.smallest, history.largest) == (2.0, 1.0, 3.0)
    assert history.ratio == 4.0


def test_a_flow_has_ratios_of_updated_layers_only() -> None:
    flow = GradientFlow()
    for gradient in (1.0, 3.0):
        flow.add({"b": LayerGradient(gradient, 1, ratio=0.5), "a": LayerGradient(gradient, 1)})
    assert list(flow.strengths().items()) == [("b", (2.0, 3.0)), ("a", (2.0, 3.0))]
    assert flow.ratios() == {"b": 0.5}
