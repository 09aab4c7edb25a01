"""A test after the end of a run: its names, what is recorded of it, and when there is a result to add it to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks.errors import ResultError
from ignite_hooks.results.result import RunResult, read_result
from ignite_hooks.run.late_test import LateTest, has_result, late_test
from ignite_hooks.testing import MemoryWriter

METRICS = {"accuracy": 0.5, "iou": torch.tensor([0.25, 1.0]), "report": "text"}


def tested(**about: Any) -> LateTest:
    """Return a test with a number, and one number for each class."""
    runner: Any = SimpleNamespace(
        metrics=SimpleNamespace(labels=["cat", "dog"]), evaluators={"test": Engine(lambda *_: None)}
    )
    given = {"checkpoint": "best.pth", "weights": "raw", "chosen": False, "step": 9, "kind": "raw weights"}
    return late_test(runner, "test", METRICS, **{**given, **about})


def test_numbers_of_classes_are_numbers_too_and_texts_are_not() -> None:
    assert tested().metrics == {"accuracy": 0.5, "iou/cat": 0.25, "iou/dog": 1.0}
    assert list(tested().results) == ["iou"]


@pytest.mark.parametrize(
    ("about", "key", "name"),
    [
        ({}, "test/best.pth/raw", "test"),
        ({"weights": "ema"}, "test/best.pth/ema", "test"),
        ({"chosen": True}, "test/best.pth/raw", "test@best-raw"),
        ({"chosen": True, "weights": "slow", "checkpoint": "a/last.pth"}, "test/a/last.pth/slow", "test@last-slow"),
    ],
)
def test_other_weights_than_the_delivered_ones_get_names_of_their_own(about: Any, key: str, name: str) -> None:
    assert (tested(**about).key, tested(**about).name) == (key, name)


def test_a_tracker_has_its_numbers_at_the_last_step_under_whole_names() -> None:
    writer = MemoryWriter()
    tested(chosen=True).write(writer)
    names = [f"test@best-raw/{name}" for name in ("accuracy", "iou/cat", "iou/dog")]
    assert writer.lines == [(dict(zip(names, (0.5, 0.25, 1.0), strict=True)), 9, "system", None)]
    assert [(name, step, kind) for name, _, step, kind in writer.results] == [("test@best-raw/iou", 9, "system")]
    assert writer.texts == [("tested/test@best-raw", "raw weights of best.pth", 9)]


def test_the_result_keeps_its_other_tests(tmp_path: Path) -> None:
    RunResult("finished", run="a").write(tmp_path)
    tested().record(tmp_path)
    tested(weights="ema").record(tmp_path)
    found = read_result(tmp_path)
    assert found is not None
    assert list(found.tests) == ["test/best.pth/raw", "test/best.pth/ema"]
    assert found.tests["test/best.pth/ema"].metrics["iou/dog"] == 1.0


def test_without_a_result_nothing_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="there is no result"):
        tested().record(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("running", "run_id", "recorded", "has"),
    [
        (False, "a", "a", True),
        (False, "a", "b", False),
        (False, "a", None, False),
        (False, "", "", False),
        (True, "a", "a", False),
    ],
)
def test_a_result_is_that_of_this_run_once_it_has_ended(
    running: bool, run_id: str, recorded: str | None, has: bool, tmp_path: Path
) -> None:
    if recorded is not None:
        RunResult("finished", run=recorded).write(tmp_path)
    runner: Any = SimpleNamespace(state=SimpleNamespace(running=running, run_id=run_id), work_dir=tmp_path)
    assert has_result(runner) is has
