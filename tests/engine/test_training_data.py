"""Training data is known by its samples, whichever loader draws them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)

from ignite_hooks import Runner, attach_hooks
from ignite_hooks.engine.training_data import is_training_data
from ignite_hooks.testing import tiny_run

WHOLE = TensorDataset(torch.arange(10))
OTHER = TensorDataset(torch.arange(10))
FIRST, SECOND = random_split(WHOLE, [6, 4], generator=torch.Generator().manual_seed(0))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Own(Sampler[int]):
    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


STREAM = Stream()


def of(data: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, **options)


@pytest.mark.parametrize(
    ("data", "train", "expected"),
    [
        (of(WHOLE), of(WHOLE, shuffle=True), True),
        (of(WHOLE, batch_size=5), of(WHOLE, batch_sampler=BatchSampler(SequentialSampler(WHOLE), 2, True)), True),
        (of(Subset(WHOLE, [1, 2])), of(WHOLE), True),
        (of(FIRST), of(FIRST, shuffle=True), True),
        (of(Subset(FIRST, [0, 1])), of(FIRST), True),
        (of(Subset(WHOLE, list(FIRST.indices)[:2])), of(FIRST), True),
        (of(WHOLE, sampler=SubsetRandomSampler([1, 2])), of(WHOLE, sampler=SubsetRandomSampler([2, 1, 0])), True),
        (of(STREAM), of(STREAM), True),
        (of(WHOLE), of(WHOLE, sampler=Own(1, 2)), True),
        (of(OTHER), of(WHOLE), False),
        (of(SECOND), of(FIRST), False),
        (of(WHOLE), of(FIRST), False),
        (of(WHOLE, sampler=SubsetRandomSampler([3, 4])), of(WHOLE, sampler=SubsetRandomSampler([0, 1])), False),
        (of(WHOLE, sampler=Own(3, 4)), of(WHOLE, sampler=Own(1, 2)), False),
        (of(WHOLE, batch_sampler=[[3, 4]]), of(WHOLE, batch_sampler=[[1, 2]]), False),
        (of(Subset(WHOLE, [])), of(FIRST), False),
        ([1], [1], False),
        ([1], of(WHOLE), False),
        (of(WHOLE), None, False),
    ],
)
def test_training_data_is_known_by_its_samples(data: Any, train: Any, expected: bool) -> None:
    assert is_training_data(data, train) is expected


def evaluated(folder: Path, evaluate: Callable[[Any, Any, Any], Any], **options: Any) -> Runner:
    """Run one epoch of a script that has one evaluator for everything."""
    tiny = tiny_run()
    x, y = torch.randn(8, 4), torch.zeros(8, dtype=torch.long)
    train, val = TensorDataset(x, y), TensorDataset(x, y)
    loader = of(train, batch_size=4)
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluate(tiny.evaluator, loader, of(val)))
    options = {"evaluators": tiny.evaluator} | options
    runner = attach_hooks(tiny.trainer, None, model=tiny.model, work_dir=folder, **options)
    tiny.trainer.run(loader, max_epochs=1)
    return runner


def in_turn(evaluator: Any, train: Any, val: Any) -> None:
    evaluator.run(train)
    evaluator.run(val)


def another_loader(evaluator: Any, train: Any, val: Any) -> None:
    evaluator.run(of(Subset(train.dataset, [0, 1, 2])))


def only_train(evaluator: Any, train: Any, val: Any) -> None:
    evaluator.run(train)


@pytest.mark.parametrize(
    ("evaluate", "expected"),
    [
        (in_turn, {"train_accuracy", "val_accuracy", "accuracy"}),
        (another_loader, {"train_accuracy"}),
        (only_train, {"train_accuracy"}),
    ],
)
def test_one_evaluator_serves_both_without_naming_a_loader(
    evaluate: Any, expected: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    runner = evaluated(tmp_path, evaluate)
    assert {name for name in runner.metrics if name.endswith("accuracy")} == expected
    assert caplog.text.count("the evaluator 'val' has run over training data") == 1
    assert bool(list(tmp_path.glob("best_*"))) == ("accuracy" in expected)


def test_the_training_data_is_validated_on_where_it_is_passed_for_that(tmp_path: Path) -> None:
    tiny = tiny_run()
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: tiny.evaluator.run(tiny.data))
    runner = attach_hooks(tiny.trainer, [], evaluators=tiny.evaluator, val_loader=tiny.data, work_dir=tmp_path)
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert "val_accuracy" in runner.metrics


def test_a_script_with_an_evaluator_for_each_is_taken_at_its_word(tmp_path: Path) -> None:
    tiny, other = tiny_run(), tiny_run()
    engines = {"train": tiny.evaluator, "val": other.evaluator}
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: [e.run(tiny.data) for e in engines.values()])
    runner = attach_hooks(tiny.trainer, [], evaluators=engines, work_dir=tmp_path)
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert {"train_accuracy", "val_accuracy", "accuracy"} <= set(runner.metrics)


def test_what_is_measured_on_training_data_is_logged_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    evaluated(tmp_path, in_turn)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    named = [(row["kind"], name) for row in rows for name in row.get("scalars", {}) if name.endswith("accuracy")]
    assert named == [("train", "train_accuracy"), ("val", "accuracy")]
    assert any(line.split()[:3] == ["train", "epoch", "1"] and "accuracy" in line for line in caplog.messages)
