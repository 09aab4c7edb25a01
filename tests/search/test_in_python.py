"""`in_python.py`: a search over a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.search import search
from ignite_hooks.testing import tiny_run

pytest.importorskip("optuna", reason="the extra 'search' is not installed")


def test_the_best_value_of_a_function_is_found(tmp_path: Path) -> None:
    found = search(
        lambda values: (values["x"] - 2) ** 2, {"x": [0, 1, 2, 3]}, metric="loss", sampler="grid", folder=tmp_path
    )
    assert found.best is not None
    assert (found.best.value, found.best.values, found.count("finished")) == (0.0, {"x": 2}, 4)
    again = search(lambda values: 1 / 0, {"x": [0, 1, 2, 3]}, metric="loss", sampler="grid", folder=tmp_path)
    assert again.trials == found.trials, "everything was tried, so nothing is tried again"


def test_a_run_is_ranked_by_its_best_value_and_pruned_trials_are_stopped(tmp_path: Path) -> None:
    epochs = []

    def build(values: dict[str, Any]) -> Any:
        run = tiny_run()
        hooks = [{"type": "EvalHook"}, {"type": "PruningHook", "monitor": "val_loss"}]
        runner = attach_hooks(run.trainer, hooks, work_dir=tmp_path / str(values["limit"]), **run.services)
        try:
            run.trainer.run(run.data, max_epochs=3)
        finally:
            epochs.append(run.trainer.state.epoch)
        return runner

    pruner = {"type": "PercentilePruner", "percentile": 0.0, "n_startup_trials": 1}
    found = search(build, {"limit": [1, 2, 3]}, sampler="grid", pruner=pruner)
    assert found.count("finished") + found.count("pruned") == 3
    assert found.count("failed") == 0
    assert epochs[0] == 3
    assert found.trials[0].reports == 3


def test_failures_are_counted_and_end_the_search_only_if_all_of_the_first_fail() -> None:
    def second_fails(values: dict[str, Any]) -> float:
        if values["x"] == 1:
            raise MemoryError("too large")
        return float(values["x"])

    found = search(second_fails, {"x": [0, 1, 2, 3]}, metric="loss", sampler="grid")
    assert (found.count("failed"), found.count("finished")) == (1, 3)
    assert "too large" in found.trials[1].reason
    with pytest.raises(RuntimeError, match="the first 3 trials have failed: no luck"):
        search(fails, {"x": [0, 1, 2, 3]}, metric="loss", sampler="grid")


def fails(values: dict[str, Any]) -> float:
    raise ValueError("no luck")


def test_wrong_arguments_are_all_named() -> None:
    with pytest.raises(ConfigError) as error:
        search(fails, {"x": 3}, metric="loss", sampler="girl")
    assert [problem.place for problem in error.value.problems] == ["search().sampler", "search().space.x"]
