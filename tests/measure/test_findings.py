"""`findings.py`: what stands out in measurements."""

from __future__ import annotations

import pytest

from ignite_hooks.measure.findings import phase_findings, profile_findings
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


@pytest.mark.parametrize(("milliseconds", "said"), [(0.9, False), (1.1, True)])
def test_workers_are_advised_only_where_loading_costs_a_millisecond(milliseconds: float, said: bool) -> None:
    seconds = {"data": 10 * milliseconds / 1e3, "other": 10 * milliseconds / 1e3}
    assert bool(phase_findings(seconds, 0, iterations=10)) == said


def test_an_all_reduce_is_not_called_a_slow_autograd_function() -> None:
    [alone] = phase_findings({"forward": 1.0, "backward": 9.0})
    [together] = phase_findings({"forward": 1.0, "backward": 9.0}, ranks=2)
    assert "slow autograd functions" in alone
    assert "slow autograd functions" not in together
    assert "all-reduce" in together


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
