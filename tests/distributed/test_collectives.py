from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ignite_hooks.distributed.collectives import (
    ROOM,
    all_gather,
    all_reduce_max,
    average,
    broadcast_object,
    broadcast_tensors,
    fail_on_all_ranks,
    is_main_process,
    pack,
    unpack,
)
from ignite_hooks.errors import RankError
from tests.faults.tools import drawn
from tests.ranks import run_ranks


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**70),
        0.1,
        "ä\n",
        [],
        {"a": [1, {"b": None}]},
        torch.tensor(3),
        torch.tensor([1.5, math.inf], dtype=torch.float16),
        torch.tensor([1 + 2j]),
        torch.tensor([True, False]),
        torch.empty(0, 3),
        torch.arange(6).reshape(2, 3).t(),
        {"of": [torch.tensor([2**62 + 1]), torch.tensor([1.0], dtype=torch.bfloat16)]},
    ],
)
def test_values_arrive_bit_for_bit(value: Any) -> None:
    heard = unpack(pack(value))
    assert str(heard) == str(value)
    if isinstance(value, torch.Tensor):
        assert heard.dtype == value.dtype
        assert torch.equal(heard, value)


def test_malformed_bytes_are_an_error() -> None:
    dice = drawn()
    for _ in range(300):
        said = bytearray(pack({"a": torch.arange(5), "b": [1.5]}))
        for _ in range(dice.randint(1, 5)):
            said[dice.randrange(len(said))] = dice.randrange(256)
        try:
            unpack(bytes(said))
        except (ValueError, TypeError, RuntimeError, AttributeError, KeyError, MemoryError, OverflowError):
            continue


def test_a_single_process_gathers_its_own_value() -> None:
    assert all_gather("x") == ["x"]
    assert broadcast_object({"a": 1}) == {"a": 1}
    assert all_reduce_max([3, -4]) == [3, -4]
    assert fail_on_all_ranks(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        fail_on_all_ranks(lambda: 1 // 0)


def in_each_process() -> dict[str, Any]:
    import ignite.distributed as idist

    rank = idist.get_rank()
    found: dict[str, Any] = {}
    found["main"] = is_main_process()
    found["short"] = all_gather([rank, "é"])
    found["long"] = [len(said) for said in all_gather("x" * (ROOM * rank * 2))]
    found["tensors"] = [said.tolist() for said in all_gather(torch.full((rank,), 0.5))]
    found["first"] = broadcast_object({"rank": rank})
    found["max"] = all_reduce_max([rank, -rank])

    def fail_on_rank_1() -> str:
        if rank == 1:
            raise OSError("the disk is full")
        return "done"

    try:
        found["outcome"] = fail_on_all_ranks(fail_on_rank_1)
    except (OSError, RankError) as error:
        found["outcome"] = f"{type(error).__name__}: {error}"
    kinds = [torch.float16, torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8]
    tensors = [torch.full((2, 3), rank + 1).to(kind).t() for kind in kinds] + [torch.tensor(5 + rank)]
    average(tensors)
    found["average"] = [tensor.reshape(-1)[0].item() for tensor in tensors]
    tensors = [torch.full((3,), rank * 2**40 + 7), torch.tensor([math.pi * (rank + 1)]), torch.empty(0)]
    broadcast_tensors(tensors)
    found["from the first"] = [tensor.tolist() for tensor in tensors]
    broadcast_tensors([torch.empty(0)])
    return found


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return run_ranks(in_each_process)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("short", [[0, "é"], [1, "é"]]),
        ("long", [0, 2 * ROOM]),
        ("tensors", [[], [0.5]]),
        ("first", {"rank": 0}),
        ("max", [1, 0]),
        ("average", [1.5, 1.5, 1.5, 1, True, 1, 5]),
        ("from the first", [[7, 7, 7], [pytest.approx(math.pi, rel=1e-7)], []]),
    ],
)
def test_all_ranks_receive_the_same(found: list[dict[str, Any]], what: str, wanted: Any) -> None:
    assert [each[what] for each in found] == [wanted, wanted]


@pytest.mark.slow
def test_rank_0_is_the_main_process(found: list[dict[str, Any]]) -> None:
    assert [each["main"] for each in found] == [True, False]


def test_a_single_process_is_the_main_process() -> None:
    assert is_main_process()


@pytest.mark.slow
def test_a_failure_of_one_rank_fails_on_all(found: list[dict[str, Any]]) -> None:
    assert [each["outcome"] for each in found] == [
        "RankError: rank 1 has failed: OSError: the disk is full",
        "OSError: the disk is full",
    ]
