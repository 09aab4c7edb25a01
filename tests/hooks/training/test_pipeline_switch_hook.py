from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ignite.engine import Engine
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.training.pipeline_switch_hook import InOrder, places_of

SIZE = 4
"""Samples of an epoch."""


def strong(x: int) -> int:
    return x + 100


def weak(x: int) -> int:
    return x + 200


class Numbers(Dataset[int]):
    """Numbers, changed by what it holds under one of the usual names."""

    def __init__(self, place: str = "pipeline") -> None:
        self.place = place
        setattr(self, place, strong)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        found: int = getattr(self, self.place)(index)
        return found


LOADERS: dict[str, dict[str, Any]] = {
    "in this process": {},
    "workers": {"num_workers": 1},
    "workers that stay": {"num_workers": 1, "persistent_workers": True},
}


def run(
    data: Any, tmp_path: Path, *, epochs: int = 4, length: int | None = None, stop_at: int = 0, **given: Any
) -> list[Any]:
    """Return the transforms that the batches of each epoch went through."""
    seen: list[list[Any]] = [[] for _ in range(epochs)]

    def step(engine: Engine, batch: Any) -> float:
        seen[engine.state.epoch - 1] += [x // 100 for x in batch.tolist()]
        if engine.state.iteration == stop_at:
            engine.terminate()
        return 0.0

    trainer = Engine(step)
    resume = given.pop("resume", False)
    hooks = [
        {"type": "PipelineSwitchHook", "switch_epoch": 2, "switch_pipeline": weak, **given},
        {"type": "CheckpointHook", "save_best": False, "interval": 99},
    ]
    attach_hooks(trainer, hooks, work_dir=tmp_path, resume=resume)
    trainer.run(data, max_epochs=epochs, epoch_length=length)
    return seen


@pytest.mark.parametrize("loading", LOADERS.values(), ids=LOADERS)
def test_epochs_from_the_switch_on_have_the_second_pipeline(loading: Any, tmp_path: Path) -> None:
    data = Numbers()
    loader = DataLoader(data, batch_size=2, **loading)
    assert run(loader, tmp_path) == [[1] * SIZE, [1] * SIZE, [2] * SIZE, [2] * SIZE]
    assert data.pipeline is strong  # type: ignore[attr-defined]


@pytest.mark.parametrize("loading", LOADERS.values(), ids=LOADERS)
def test_epochs_that_end_within_the_data_are_switched_exactly_too(loading: Any, tmp_path: Path) -> None:
    """Workers load in advance: what they have made of the old kind is not used."""
    loader = DataLoader(Numbers(), batch_size=1, **loading)
    found = run(loader, tmp_path, length=3)
    assert [set(epoch) for epoch in found] == [{1}, {1}, {2}, {2}]
    assert [len(epoch) for epoch in found] == [3] * 4


@pytest.mark.parametrize("loading", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("stop_at", [4, 5])
def test_run_resumed_after_the_switch_begins_with_the_second_pipeline(
    loading: Any, stop_at: int, tmp_path: Path
) -> None:
    before = run(DataLoader(Numbers(), batch_size=2, **loading), tmp_path, stop_at=stop_at)
    assert sum(map(len, before)) == 2 * stop_at
    # What the script has written down by epoch goes on, too.
    after = run(DataLoader(Numbers(), batch_size=2, **loading), tmp_path, resume=True)
    assert after == [[1] * SIZE, [1] * SIZE, [2] * SIZE, [2] * SIZE]


def test_loader_of_the_script_is_restored_after_the_run(tmp_path: Path) -> None:
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, persistent_workers=True)
    trainer = Engine(lambda engine, batch: None)
    hook = {"type": "PipelineSwitchHook", "switch_epoch": 1, "switch_pipeline": weak}
    attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run(loader, max_epochs=2)
    assert trainer.state.dataloader is loader
    assert loader._iterator is None, "its own workers were never needed"


@pytest.mark.parametrize("place", ["pipeline", "transform", "transforms"])
@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Subset(data, range(SIZE))])
def test_transforms_are_found_where_data_sets_have_them(place: str, wrap: Any, tmp_path: Path) -> None:
    loader = DataLoader(wrap(Numbers(place)), batch_size=2)
    assert run(loader, tmp_path)[1:3] == [[1] * SIZE, [2] * SIZE]


def test_each_of_several_data_sets_is_switched(tmp_path: Path) -> None:
    loader = DataLoader(ConcatDataset([Numbers(), Numbers("transform")]), batch_size=2)
    assert run(loader, tmp_path)[1:3] == [[1] * 2 * SIZE, [2] * 2 * SIZE]


def test_a_transform_that_torchvision_holds_twice_is_replaced_twice() -> None:
    inner = SimpleNamespace(transform=strong, target_transform=None)
    data = SimpleNamespace(transform=strong, transforms=inner)
    assert places_of(data) == [(data, "transform"), (inner, "transform")]


def test_list_is_called_in_order_until_a_sample_is_unusable(tmp_path: Path) -> None:
    assert InOrder([weak, strong])(1) == 301
    assert InOrder([lambda x: None, weak])(1) is None
    assert repr(InOrder([weak, strong])) == "weak -> strong"
    loader = DataLoader(Numbers(), batch_size=2)
    assert run(loader, tmp_path, switch_pipeline=[weak, strong])[2] == [3] * SIZE


def test_data_without_transforms_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: None)
    hook = {"type": "PipelineSwitchHook", "switch_epoch": 0, "switch_pipeline": weak}
    attach_hooks(trainer, [hook], work_dir=tmp_path)
    with caplog.at_level(logging.WARNING):
        trainer.run([1], max_epochs=1)
    assert "the data set has none of pipeline, transform, transforms: there is nothing to switch" in caplog.text
