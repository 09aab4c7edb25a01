"""`from_source.py`: what a trainer would refuse is found without torch."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.errors import Problem
from ignite_hooks.trainer.from_source import check_sections
from ignite_hooks.trainer.sections import read_sections

GOOD: dict[str, Any] = {"model": "cnn", "dataset": "digits"}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"model": {"type": "cnnn"}},
        {"model": {"type": "cnn", "chanels": [3], "dropout": 3}},
        {"dataset": "digitz"},
        {"dataset": {"type": "digits_detection", "size": 3}},
        {"training": {"epochz": 3}},
        {"training": {"epochs": 0, "optimizer": "AdamWW", "criterion": {"type": "MSELoss", "reductio": "mean"}}},
        {"training": {"scheduler": {"type": "StepLR", "by_epoch": 3}, "clip_grad": {"norm": 1}}},
        {"evaluation": {"metrics": ["acuracy", "R2Score", "MeanAbsoluteError"]}},
        {"evaluation": {"metrics": {"a": {"type": "Accuracy", "kk": 1}}}},
        {"model": "mine:Model"},
    ],
)
def test_the_file_alone_and_the_trainer_find_the_same_problems(changed: dict[str, Any]) -> None:
    content = GOOD | changed
    real: list[Problem] = []
    read_sections(content, real)
    assert [str(problem) for problem in check_sections(content)[0]] == [str(problem) for problem in real]
    assert bool(real) == bool(changed)


def test_modules_of_the_user_are_not_imported_and_a_note_says_so() -> None:
    content = {"model": "not_there:Model", "dataset": "digits", "imports": ["not_there"]}
    problems, notes = check_sections(content)
    assert problems == []
    assert notes == ["model.type: the settings of not_there:Model were not checked: its module is not imported"]
