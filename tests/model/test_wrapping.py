"""`wrapping.py`: the model behind its wrappers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.model.wrapping import is_sharded, unwrapped


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
