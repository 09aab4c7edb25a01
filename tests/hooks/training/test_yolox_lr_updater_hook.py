from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import HookError, attach_hooks

LENGTH = 4
"""Iterations of an epoch."""


def rates(tmp_path: Path, epochs: int = 10, *, stop_at: int = 0, resume: bool = False, **settings: Any) -> list[Any]:
    """Return the rates of each iteration, of two groups."""
    weights = [torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))]
    optimizer = torch.optim.SGD([{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.5}], lr=1.0)
    model = torch.nn.ParameterList(weights)
    seen: list[Any] = []

    def step(engine: Engine, batch: Any) -> float:
        seen.append(tuple(group["lr"] for group in optimizer.param_groups))
        if engine.state.iteration == stop_at:
            engine.terminate()
        return 0.0

    trainer = Engine(step)
    hooks = [{"type": "YOLOXLrUpdaterHook", **settings}, {"type": "CheckpointHook", "save_best": False}]
    attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=tmp_path, resume=resume)
    trainer.run(range(LENGTH), max_epochs=epochs)
    return seen


def closed_formula(i: int, *, warmup: int, tail: int, by_epoch: bool, epochs: int = 10, least: float = 0.05) -> float:
    """Return the rate of iteration i, from 0, for a group with rate 1; ``warmup`` in iterations, ``tail`` in epochs."""
    if i < warmup:
        return ((i + 1) / warmup) ** 2
    epoch = i // LENGTH
    if epoch >= epochs - tail:
        return least
    now, begin, end = (epoch, warmup / LENGTH, epochs - tail) if by_epoch else (i, warmup, (epochs - tail) * LENGTH)
    return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * max(0.0, now - begin) / (end - begin)))


@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize(("warmup_iters", "in_epochs"), [(2, True), (0, True), (6, False), (1, False)])
@pytest.mark.parametrize("tail", [0, 3])
def test_the_curve_is_that_of_the_formula(
    by_epoch: bool, warmup_iters: int, in_epochs: bool, tail: int, tmp_path: Path
) -> None:
    settings = {"warmup_iters": warmup_iters, "warmup_by_epoch": in_epochs, "by_epoch": by_epoch}
    found = rates(tmp_path, num_last_epochs=tail, **settings)
    warmup = warmup_iters * (LENGTH if in_epochs else 1)
    expected = [closed_formula(i, warmup=warmup, tail=tail, by_epoch=by_epoch) for i in range(10 * LENGTH)]
    assert [rate for rate, _ in found] == pytest.approx(expected)
    assert [rate for _, rate in found] == pytest.approx([rate / 2 for rate in expected]), "each group from its own rate"


def test_units_are_not_mixed(tmp_path: Path) -> None:
    """Both ways the last three epochs, and these alone, have the lowest rate."""
    for by_epoch in (True, False):
        found = rates(tmp_path / str(by_epoch), num_last_epochs=3, warmup_iters=1, by_epoch=by_epoch)
        assert [i for i, (rate, _) in enumerate(found) if rate == 0.05] == list(range(7 * LENGTH, 10 * LENGTH))


def test_by_epoch_the_rate_changes_with_epochs_only(tmp_path: Path) -> None:
    found = rates(tmp_path, num_last_epochs=0, warmup_iters=0)
    assert [len(set(found[i : i + LENGTH])) for i in range(0, 10 * LENGTH, LENGTH)] == [1] * 10
    assert len(set(found)) == 10


def test_the_lowest_rate_can_be_given_itself(tmp_path: Path) -> None:
    assert rates(tmp_path, num_last_epochs=1, min_lr=0.125, warmup_ratio=0.5)[-1] == (0.125, 0.125)


@pytest.mark.parametrize(("epochs", "tail", "expected"), [(2, 15, 0.05), (1, 0, 1.0)])
def test_too_short_run_has_the_lowest_rate_and_a_warning(
    epochs: int, tail: int, expected: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = rates(tmp_path, epochs, num_last_epochs=tail, warmup_iters=0)
    assert {rate for rate, _ in found} == {expected}
    told = "of 2 epochs 0 rise and the last 15 have the lowest rate: none is left for the cosine" in caplog.text
    assert told == (tail == 15)


def test_a_resumed_run_goes_on_along_the_curve(tmp_path: Path) -> None:
    settings = {"num_last_epochs": 2, "warmup_iters": 2, "by_epoch": False}
    whole = rates(tmp_path / "whole", **settings)
    first = rates(tmp_path / "parts", stop_at=6, **settings)
    rest = rates(tmp_path / "parts", resume=True, **settings)
    assert first + rest == whole


def test_an_epoch_of_unknown_length_is_asked_for(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    trainer = Engine(lambda engine, batch: 0.0)
    attach_hooks(trainer, ["YOLOXLrUpdaterHook"], optimizer=optimizer, work_dir=tmp_path)
    with pytest.raises(HookError, match=r"give trainer\.run\(\.\.\., epoch_length="):
        trainer.run(iter(range(4)), max_epochs=1)


def test_a_rate_that_is_a_tensor_stays_one(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=torch.tensor(1.0))
    trainer = Engine(lambda engine, batch: optimizer.param_groups[0]["lr"].item())
    rate = optimizer.param_groups[0]["lr"]
    attach_hooks(trainer, [{"type": "YOLOXLrUpdaterHook", "warmup_iters": 0}], optimizer=optimizer, work_dir=tmp_path)
    assert trainer.run([1], max_epochs=1).output == pytest.approx(0.05)
    assert optimizer.param_groups[0]["lr"] is rate


def test_checkpoint_loaded_in_the_run_does_not_end_it(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    seen: list[float] = []

    def step(engine: Engine, batch: Any) -> None:
        if engine.state.iteration == 3:
            optimizer.load_state_dict(optimizer.state_dict())
        seen.append(optimizer.param_groups[0]["lr"])

    trainer = Engine(step)
    entry = {"type": "YOLOXLrUpdaterHook", "warmup_iters": 4, "warmup_by_epoch": False, "num_last_epochs": 0}
    attach_hooks(trainer, [entry], optimizer=optimizer, work_dir=tmp_path)
    trainer.run(range(4), max_epochs=1)
    assert seen == pytest.approx([(n / 4) ** 2 for n in (1, 2, 3, 4)])
