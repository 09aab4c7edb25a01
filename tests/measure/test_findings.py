"""`findings.py`: what stands out in measurements."""

from __future__ import annotations

import math

import pytest

from ignite_hooks.measure.findings import gradient_findings, phase_findings, profile_findings
from ignite_hooks.measure.gradients import GradientFlow, LayerGradient
from ignite_hooks.measure.profile import Operator
from tests.measure.test_profile import seen


@pytest.mark.parametrize(
    ("seconds", "workers", "said"),
    [
        ({"data": 1.0, "other": 9.0}, 0, []),
        ({"data": 5.0, "other": 5.0}, None, ["data loading takes 50 % of the iteration: load it in workers"]),
        ({"data": 5.0, "other": 5.0}, 0, ["set num_workers of the loader, which is 0"]),
        ({"data": 5.0, "other": 5.0}, 2, ["raise num_workers, now 2"]),
        ({"forward": 3.0, "backward": 6.0}, 0, []),
        (
            {"forward": 1.0, "backward": 9.0},
            0,
            ["the backward pass takes 90 % of the iteration, 9.0 times as long as the forward pass"],
        ),
        ({"forward": 0.0, "backward": 9.0}, 0, ["the backward pass takes 100 % of the iteration: look"]),
        ({"hooks": 1.0, "other": 4.0}, 0, ["hooks take 20 % of the iteration"]),
        ({}, 0, []),
    ],
)
def test_slow_phases_are_named(seconds: dict[str, float], workers: int | None, said: list[str]) -> None:
    found = phase_findings(seconds, workers)
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (Operator("mm", 10, 0.24), None),
        (Operator("mm", 10, 0.26), "mm takes 26 % of the iteration: 10 calls of 26.0 ms"),
        (Operator("mm", 1, 0.01, device=0.5), "mm takes 50 % of the iteration: one call of 500.0 ms"),
        (Operator("add", 20_000, 0.2), None),
        (Operator("add", 60_000, 0.6), "6000 operators per iteration take 10.0 µs each"),
        (Operator("aten::_local_scalar_dense", 50, device=0.1), "the host waits for the device 5 times per iteration"),
        (Operator("aten::_local_scalar_dense", 50, 0.1), None),
    ],
)
def test_operators_that_stand_out_are_named(operator: Operator, said: str | None) -> None:
    found = profile_findings(seen(one=operator))
    assert any(said in text for text in found) if said else found == []


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([{"a": LayerGradient(1.0, 1), "b": LayerGradient(1.1e-4, 1)}], []),
        (
            [{"a": LayerGradient(1.0, 1), "b": LayerGradient(0.9e-4, 1)}],
            ["the gradient vanishes in b: 9e-05 of"],
        ),
        ([{"a": LayerGradient(math.nan, 1), "b": LayerGradient(1.0, 1)}], ["the gradient is not finite in a"]),
        ([{"a": LayerGradient(0.0, 1)}], []),
        ([{"a": LayerGradient(1.0, 1)}, {"a": LayerGradient(2e3, 1)}], ["the gradient explodes in a"]),
        ([{"a": LayerGradient(1.0, 1, 0.2)}], ["an update changes a by more than 10%"]),
        ([{"a": LayerGradient(1.0, 1, 1e-8)}], ["an update hardly changes a"]),
        ([{"a": LayerGradient(1.0, 1, 1e-3)}], []),
        # A large layer has a larger norm for the same gradient of each weight.
        ([{"a": LayerGradient(1e5, 10**10), "b": LayerGradient(1.0, 1)}], []),
    ],
)
def test_gradients_that_stand_out_are_named(samples: list[dict[str, LayerGradient]], said: list[str]) -> None:
    flow = GradientFlow()
    for sample in samples:
        flow.add(sample)
    found = gradient_findings(flow)
    assert len(found) == len(said), found
    assert all(text.startswith(words) for text, words in zip(found, said, strict=True))
