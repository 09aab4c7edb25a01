from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader, Dataset, Subset

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.hooks.training.yolox_mode_switch_hook import is_last

SIZE = 4


class Mixed(Dataset[Any]):
    """Samples that say which augmentations they went through, and which process made them."""

    def __init__(self) -> None:
        self.skipped: tuple[str, ...] = ()
        self.told: list[Any] = []

    def __len__(self) -> int:
        return SIZE

    def update_skip_type_keys(self, keys: Any) -> None:
        self.skipped = tuple(keys)
        self.told.append(self.skipped)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return "+".join(key for key in ("Mosaic", "MixUp", "Flip") if key not in self.skipped), os.getpid()


class Detector(torch.nn.Module):
    """A model with a switch for the L1 loss somewhere inside."""

    def __init__(self) -> None:
        super().__init__()
        self.bbox_head = torch.nn.Linear(1, 1)
        self.bbox_head.use_l1 = False


LOADERS: dict[str, dict[str, Any]] = {
    "in this process": {},
    "workers": {"num_workers": 2},
    "workers that stay": {"num_workers": 2, "persistent_workers": True},
}
ALL, WEAK = {"Mosaic+MixUp+Flip"}, {"Flip"}


KEPT: list[Engine] = []


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    """Keep the runs of a test to its end, which ends their workers: the garbage collector would wait 5 s for each."""
    yield
    KEPT.clear()


def run(
    loader: Any,
    tmp_path: Path,
    model: Any = None,
    *,
    epochs: int = 4,
    stop_at: int = 0,
    resume: bool = False,
    **given: Any,
) -> Any:
    """Return for each epoch the augmentations, whether L1 was on, and the processes that made samples."""
    seen: list[tuple[set[str], set[bool], set[int]]] = [(set(), set(), set()) for _ in range(epochs)]

    def step(engine: Engine, batch: Any) -> float:
        kinds, switches, processes = seen[engine.state.epoch - 1]
        kinds |= set(batch[0])
        switches |= {False if model is None else model.bbox_head.use_l1}
        processes |= set(batch[1].tolist())
        if engine.state.iteration == stop_at:
            engine.terminate()
        return 0.0

    trainer = Engine(step)
    KEPT.append(trainer)
    hooks = [
        {"type": "YOLOXModeSwitchHook", "num_last_epochs": 2, **given},
        {"type": "CheckpointHook", "save_best": False, "interval": 99},
    ]
    attach_hooks(trainer, hooks, work_dir=tmp_path, resume=resume, model=model)
    trainer.run(loader, max_epochs=epochs)
    return seen


@pytest.mark.parametrize("last", range(6))
@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Subset(data, range(SIZE))], ids=["plain", "wrapped"])
def test_exactly_the_last_epochs_run_in_the_new_mode(last: int, wrap: Any, tmp_path: Path) -> None:
    data, model = Mixed(), Detector()
    seen = run(DataLoader(wrap(data), batch_size=2), tmp_path, model, num_last_epochs=last)
    modes = [(WEAK, {True}) if epoch >= 4 - last else (ALL, {False}) for epoch in range(4)]
    assert [epoch[:2] for epoch in seen] == modes
    assert data.told == ([("Mosaic", "RandomAffine", "MixUp"), ()] if last else []), "once, and back after the run"
    assert model.bbox_head.use_l1 is False


@pytest.mark.parametrize("loading", LOADERS.values(), ids=LOADERS)
def test_workers_hear_of_it_however_long_they_live(loading: Any, tmp_path: Path) -> None:
    seen = run(DataLoader(Mixed(), batch_size=1, **loading), tmp_path)
    assert [kinds for kinds, *_ in seen] == [ALL, ALL, WEAK, WEAK]
    first, second, third, fourth = (processes for *_, processes in seen)
    stay = "persistent_workers" in loading
    assert (first == second and third == fourth) == (stay or not loading), "they are started anew once"
    assert bool(second & third) == (not loading)
    if stay:
        assert not any(_is_alive(process) for process in first), "the old ones have ended"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("loading", "stop_at"),
    [*(({}, n) for n in (3, 4, 5, 6)), (LOADERS["workers that stay"], 4), (LOADERS["workers"], 5)],
)
def test_resumed_run_has_the_mode_of_an_uninterrupted_one(loading: Any, stop_at: int, tmp_path: Path) -> None:
    """Two iterations an epoch: stopped before, right before, within and after the first epoch of the new mode."""
    run(DataLoader(Mixed(), batch_size=2, **loading), tmp_path, Detector(), stop_at=stop_at)
    model = Detector()
    seen = run(DataLoader(Mixed(), batch_size=2, **loading), tmp_path, model, resume=True)
    modes = [(ALL, {False}), (ALL, {False}), (WEAK, {True}), (WEAK, {True})]
    # What the step has gathered before the stop is restored, too.
    assert [epoch[:2] for epoch in seen] == modes


def test_a_second_run_begins_in_the_old_mode(tmp_path: Path) -> None:
    loader, model = DataLoader(Mixed(), batch_size=2, num_workers=1, persistent_workers=True), Detector()
    for folder in ("one", "two"):
        assert [epoch[:2] for epoch in run(loader, tmp_path / folder, model, epochs=3)] == [
            (ALL, {False}),
            (WEAK, {True}),
            (WEAK, {True}),
        ]


def test_without_a_known_end_a_warning_replaces_last_epochs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not is_last(10, None, 15)
    model = Detector()
    on: list[bool] = []
    trainer = Engine(lambda engine, batch: on.append(model.bbox_head.use_l1))
    attach_hooks(trainer, ["YOLOXModeSwitchHook"], work_dir=tmp_path, model=model)
    trainer.run(iter([1, 2]), max_iters=2)
    assert on == [False, False]
    assert "how many epochs there will be is not known" in caplog.text


def test_a_run_limited_by_iterations_has_last_epochs_too(tmp_path: Path) -> None:
    model = Detector()
    on: list[bool] = []
    trainer = Engine(lambda engine, batch: on.append(model.bbox_head.use_l1))
    attach_hooks(trainer, [{"type": "YOLOXModeSwitchHook", "num_last_epochs": 1}], work_dir=tmp_path, model=model)
    trainer.run(range(2), max_iters=5)
    assert on == [False] * 4 + [True]


def test_nothing_to_switch_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, ["YOLOXModeSwitchHook"], work_dir=tmp_path, model=torch.nn.Linear(1, 1))
    with caplog.at_level(logging.WARNING):
        trainer.run([1], max_epochs=1)
    assert "there is nothing to switch in the last epochs" in caplog.text


def test_custom_loader_with_persistent_workers_is_rejected(tmp_path: Path) -> None:
    class Mine(DataLoader[Any]):
        pass

    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, ["YOLOXModeSwitchHook"], work_dir=tmp_path)
    with pytest.raises(HookError, match=r"persistent workers of a Mine cannot be restarted.*persistent_workers=False"):
        trainer.run(Mine(Mixed(), num_workers=1, persistent_workers=True), max_epochs=1)
