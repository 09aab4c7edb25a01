"""What an iteration has changed is put back, to the bit; hooks/test_check_invalid_loss_hook.py has whole runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from ignite_hooks.model.rollback import Undo


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
def test_steps_are_taken_back_with_all_the_optimizer_remembers(before: int, within: int) -> None:
    weight, optimizer = adam()
    undo = Undo(None, [optimizer], lambda: 1)
    steps(optimizer, weight, before)
    expected = copy.deepcopy((weight.data, optimizer.state_dict()))
    undo.begin()
    steps(optimizer, weight, within)
    undo.back()
    torch.testing.assert_close((weight.data, optimizer.state_dict()), expected, rtol=0, atol=0)


def test_memory_is_used_again_and_a_step_that_may_stay_stays() -> None:
    weight, optimizer = adam()
    undo = Undo(None, [optimizer], lambda: 1)
    seen = set()
    for _ in range(3):
        undo.begin()
        steps(optimizer, weight)
        seen.add(tuple(copy_.data_ptr() for copy_ in undo._kept[0]._weights._copies))
        undo.end()
    assert len(seen) == 1
    expected, its_optimizer = adam()
    steps(its_optimizer, expected, 3)
    assert torch.equal(weight, expected)


def test_an_optimizer_that_tells_of_no_step_is_kept_beforehand() -> None:
    class Plain:
        def __init__(self, weight: Any) -> None:
            self.param_groups = [{"params": [weight]}]

        def step(self) -> None:
            self.param_groups[0]["params"][0].data.mul_(2)

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = Plain(weight)
    undo = Undo(None, [optimizer], lambda: 1)
    undo.begin()
    optimizer.step()
    undo.back()
    assert weight.tolist() == [1, 1]


def test_nothing_is_copied_of_weights_that_are_not_stepped() -> None:
    _, optimizer = adam()
    undo = Undo(None, [optimizer], lambda: 1)
    undo.begin()
    assert undo._kept[0]._weights._copies == []


def test_it_lets_go_of_the_optimizers() -> None:
    _, optimizer = adam()
    undo = Undo(None, [optimizer], lambda: 1)
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    undo.leave()
    assert len(optimizer._optimizer_step_pre_hooks) == 0
