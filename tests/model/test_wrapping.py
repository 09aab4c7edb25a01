"""`wrapping.py`: the model behind its wrappers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.model.wrapping import has_buffers, is_sharded, load_plain, plain_state, signature_of, unwrapped


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize(
    "wrap",
    [lambda model: model, nn.DataParallel, compiled, lambda model: compiled(nn.DataParallel(model))],
    ids=["plain", "DataParallel", "compiled", "both"],
)
def test_every_wrapper_is_removed(wrap: Any) -> None:
    model = nn.Linear(1, 1)
    assert unwrapped(wrap(model)) is model


def test_a_model_with_an_attribute_called_module_is_no_wrapper() -> None:
    model = nn.Sequential()
    model.module = nn.Linear(1, 1)  # type: ignore[assignment]
    assert unwrapped(model) is model


def test_no_model_and_whole_models_are_not_sharded() -> None:
    assert unwrapped(None) is None
    assert not is_sharded(None)
    assert not is_sharded(nn.BatchNorm1d(2))


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (nn.Linear(1, 1), False),
        (nn.BatchNorm1d(1), True),
        (None, False),
        ({"g": nn.Linear(1, 1)}, False),
        ([nn.BatchNorm1d(1)], True),
    ],
)
def test_one_model_or_several_have_buffers_or_not(model: Any, wanted: bool) -> None:
    assert has_buffers(model) == wanted


def test_a_signature_tells_models_of_other_layers_apart() -> None:
    one, other, lazy = nn.Linear(2, 3), nn.Linear(3, 2), nn.LazyLinear(3)
    found = [signature_of(model) for model in (None, one, other, lazy, [one], {"g": one, "d": other}, object())]
    assert len(set(found)) == len(found)
    assert signature_of(nn.Linear(2, 3)) == signature_of(nn.DataParallel(one)) == signature_of(one)


def test_parts_wrapped_alone_have_plain_names_in_checkpoints() -> None:
    plain = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    names = list(plain.state_dict())
    wrapped = copy.deepcopy(plain)
    part: Any = wrapped[1]
    part[0] = compiled(part[0])
    wrapped[1] = nn.DataParallel(wrapped[1])
    assert list(wrapped.state_dict()) != names
    state = plain_state(wrapped)
    assert list(state) == names
    for model in (plain, wrapped):
        for saved in (plain_state(wrapped), wrapped.state_dict()):
            zeros = {key: torch.zeros_like(value) for key, value in saved.items()}
            load_plain(model, zeros)
            assert not any(weight.any() for weight in model.parameters())


def test_a_part_that_is_called_module_keeps_its_name() -> None:
    model = nn.ModuleDict({"module": nn.Linear(2, 1)})
    assert list(plain_state(model)) == ["module.weight", "module.bias"]
    load_plain(model, plain_state(model))
