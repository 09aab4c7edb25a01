from __future__ import annotations

import pytest
import torch
from torch import nn

from ignite_hooks.model.optimizers import learning_rates, param_groups, set_rate


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
