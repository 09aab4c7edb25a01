"""`comparison.py`: runs side by side, whatever became of each; only what differs is told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.results.comparison import ABSENT, Comparison, read_runs, short_names
from ignite_hooks.results.result import Reached, RunResult

RESULT = RunResult("finished", epochs=2, iterations=8, seconds=61.0, ended=10.0)


def write_run(folder: Path, losses: tuple[float, ...] = (0.5, 0.25), **changes: Any) -> Path:
    folder.mkdir(parents=True)
    lines = [
        {"time": 1.0, "step": 4 * (at + 1), "epoch": at + 1, "kind": "val", "scalars": {"loss": loss, "iou": 1 - loss}}
        for at, loss in enumerate(losses)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dataclasses.replace(RESULT, **changes).write(folder)
    return folder


@pytest.fixture
def two(tmp_path: Path) -> Comparison:
    hooks = [{"type": "EMAHook", "momentum": 0.5}, {"type": "LoggerHook"}, {"type": "LoggerHook", "interval": 2}]
    plan = [{"point": "after_run", "hook": "a", "how often": "always", "priority": "50"}]
    best = {"accuracy": Reached(0.75, 4, 1)}
    write_run(
        tmp_path / "a", configuration={"hooks": hooks, "training": {"lr": 0.1, "epochs": 3}}, best=best, plan=plan
    )
    other = [{"type": "EMAHook", "momentum": 0.9}, *hooks[1:]]
    more = [*plan, {"point": "", "hook": "b", "how often": "each 2", "priority": "30"}]
    best = {"accuracy": Reached(0.5, 8, 2)}
    write_run(tmp_path / "b", (0.75,), configuration={"hooks": other, "training": {"epochs": 3}}, best=best, plan=more)
    return read_runs([tmp_path])


def test_each_run_is_a_row_with_best_and_last_metrics(two: Comparison) -> None:
    assert two.rows() == [
        {"run": "a", "state": "finished", "epochs": "2", "took": "1 min 1 s", "best accuracy": "0.7500 (epoch 1)"},
        {"run": "b", "state": "finished", "epochs": "2", "took": "1 min 1 s", "best accuracy": "0.5000 (epoch 2)"},
    ]


def test_only_differences_are_told_by_their_places(two: Comparison) -> None:
    assert two.differences("configuration") == [
        {"": "hooks[EMAHook].momentum", "a": "0.5", "b": "0.9"},
        {"": "training.lr", "a": "0.1", "b": ABSENT},
    ]
    assert two.differences("plan") == [{"": "after_run: b", "a": ABSENT, "b": "each 2, priority 30"}]
    assert two.differences("bits") == []


def test_runs_are_sorted_by_their_best_value_and_those_without_come_last(tmp_path: Path) -> None:
    for name, score in (("a", 0.5), ("b", 0.9), ("c", None)):
        best = {} if score is None else {"accuracy": Reached(score, 1)}
        write_run(tmp_path / name, (), best=best)
    compared = read_runs([tmp_path])
    assert [row["run"] for row in compared.rows("accuracy")] == ["b", "a", "c"]
    with pytest.raises(KeyError, match="no run has the metric 'acc'; they have: accuracy"):
        compared.rows("acc")


def test_without_a_ranked_metric_those_of_evaluations_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", (0.125, 0.75))
    first, second = read_runs([tmp_path]).rows()
    assert (first["best val/loss"], first["last val/iou"]) == ("0.2500", "0.7500")
    assert (second["best val/loss"], second["best val/iou"]) == ("0.1250", "0.8750")


def test_a_killed_run_is_a_row_without_a_result(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (write_run(tmp_path / "b") / "result.json").unlink()
    row = read_runs([tmp_path / "a", tmp_path / "b"]).rows()[1]
    assert (row["state"], row["took"], row["best val/loss"]) == ("killed", ABSENT, "0.2500")


def test_one_run_and_folders_without_runs_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    with pytest.raises(ValueError, match="2 to 50 runs can be compared, not 1"):
        read_runs([run, tmp_path / "a"])
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="the folder is empty"):
        read_runs([run, tmp_path / "none"])


@pytest.mark.parametrize(
    ("paths", "names"),
    [(["x/a", "x/b"], ["a", "b"]), (["x/run", "y/run"], ["x/run", "y/run"]), (["x/a", "x/a"], ["x/a", "x/a"])],
)
def test_names_are_as_short_as_they_can_be(paths: list[str], names: list[str]) -> None:
    assert short_names([Path(path) for path in paths]) == names
