"""A search with a pruner, in two processes, that is killed in the middle and started again: nothing is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch

from ignite_hooks import BaseTrainer
from ignite_hooks.search.from_config import ConfigSearch
from tests import warm
from tests.faults.tools import LONG

pytest.importorskip("optuna", reason="the extra 'search' is not installed")
pytest.importorskip("sklearn", reason="the extra 'demo' is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(3600)]


def config_of(trials: int) -> dict[str, Any]:
    return {
        "model": {"type": "mlp", "hidden": [8]},
        "dataset": {"type": "digits"},
        "training": {"epochs": 5, "batch_size": 128, "optimizer": {"type": "AdamW", "lr": 0.003}},
        "default_hooks": {"checkpoint": {"save_best": True, "best_metric": "val_loss"}, "logger": None},
        "search": {
            "space": {"training.optimizer.lr": {"log": [1e-4, 1e-1]}, "model.hidden": [[4], [8], [16]]},
            "trials": trials,
            "jobs": 2,
            "pruner": {"type": "median", "n_startup_trials": 3},
            "seed": 1,
        },
    }


@pytest.mark.skipif(not LONG, reason="thirty trainings: make faults")
def test_thirty_trials_are_accounted_for_though_the_search_and_a_trial_are_killed(tmp_path: Path) -> None:
    path, folder = tmp_path / "config.json", tmp_path / "search"
    path.write_text(json.dumps(config_of(30)))
    command = [sys.executable, "-m", "ignite_hooks", "search", str(path), "--work-dir", str(folder)]
    with warm.Popen(command, stdout=PIPE, text=True) as search:
        assert search.stdout is not None
        while not search.stdout.readline().startswith("[8/30]"):
            assert search.poll() is None
        search.kill()

    said: list[str] = []
    found = ConfigSearch(str(path), folder=folder, say=said.append).run()
    counts = {state: found.count(state) for state in ("finished", "pruned", "failed", "running", "waiting")}
    assert counts["finished"] + counts["pruned"] == 30, (counts, said)
    assert counts["failed"] == counts["running"] == counts["waiting"] == 0
    assert 1 <= sum(row.repeated for row in found.trials) <= 2, "those that ran when it was killed"
    assert counts["pruned"] >= 3

    # A pruned trial has trained until the evaluation after which it was pruned, and no epoch more.
    for row in found.trials:
        if row.state == "pruned":
            result = json.loads((folder / "trials" / f"{row.number:04}" / "result.json").read_text())
            assert (result["state"], result["kind"], result["epochs"]) == ("stopped", "pruned", row.reports)
            assert row.reports < 5

    # The best of the study, of its run, and of the configuration when it is trained again.
    assert found.best is not None
    assert found.best_config is not None
    best = json.loads((folder / "trials" / f"{found.best.number:04}" / "result.json").read_text())
    assert best["best"]["val_loss"]["value"] == found.best.value
    before = torch.get_num_threads()
    trainer = BaseTrainer(found.best_config, work_dir=tmp_path / "again")
    trainer.train()
    torch.set_num_threads(before)
    assert trainer.runner.best["val_loss"].score == found.best.value
