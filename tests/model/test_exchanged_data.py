from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ignite_hooks.model.exchanged_data import ExchangedData


def swapped(exchanged: ExchangedData, table: dict[str, Tensor], values: list[Tensor]) -> list[Tensor]:
    """Return what the tensors hold between a swap in and a swap out."""
    exchanged.swap_in([table] * len(table), list(table), values)
    held = [tensor.detach() for tensor in table.values()]
    exchanged.swap_out()
    return held


def test_tensors_hold_the_very_memory_they_are_given_and_get_their_own_back() -> None:
    table = {"a": nn.Parameter(torch.ones(3)), "b": torch.zeros(2, 2)}
    values = [torch.full((3,), 5.0), torch.full((2, 2), 6.0)]
    where, versions = [t.data_ptr() for t in table.values()], [t._version for t in table.values()]
    exchanged = ExchangedData()
    for _ in range(3):
        held = swapped(exchanged, table, values)
        assert [t.data_ptr() for t in held] == [v.data_ptr() for v in values]
        assert [t.data_ptr() for t in table.values()] == where
    assert [t._version for t in table.values()] == versions, "nothing was written"
    exchanged.swap_out()
    assert [t.data_ptr() for t in table.values()] == where


def test_other_types_are_cast() -> None:
    table = {"half": nn.Parameter(torch.ones(3, dtype=torch.bfloat16)), "whole": nn.Parameter(torch.ones(3))}
    values = [torch.full((3,), 5.0), torch.full((3,), 6.0)]
    half, whole = swapped(ExchangedData(), table, values)
    assert half.dtype == torch.bfloat16
    assert half.tolist() == [5.0] * 3
    assert whole.data_ptr() == values[1].data_ptr()
    assert [t.dtype for t in table.values()] == [torch.bfloat16, torch.float32]


def new_memory(table: dict[str, Tensor]) -> None:
    table["a"].data = torch.arange(4.0)


def fewer(table: dict[str, Tensor]) -> None:
    table["a"].data = table["a"].data[:2]


def another_object(table: dict[str, Tensor]) -> None:
    table["a"] = nn.Parameter(table["a"].detach())


def another_type(table: dict[str, Tensor]) -> None:
    table["a"].data = table["a"].data.double()


@pytest.mark.parametrize("change", [new_memory, fewer, another_object, another_type], ids=lambda f: f.__name__)
def test_what_changed_between_two_swaps_is_what_comes_back(change: Callable[[dict[str, Tensor]], None]) -> None:
    table: dict[str, Tensor] = {"a": nn.Parameter(torch.ones(4)), "b": nn.Parameter(torch.ones(1))}
    values, exchanged = [torch.full((4,), 5.0), torch.full((1,), 6.0)], ExchangedData()
    swapped(exchanged, table, values)
    change(table)
    values[0] = values[0][: table["a"].numel()]
    now = {key: (t.data_ptr(), t.shape, t.dtype, t.tolist()) for key, t in table.items()}
    held = swapped(exchanged, table, values)
    assert held[0].tolist() == [5.0] * table["a"].numel()
    assert {key: (t.data_ptr(), t.shape, t.dtype, t.tolist()) for key, t in table.items()} == now


def test_the_pairs_are_those_that_hold_other_data() -> None:
    table: dict[str, Tensor] = {"a": torch.ones(2)}
    exchanged = ExchangedData()
    exchanged.swap_in([table], ["a"], [torch.zeros(2)])
    ((tensor, own),) = exchanged.pairs()
    assert tensor is table["a"]
    assert own.tolist() == [1.0, 1.0]
    exchanged.swap_out()
    assert list(exchanged.pairs()) == []
