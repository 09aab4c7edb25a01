"""`trials.py`: who is asked, and what is wrong with a pruner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.run.trials import current_trial, make_pruner, pruned_error, running_trial, stored_trial


class Judge:
    def report(self, value: float, step: int) -> None:
        pass

    def should_prune(self) -> bool:
        return False


def test_a_trial_is_the_current_one_only_within_its_context() -> None:
    judge = Judge()
    with running_trial(judge):
        assert current_trial() is judge
    assert current_trial() is None


def test_a_trial_of_no_library_wants_no_exception() -> None:
    assert pruned_error(Judge(), "no hope") is None


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (None, "NopPruner"),
        ("median", "MedianPruner"),
        ("HyperbandPruner", "HyperbandPruner"),
        ({"type": "median", "n_warmup_steps": 2}, "MedianPruner"),
    ],
)
def test_a_pruner_is_found_by_its_name(wanted: Any, name: str) -> None:
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    assert type(make_pruner(wanted)).__name__ == name


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("medan", "MedianPruner"), ({"type": "median", "warmup": 2}, "unexpected keyword argument 'warmup'")],
)
def test_a_pruner_that_cannot_be_made_is_explained(wanted: Any, words: str) -> None:
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    with pytest.raises(ValueError, match=words):
        make_pruner(wanted)


def test_a_trial_that_is_not_in_the_study_is_named(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    storage = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(study_name="s", storage=storage)
    with pytest.raises(ValueError, match="has no trial 3"):
        stored_trial(storage, "s", 3, None)
