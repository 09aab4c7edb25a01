from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ignite_hooks.distributed.batch_sharing import SharedLoader, batches_of, why_not_shared, without_syncs

DATA = TensorDataset(torch.arange(7))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([1, 2])


class OwnWay(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([1, 2])


def seen(loader: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_every_batch_belongs_to_one_rank(size: int, ranks: int) -> None:
    whole = DataLoader(DATA, batch_size=size)
    parts = [SharedLoader(whole, rank, ranks) for rank in range(ranks)]
    found = [seen(part.share_out())[: len(part.shard.mine)] for part in parts]
    assert sorted(batch for part in found for batch in part) == sorted(seen(whole))
    lengths = [len(part) for part in found]
    assert max(lengths) == parts[0].shard.longest
    assert min(lengths) == parts[0].shard.shortest
    assert sum(part.shard.samples for part in parts) == 7


def test_a_rank_without_batches_sees_the_first_one() -> None:
    last = SharedLoader(DataLoader(DATA, batch_size=4), 2, 3)
    assert seen(last.share_out()) == [[0, 1, 2, 3]]
    assert last.shard.mine == []
    assert last.shard.samples == 0


@pytest.mark.parametrize(
    ("loader", "wanted"),
    [
        (DataLoader(DATA, batch_size=3), [[0, 1, 2], [3, 4, 5], [6]]),
        (DataLoader(DATA, batch_size=3, drop_last=True), [[0, 1, 2], [3, 4, 5]]),
        (DataLoader(DATA, batch_size=4, shuffle=True), [[0, 1, 2, 3], [4, 5, 6]]),
        (DataLoader(DATA, batch_size=4, sampler=[6, 5]), [[6, 5]]),
        (DataLoader(DATA, batch_sampler=[[1], [2, 3]]), [[1], [2, 3]]),
        (DataLoader(DATA, batch_size=4, sampler=DistributedSampler(DATA, 2, 1)), [[0, 1, 2, 3], [4, 5, 6]]),
    ],
)
def test_the_batches_are_those_of_one_process(loader: Any, wanted: list[list[int]]) -> None:
    assert batches_of(loader) == wanted


def test_a_random_sampler_is_drawn_each_time() -> None:
    loader = DataLoader(DATA, batch_size=2, sampler=RandomSampler(DATA, num_samples=4))
    assert len(batches_of(loader)) == 2


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        ([1, 2], "list is not a DataLoader"),
        (DataLoader(Stream()), "its dataset has no indices"),
        (DataLoader(DATA, batch_size=None), "it makes no batches"),
        (OwnWay(DATA), "OwnWay has its own __iter__"),
    ],
)
def test_data_that_cannot_be_shared_has_a_reason(loader: Any, reason: str) -> None:
    assert reason in str(why_not_shared(loader))
    assert why_not_shared(DataLoader(DATA)) is None


def test_an_ordinary_model_has_no_syncs_to_skip() -> None:
    model = torch.nn.Linear(1, 1)
    with without_syncs(model):
        assert not hasattr(model, "require_forward_param_sync")
