"""Rollback restores every bit; hooks/training/test_check_invalid_loss_hook.py has whole runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from ignite_hooks.model.rollback import Rollback


def steps(optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter, count: int = 1) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        weight.square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def adam() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    return weight, torch.optim.Adam([weight], lr=0.1)


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("within", [0, 1, 2])
def test_steps_are_rolled_back_with_the_optimizer_state(before: int, within: int) -> None:
    weight, optimizer = adam()
    rollback = Rollback(None, [optimizer], lambda: 1)
    steps(optimizer, weight, before)
    expected = copy.deepcopy((weight.data, optimizer.state_dict()))
    rollback.begin()
    steps(optimizer, weight, within)
    rollback.restore()
    torch.testing.assert_close((weight.data, optimizer.state_dict()), expected, rtol=0, atol=0)


def test_memory_is_reused_and_a_good_step_stays() -> None:
    weight, optimizer = adam()
    rollback = Rollback(None, [optimizer], lambda: 1)
    seen = set()
    for _ in range(3):
        rollback.begin()
        steps(optimizer, weight)
        seen.add(tuple(copy_.data_ptr() for copy_ in rollback._kept[0]._weights._copies))
        rollback.end()
    assert len(seen) == 1
    expected, its_optimizer = adam()
    steps(its_optimizer, expected, 3)
    assert torch.equal(weight, expected)


def test_an_optimizer_without_step_hooks_is_copied_beforehand() -> None:
    class Plain:
        def __init__(self, weight: Any) -> None:
            self.param_groups = [{"params": [weight]}]

        def step(self) -> None:
            self.param_groups[0]["params"][0].data.mul_(2)

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = Plain(weight)
    rollback = Rollback(None, [optimizer], lambda: 1)
    rollback.begin()
    optimizer.step()
    rollback.restore()
    assert weight.tolist() == [1, 1]


def test_weights_without_a_step_are_not_copied() -> None:
    _, optimizer = adam()
    rollback = Rollback(None, [optimizer], lambda: 1)
    rollback.begin()
    assert rollback._kept[0]._weights._copies == []


def test_detach_removes_the_hooks_of_the_optimizers() -> None:
    _, optimizer = adam()
    rollback = Rollback(None, [optimizer], lambda: 1)
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    rollback.detach()
    assert len(optimizer._optimizer_step_pre_hooks) == 0
