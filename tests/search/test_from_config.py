"""`from_config.py`: a configuration is tried in processes of its own, and its best can be trained again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import BaseTrainer, ConfigError, attach_hooks, load_config
from ignite_hooks.results.result import Reached, RunResult
from ignite_hooks.search.engines import threads_of
from ignite_hooks.search.from_config import LOCK, ConfigSearch, best_of, delete_checkpoints
from ignite_hooks.search.study import Study
from ignite_hooks.store.lock import FolderLock
from ignite_hooks.testing import tiny_run
from tests import warm

pytest.importorskip("optuna", reason="the extra 'search' is not installed")

CONFIG: dict[str, Any] = {
    "model": {"type": "mlp", "hidden": [4]},
    "dataset": {"type": "digits"},
    "training": {"epochs": 1, "batch_size": 256, "optimizer": {"type": "AdamW", "lr": 0.003}},
    "default_hooks": {"checkpoint": {"save_best": True, "best_metric": "val_loss"}, "logger": None},
    "search": {
        "space": {"training.optimizer.lr": [0.001, 0.1, 0.01], "model.hidden": [[4]]},
        "sampler": "grid",
        "jobs": 2,
        "keep": 1,
        "seed": 5,
    },
}


def written(folder: Path, **changed: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **changed}))
    return str(path)


def test_every_problem_of_the_file_is_found_before_anything_is_tried(tmp_path: Path) -> None:
    search = {"space": {"training.optimizer.lrr": [0.1], "training.epochs": 3}, "jobs": 0}
    with pytest.raises(ConfigError) as error:
        ConfigSearch(written(tmp_path, search=search))
    assert [problem.place for problem in error.value.problems] == ["search.jobs", "search.space.training.epochs"]
    with pytest.raises(ConfigError, match=r"training\.optimizer\.lrr"):
        ConfigSearch(written(tmp_path, search={"space": {"training.optimizer.lrr": [0.1]}}))
    with pytest.raises(ConfigError, match="search: missing"):
        ConfigSearch(written(tmp_path, search=None))


def test_a_trial_has_its_values_a_seed_and_its_threads(tmp_path: Path) -> None:
    found = ConfigSearch(written(tmp_path), folder=tmp_path)
    made = found._with({"training.optimizer.lr": 1e-05, "model.hidden": [8]}, found.section, [])
    assert (made["training"]["optimizer"]["lr"], made["training"]["seed"], made["model"]["hidden"]) == (1e-05, 5, [8])
    assert made["custom_hooks"][-1]["threads"] == threads_of(found.section)
    assert "search" not in made


def test_a_seed_of_the_configuration_stays(tmp_path: Path) -> None:
    found = ConfigSearch(written(tmp_path, seed=7), folder=tmp_path)
    assert "seed" not in found._with({}, found.section, [])["training"]


@pytest.mark.parametrize("metric", ["val_loss", "val/loss", "loss"])
def test_the_value_of_a_trial_is_the_best_of_its_run(metric: str) -> None:
    assert best_of(RunResult("finished", best={"val_loss": Reached(0.5, 3)}), metric) == 0.5
    assert best_of(RunResult("finished"), metric) is None


def test_only_checkpoints_of_the_run_are_deleted(tmp_path: Path) -> None:
    run = tiny_run()
    attach_hooks(run.trainer, [{"type": "CheckpointHook", "save_best": False}], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    (tmp_path / "mine.pth").write_bytes(b"mine")
    lock = FolderLock(tmp_path)
    lock.acquire()
    assert not delete_checkpoints(tmp_path), "a process of a lost machine still has it"
    lock.release()
    assert len(list(tmp_path.glob("*.pth"))) > 1
    assert delete_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.glob("*.pth")] == ["mine.pth"]


@pytest.mark.slow
def test_a_killed_search_goes_on_and_its_best_gives_the_same_number_again(tmp_path: Path) -> None:
    two = {**CONFIG["search"], "space": {"training.optimizer.lr": [0.001, 0.01]}}
    # A table needs no scikit-learn, which each process would import.
    (tmp_path / "table.csv").write_text("a,b,kind\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(300)))
    table = {"type": "csv", "path": str(tmp_path / "table.csv"), "target": "kind"}
    config, folder = written(tmp_path, search=two, dataset=table), tmp_path / "search"
    command = [sys.executable, "-m", "ignite_hooks", "search", config, "--work-dir", str(folder)]
    search = warm.Popen(command, stdout=subprocess.PIPE)
    assert search.stdout is not None
    assert search.stdout.readline().startswith(b"[1/2] trial ")
    search.kill()
    search.wait()
    search.stdout.close()

    said: list[str] = []
    found = ConfigSearch(config, folder=folder, say=said.append).run()
    assert found.count("finished") == 2, said
    assert sorted(row.values["training.optimizer.lr"] for row in found.ranked) == [0.001, 0.01]
    assert [row for row in found.trials if row.state in ("running", "waiting")] == []
    assert found.best is not None
    best = folder / "trials" / f"{found.best.number:04}"
    assert {path.parent for path in folder.rglob("*.pth")} == {best}

    page = (folder / "search.html").read_text()
    assert "training.optimizer.lr" in page
    assert "<h1>2 trials of " in page
    assert "val_loss, trial by trial" in page

    # The best configuration, trained by itself, gives the same number to the bit.
    assert found.best_config is not None
    before = torch.get_num_threads()
    trainer = BaseTrainer(found.best_config, work_dir=tmp_path / "again")
    trainer.train()
    assert torch.get_num_threads() == before
    again = trainer.runner.best["val_loss"].score
    assert again == found.best.value == json.loads((best / "result.json").read_text())["best"]["val_loss"]["value"]
    assert load_config(found.best_config)["training"]["optimizer"]["lr"] == found.best.values["training.optimizer.lr"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"metric": "accuracy"}, "another search was made here"), ({"pruner": "medan"}, "no pruner is called 'medan'")],
)
def test_a_study_that_cannot_be_opened_is_a_problem_of_the_configuration(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    first = ConfigSearch(written(tmp_path), folder=tmp_path)
    Study(first.section, tmp_path / "study.db", first._digest())
    search = ConfigSearch(written(tmp_path, search={**CONFIG["search"], **changed}), folder=tmp_path)
    with pytest.raises(ConfigError, match=f"search: {words}"):
        search.run()
    lock = FolderLock(tmp_path, LOCK)
    lock.acquire()
    with pytest.raises(ConfigError, match="work_dir: "):
        search.run()
    lock.release()


def test_the_first_trials_that_all_fail_end_the_search(tmp_path: Path) -> None:
    found = ConfigSearch(written(tmp_path), folder=tmp_path, say=lambda line: None)
    found.study = Study(found.section)
    for number in range(3):
        found.study.ask()
        found.study.end(number, None, reason="out of memory")
        if number < 2:
            found._tell(number)
    with pytest.raises(
        RuntimeError, match=r"the first 3 trials have failed, the last with: out of memory: see .*0002\.log"
    ):
        found._tell(2)


def test_a_trial_that_waits_to_be_repeated_keeps_no_checkpoints_later(tmp_path: Path) -> None:
    found = ConfigSearch(written(tmp_path), folder=tmp_path, say=lambda line: None)
    found.study = study = Study(found.section)
    for value in (0.5, None):
        _, number, _ = study.ask() or pytest.fail("nothing to try")
        if value is None:
            study.end_killed(number, "its machine is lost")
        else:
            study.end(number, value)
    found._thin_out()
    _, number, _ = study.ask() or pytest.fail("nothing to try")
    run = tiny_run()
    folder = tmp_path / "trials" / f"{number:04}"
    attach_hooks(run.trainer, [{"type": "CheckpointHook", "save_best": False}], work_dir=folder, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    study.end(number, 0.75)
    found._thin_out()
    assert list(folder.glob("*.pth")) == []
