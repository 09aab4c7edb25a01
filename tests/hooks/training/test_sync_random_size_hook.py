from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader, Dataset

from ignite_hooks import ConfigError, HookError, attach_hooks
from ignite_hooks.hooks.training.sync_random_size_hook import drawn_size, resized_batch
from tests.ranks import run_ranks

SMALL = {"ratio_range": [1, 9], "img_scale": [64, 96]}


class Images(Dataset[Any]):
    """Images of the size it was told last."""

    def __init__(self) -> None:
        self.size = (8, 8)

    def __len__(self) -> int:
        return 4

    def update_dynamic_scale(self, size: Any) -> None:
        self.size = size

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(1, *self.size)


def run(
    data: Any, tmp_path: Path, *, epochs: int = 4, stop_at: int = 0, resume: bool = False, seed: int = 0, **given: Any
) -> list[list[tuple[int, int]]]:
    """Return the sizes of the batches of each epoch."""
    torch.manual_seed(seed)
    seen: list[list[tuple[int, int]]] = [[] for _ in range(epochs)]

    def step(engine: Engine, batch: Any) -> float:
        images = batch[0] if isinstance(batch, (tuple, list)) else batch
        seen[engine.state.epoch - 1].append(tuple(images.shape[-2:]))
        if engine.state.iteration == stop_at:
            engine.terminate()
        return 0.0

    trainer = Engine(step)
    hooks = [
        {"type": "SyncRandomSizeHook", **SMALL, **given},
        {"type": "CheckpointHook", "save_best": False, "interval": 99},
    ]
    attach_hooks(trainer, hooks, work_dir=tmp_path, resume=resume)
    trainer.run(data, max_epochs=epochs)
    return seen


# -- sizes -----------------------------------------------------------------------------------------------------


def test_sizes_are_multiples_of_32_within_range_and_proportion() -> None:
    found = {drawn_size(0, draw, (14, 26), (640, 960)) for draw in range(1000)}
    assert {height for height, _ in found} == {32 * ratio for ratio in range(14, 27)}, "both ends included"
    assert all(width == height * 3 // 2 // 32 * 32 for height, width in found)


def test_other_seeds_draw_other_sizes() -> None:
    assert len({tuple(drawn_size(seed, n, (14, 26), (640, 640)) for n in range(9)) for seed in range(50)}) == 50


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio_range": [5, 4]}, "ratio_range: two numbers from 1, the smaller first"),
        ({"ratio_range": [0, 4]}, "ratio_range: two numbers from 1"),
        ({"img_scale": [0, 640]}, "img_scale: two sides of at least one pixel"),
        ({"ratio_range": 5}, "ratio_range: "),
    ],
)
def test_settings_that_give_no_size_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        attach_hooks(Engine(print), [{"type": "SyncRandomSizeHook", **settings}], work_dir=tmp_path)


# -- a data set that takes them --------------------------------------------------------------------------------

LOADERS: dict[str, dict[str, Any]] = {
    "in this process": {},
    "workers": {"num_workers": 1},
    "workers that stay": {"num_workers": 1, "persistent_workers": True},
}


@pytest.mark.parametrize("loading", LOADERS.values(), ids=LOADERS)
def test_each_epoch_has_the_size_drawn_for_it(loading: Any, tmp_path: Path) -> None:
    data = Images()
    found = run(DataLoader(data, batch_size=2, **loading), tmp_path)
    assert found == [[drawn_size(0, n, (1, 9), (64, 96))] * 2 for n in (1, 2, 3, 4)]
    assert len({sizes[0] for sizes in found}) > 1
    assert data.size == (64, 96), "the usual size again"


def test_by_an_interval_it_stays_for_some_epochs(tmp_path: Path) -> None:
    found = run(DataLoader(Images(), batch_size=4), tmp_path, interval=2)
    first, second = (drawn_size(0, n, (1, 9), (64, 96)) for n in (1, 2))
    assert found == [[(8, 8)], [first], [first], [second]]


@pytest.mark.parametrize(
    ("loading", "stop_at", "interval"),
    [({}, 2, 1), ({}, 3, 1), ({}, 5, 2), (LOADERS["workers"], 3, 1), (LOADERS["workers that stay"], 5, 1)],
)
def test_resumed_run_has_the_sizes_of_an_uninterrupted_one(
    loading: Any, stop_at: int, interval: int, tmp_path: Path
) -> None:
    def part(folder: str, **given: Any) -> Any:
        return run(DataLoader(Images(), batch_size=2, **loading), tmp_path / folder, interval=interval, **given)

    whole = part("whole", seed=5)
    before, after = part("parts", stop_at=stop_at, seed=5), part("parts", resume=True, seed=6)
    assert [a + b for a, b in zip(before, after, strict=True)] == whole


@pytest.mark.parametrize("schedule", [{"by_epoch": False}, {"every": "3 iter"}], ids=str)
def test_by_iteration_workers_would_hear_of_it_late(schedule: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"by_epoch: workers load batches in advance.*write by_epoch: true"):
        run(DataLoader(Images(), num_workers=1), tmp_path, **schedule)


def test_by_iteration_without_workers_every_batch_can_have_its_own(tmp_path: Path) -> None:
    # The loader has made a batch before the iteration begins: a size counts from the next one on.
    sizes = [
        size for epoch in run(DataLoader(Images(), batch_size=2), tmp_path, epochs=2, by_epoch=False) for size in epoch
    ]
    assert sizes == [(8, 8), *(drawn_size(0, n, (1, 9), (64, 96)) for n in (1, 2, 3))]


# -- batches that are resized ----------------------------------------------------------------------------------


def test_every_iteration_has_the_size_drawn_for_it(tmp_path: Path) -> None:
    data = [(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))] * 4
    found = run(data, tmp_path, epochs=1, by_epoch=False, interval=2)
    first, second = (drawn_size(0, n, (1, 9), (64, 96)) for n in (1, 2))
    assert found == [[(8, 8), first, first, second]]


def test_a_resumed_run_resizes_as_one_that_never_stopped(tmp_path: Path) -> None:
    data = [torch.rand(2, 3, 8, 8)] * 3
    given: dict[str, Any] = {"epochs": 2, "by_epoch": False, "interval": 2}
    whole = run(data, tmp_path / "whole", **given)
    before = run(data, tmp_path / "parts", stop_at=3, **given)
    after = run(data, tmp_path / "parts", resume=True, seed=1, **given)
    assert [a + b for a, b in zip(before, after, strict=True)] == whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8])
def test_images_keep_their_type_and_masks_their_values(dtype: Any) -> None:
    images, masks = torch.ones(2, 3, 4, 4).to(dtype), torch.randint(0, 5, (2, 4, 4))
    found, targets = resized_batch([images, masks], (8, 12))
    assert (tuple(found.shape), found.dtype) == ((2, 3, 8, 12), dtype)
    assert (tuple(targets.shape), targets.dtype) == ((2, 8, 12), torch.int64)
    assert set(targets.unique().tolist()) <= set(masks.unique().tolist())
    assert torch.equal(targets[:, ::2, ::3], masks)


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2, 4),
        {"image": torch.ones(2, 3, 4, 4)},
        (torch.ones(2, 3, 4, 4), torch.ones(2, 4)),
        (torch.ones(2, 3, 4, 4), ["a", "b"]),
        (),
    ],
)
def test_what_may_hold_places_in_an_image_is_not_touched(batch: Any) -> None:
    assert resized_batch(batch, (8, 8)) is None


def test_a_batch_of_another_kind_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run([(torch.rand(2, 3, 8, 8), torch.rand(2, 4))] * 2, tmp_path)
    told = [record.message for record in caplog.records if "sizes" in record.message]
    assert len(told) == 1
    assert "batches (tuple) are not images with classes or masks: give 'resize'" in told[0]


def test_a_function_of_ones_own_resizes_anything(tmp_path: Path) -> None:
    asked: list[Any] = []

    def resize(batch: Any, size: Any) -> Any:
        asked.append(size)
        return torch.zeros(1, *size)

    found = run([{"x": 1}] * 2, tmp_path, epochs=2, resize=resize)
    assert asked == [size for epoch in found for size in epoch]
    assert len(asked) == 4


# -- several ranks ---------------------------------------------------------------------------------------------


def in_each_process() -> list[list[Any]]:
    """Give each rank other random numbers; resize batches, then let a data set receive the size."""
    torch.manual_seed(idist.get_rank())
    sizes: list[list[Any]] = [[], []]
    loader = DataLoader(Images(), batch_size=2, num_workers=1)
    for seen, data in zip(sizes, ([torch.rand(2, 3, 8, 8)] * 3, loader), strict=True):
        trainer = Engine(lambda engine, batch, seen=seen: seen.append([engine.state.iteration, *batch.shape[-2:]]))
        hook = {"type": "SyncRandomSizeHook", **SMALL, "by_epoch": data is loader}
        attach_hooks(trainer, [hook], work_dir=tempfile.mkdtemp())
        trainer.run(data, max_epochs=3)
    return sizes


@pytest.mark.slow
def test_all_ranks_have_the_same_size_in_the_same_iteration() -> None:
    first, second = run_ranks(in_each_process)
    assert first == second
    assert [len({tuple(size) for _, *size in seen}) > 1 for seen in first] == [True, True]
