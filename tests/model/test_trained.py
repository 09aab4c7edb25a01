"""`trained.py`: what is saved of modules beside the model, what tells that they have changed, and loose weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.model.trained import LooseWeights, OtherModule, drives_the_same, tensors_of, weights_of


def pair() -> tuple[nn.Sequential, nn.Linear, nn.Linear]:
    one, other = nn.Linear(2, 2), nn.Linear(2, 3)
    return nn.Sequential(one, other), one, other


def test_a_module_without_known_tensors_is_saved_without_them() -> None:
    whole, one, other = pair()
    found = OtherModule(whole, tensors_of([one]), {id(other.weight)})
    assert list(found.state_dict()) == ["1.weight", "1.bias"]
    assert (found.is_trained, found.is_empty, found.is_sharded) == (True, False, False)
    before, saved = copy.deepcopy(whole.state_dict()), copy.deepcopy(found.state_dict())
    with torch.no_grad():
        for weight in whole.parameters():
            weight.add_(1.0)
    found.load_state_dict(saved)
    assert torch.equal(other.weight, before["1.weight"])
    assert torch.equal(one.weight, before["0.weight"] + 1.0)


def test_a_module_of_known_tensors_only_is_empty() -> None:
    whole, one, other = pair()
    assert OtherModule(whole, tensors_of([one, other]), ()).is_empty
    assert OtherModule(nn.ReLU(), (), ()).is_empty


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        ({"weight": torch.zeros(2, 2)}, "other weights: bias"),
        ({"weight": torch.zeros(3, 2), "bias": torch.zeros(2)}, r"weight had the shape \(3, 2\) and has \(2, 2\) now"),
    ],
)
def test_a_module_takes_all_or_nothing(saved: dict[str, Any], words: str) -> None:
    module = nn.Linear(2, 2)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match=words):
        OtherModule(module, (), ()).load_state_dict(saved)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def by_data(module: nn.Module) -> None:
    for weight in module.parameters():
        weight.data.mul_(0.5)


CHANGES: dict[str, tuple[Callable[[nn.Module], object], bool]] = {
    "a forward pass in evaluation": (lambda module: module.eval()(torch.ones(2, 2)), False),
    "a forward pass in training, with statistics": (lambda module: module.train()(torch.ones(2, 2)), True),
    "weights loaded": (lambda module: module.load_state_dict(module.state_dict()), True),
    "weights changed by .data": (by_data, True),
    "not-a-number": (lambda module: None, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_mark_tells_a_change(name: str) -> None:
    change, is_other = CHANGES[name]
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    if name == "not-a-number":
        nn.init.constant_(module[0].weight, torch.nan)
    found = OtherModule(module, (), ())
    before = found.mark()
    change(module)
    assert (found.mark() != before) is is_other


def test_what_has_no_size_yet_is_marked_and_saved() -> None:
    found = OtherModule(nn.LazyLinear(2), (), ())
    assert found.mark() == found.mark()
    found.load_state_dict(found.state_dict())


def test_weights_of_no_module_are_saved_by_their_place() -> None:
    module, alone = nn.Linear(2, 2), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([{"params": module.parameters()}, {"params": [alone]}], lr=0.1)
    assert list(weights_of(optimizer)) == ["0.0", "0.1", "1.0"]
    loose = LooseWeights(optimizer, tensors_of([module]))
    assert list(loose.state_dict()) == ["1.0"]
    loose.load_state_dict({"1.0": torch.ones(3)})
    assert alone.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="weights of the shapes"):
        loose.load_state_dict({"1.0": torch.ones(2)})
    assert alone.tolist() == [1.0] * 3


def test_a_wrapper_of_an_optimizer_drives_the_same() -> None:
    one, other = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1) for _ in range(2))
    wrapper = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    wrapper.param_groups = one.param_groups
    assert drives_the_same(wrapper, [other, one])
    assert not drives_the_same(other, {"a": one})
