from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.training.dist_sampler_seed_hook import DistSamplerSeedHook


class Epochs(RandomSampler):
    """A sampler that notes the epochs it is told."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.told: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


def run(data: Any, tmp_path: Path, epochs: int = 3, finished: int = 0) -> list[list[Any]]:
    seen: list[list[Any]] = [[] for _ in range(epochs)]
    trainer = Engine(lambda engine, batch: seen[engine.state.epoch - 1].extend(torch.as_tensor(batch).tolist()))
    attach_hooks(trainer, [DistSamplerSeedHook()], work_dir=tmp_path)
    if finished:
        trainer.state.epoch, trainer.state.iteration = finished, finished * len(data)
        trainer.state.max_epochs, trainer.state.epoch_length = epochs, len(data)
    trainer.run(data, max_epochs=epochs)
    return seen


def test_the_epoch_counts_from_0(tmp_path: Path) -> None:
    data = list(range(4))
    sampler = Epochs(data)
    run(DataLoader(data, sampler=sampler), tmp_path)
    assert sampler.told == [0, 1, 2]


def test_a_sampler_behind_a_batch_sampler_gets_the_epoch(tmp_path: Path) -> None:
    data = list(range(4))
    sampler = Epochs(data)
    run(DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=False)), tmp_path)
    assert sampler.told == [0, 1, 2]


def distributed_loader() -> DataLoader[Any]:
    data = list(range(20))
    return DataLoader(data, batch_size=5, sampler=DistributedSampler(data, num_replicas=2, rank=0))


def test_every_epoch_has_another_order(tmp_path: Path) -> None:
    orders = run(distributed_loader(), tmp_path)
    assert len({tuple(order) for order in orders}) == 3


def test_resumed_run_has_the_data_order_of_its_epochs(tmp_path: Path) -> None:
    whole = run(distributed_loader(), tmp_path / "whole")
    rest = run(distributed_loader(), tmp_path / "rest", finished=2)
    assert rest == [[], [], whole[2]]


@pytest.mark.parametrize("data", [[[1], [2]], DataLoader([1, 2])])
def test_data_without_such_a_sampler_is_left_alone(tmp_path: Path, data: Any) -> None:
    assert run(data, tmp_path, epochs=1) == [[1, 2]]
