from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.training import empty_cache_hook
from ignite_hooks.hooks.training.empty_cache_hook import EmptyCacheHook, empty_cache

ITERATIONS = [f"train {n}" for n in range(1, 7)]


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ({}, ["val 3", "train 3", "val 6", "train 6"]),
        ({"before_epoch": True, "after_epoch": False}, ["train 0", "val 3", "train 3", "val 6"]),
        (
            {"after_epoch": False, "after_iter": True},
            [*ITERATIONS[:3], "val 3", "val 3", *ITERATIONS[3:], "val 6", "val 6"],
        ),
        ({"after_epoch": False}, []),
    ],
    ids=str,
)
def test_memory_is_given_back_when_it_was_asked_for(settings: dict[str, Any], times: list[str], tmp_path: Path) -> None:
    trainer, evaluator = Engine(lambda *_: None), Engine(lambda *_: None)
    hook, seen = EmptyCacheHook(**settings), []
    runner = attach_hooks(
        trainer,
        [hook, {"type": "EvalHook", "save_best": False}],
        evaluators=evaluator,
        val_loader=[0, 1],
        work_dir=tmp_path,
    )
    hook.empty = lambda: seen.append(f"{runner.state.evaluating or 'train'} {trainer.state.iteration}")
    trainer.run(range(3), max_epochs=2)
    assert seen == times


def test_plan_has_no_iterations_where_nothing_is_done(tmp_path: Path) -> None:
    trainer = Engine(lambda *_: None)
    runner = attach_hooks(trainer, ["EmptyCacheHook"], work_dir=tmp_path)
    trainer.run(range(3))
    assert runner.report().tallies["EmptyCacheHook", "after_train_epoch"].calls == 1
    assert runner.report().tallies["EmptyCacheHook", "after_train_iter"].calls == 0


def test_the_accelerator_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    empty_cache()
    seen = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: seen.append("cuda"))
    empty_cache_hook.empty_cache()
    assert seen == ["cuda"]
