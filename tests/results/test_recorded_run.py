"""`recorded_run.py`: any folder of a run is read as data, whatever became of the run."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import attach_hooks, read_run
from ignite_hooks.results import recorded_run
from ignite_hooks.store.lock import FolderLock
from ignite_hooks.testing import tiny_trainer

HOOKS: list[dict[str, Any]] = [
    {"type": "LoggerHook", "interval": 2},
    {"type": "CheckpointHook", "save_best": False},
    {"type": "ReportHook"},
]


@pytest.fixture
def folder(tmp_path: Path, quick: None) -> Path:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, HOOKS, work_dir=tmp_path / "run")
    trainer.run(data, max_epochs=2)
    return tmp_path / "run"


def test_a_finished_run_is_read_whole(folder: Path) -> None:
    run = read_run(folder)
    assert (run.state, run.reason, run.name) == ("finished", "", "run")
    assert [entry.name for entry in run.checkpoints] == ["epoch_1.pth", "epoch_2.pth", "last.pth"]
    assert run.metrics["loss"].value == run.history.values("loss")[-1][1]
    assert run.result is not None
    assert run.result.metrics["loss"].value == run.metrics["loss"].value
    assert run.result.digests["weights"].startswith("xxh3_128:")
    assert str(run).splitlines()[0].split() == ["run", "run:", "finished"]
    assert "last.pth" in repr(run.checkpoints)
    assert "<td style='padding:2px 10px;text-align:left;vertical-align:top'>run: finished</td>" in run._repr_html_()


def test_the_curves_of_a_run_are_drawn_by_name(folder: Path) -> None:
    run = read_run(folder)
    assert [axes.get_title(loc="left") for axes in run.plot(["loss"]).axes] == ["loss"]
    assert "lr" in {axes.get_title(loc="left") for axes in run.plot().axes}
    line = {"time": 9.0, "step": 9, "epoch": 2, "kind": "train"}
    measured = {"share/data": 0.5, "iters_per_s": 3.0, "memory_mb": 5.0, "time/iter": 0.1}
    evaluated = {f"metric_{i}": 0.5 for i in range(9)} | {f"class_f1/{i}": 0.5 for i in range(5)}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**line, "scalars": measured | {"aux/a": 1.0}}) + "\n")
        file.write(json.dumps({**line, "kind": "val", "scalars": evaluated}) + "\n")
    run = read_run(folder)
    titles = {axes.get_title(loc="left") for axes in run.plot().axes}
    assert titles == {"loss", "lr", "aux_a", *(f"metric_{i}" for i in range(9))}, "no curve for each of many classes"
    assert [axes.get_title(loc="left") for axes in run.plot(["share/data"]).axes] == ["share_data"]
    with pytest.raises(KeyError, match="val/acc: not in this run, which has loss"):
        run.plot(["val/acc"])


def test_the_report_is_shown_in_a_frame(folder: Path) -> None:
    html = read_run(folder).show_report().data
    assert html.startswith('<div><iframe srcdoc="')
    assert html.endswith(f"<p>{folder / 'report.html'}</p></div>"), "for a page that drops the frame"
    assert " sandbox " in html
    (folder / "report.html").unlink()
    with pytest.raises(FileNotFoundError, match="ReportHook writes one"):
        read_run(folder).show_report()


def test_a_run_without_a_result_was_killed(folder: Path) -> None:
    (folder / "result.json").unlink()
    run = read_run(folder)
    assert (run.state, run.result, dict(run.best), dict(run.configuration)) == ("killed", None, {}, {})


def test_a_later_life_that_wrote_no_result_was_killed(folder: Path) -> None:
    line = {"time": 9e9, "step": 99, "epoch": 9, "kind": "train", "scalars": {"loss": 1.0}}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert read_run(folder).state == "killed"


def test_a_run_is_running_while_its_lock_is_held(folder: Path) -> None:
    lock = FolderLock(folder)
    lock.acquire()
    try:
        assert read_run(folder).state == "running"
    finally:
        lock.release()
    assert read_run(folder).state == "finished"


@pytest.mark.parametrize(
    ("owner", "alive"),
    [
        ({"pid": os.getpid(), "host": socket.gethostname()}, True),
        ({"pid": os.getpid(), "host": "elsewhere"}, False),
        ({"pid": "1", "host": socket.gethostname()}, False),
        ([], False),
    ],
)
def test_without_a_list_of_locks_the_process_tells(owner: Any, alive: bool) -> None:
    assert recorded_run._is_alive(owner) is alive


def test_a_damaged_result_is_a_problem_and_no_error(folder: Path) -> None:
    (folder / "result.json").write_text("{")
    run = read_run(folder)
    assert run.state == "killed"
    assert "not a result of a run" in str(run)


def test_a_folder_in_which_no_run_has_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        read_run(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="the folder is empty"):
        read_run(tmp_path)
