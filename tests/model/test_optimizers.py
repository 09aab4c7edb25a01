from __future__ import annotations

import pytest
import torch
from torch import nn

from ignite_hooks.model.optimizers import StepHooks, learning_rates, param_groups, set_rate, when_stepping


def test_there_may_be_no_optimizer() -> None:
    assert learning_rates(None) == {}
    assert param_groups(None) == []


def test_groups_of_several_optimizers_come_in_order() -> None:
    weights = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
    one = torch.optim.SGD([{"params": [weight]} for weight in weights[:2]], lr=0.1)
    two = torch.optim.SGD(weights[2:], lr=0.2)
    found = [group["params"][0] for group in param_groups({"one": one, "two": two})]
    assert all(parameter is weight for parameter, weight in zip(found, weights, strict=True))


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_a_rate_that_is_a_tensor_stays_the_same_tensor(rate: float | torch.Tensor) -> None:
    group = {"lr": rate}
    set_rate(group, 0.5)
    assert float(group["lr"]) == 0.5
    assert (group["lr"] is rate) is isinstance(rate, torch.Tensor)


def two() -> tuple[torch.optim.SGD, torch.optim.SGD]:
    one, other = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=rate) for rate in (0.1, 0.2))
    return one, other


def test_functions_hear_of_the_steps_of_each_optimizer_until_they_are_removed() -> None:
    g, d = two()
    hooks, heard = StepHooks(), list[str]()
    hooks.optimizer = {"g": g, "d": d}
    hooks.add("hear", lambda *_: heard.append("step"))
    handles = when_stepping([g, d], lambda name: lambda *_: heard.append(name))
    g.step(), d.step()
    assert heard == ["step", "0", "step", "1"]
    hooks.clear()
    for handle in handles or ():
        handle.remove()
    g.step(), d.step()
    assert len(heard) == 4


def test_steps_are_not_watched_unless_all_optimizers_have_hooks() -> None:
    g, _ = two()
    assert when_stepping([g, object()], lambda name: lambda *_: None) is None
    assert not g._optimizer_step_pre_hooks
    assert when_stepping(None, lambda name: lambda *_: None) is None
