"""The notebooks run from top to bottom, as papermill and as an agent runs them, and are kept without outputs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.tools import trackers_at

nbformat: Any = pytest.importorskip("nbformat")
papermill: Any = pytest.importorskip("papermill")
pytest.importorskip("nbclient")

from tests.kernel import forked_kernels  # noqa: E402 - it needs what may be missing

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BY_NAME = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
LONG = os.environ.get("IGNITE_HOOKS_LONG") == "1"
SECONDS = 250
"""For one cell; all of a notebook takes a few on a machine that does nothing else."""
MOST_CELLS = 12

SHOWN: dict[str, list[str]] = {
    "clearml_experiment": ["holds the secret: False", "# lr found by hand", "the weights of a run by hand: True"],
    "distributed_evaluation": ["0 5 batches", "1 5 batches", "of 301 right", "val    epoch 2"],
    "life_of_an_event": ["70  eval.after_val_epoch", "not 'four'", "before: []", "after: []", "'kind': 'best'"],
    "quickstart": ["best_accuracy_epoch_", "EarlyStoppingHook", "mean µs"],
    "resume_and_ema": ["the power fails", "resumed from iter_40.pth", "equal to the bit: True", "averages, too: True"],
    "search": ["best val_loss", "pruned", "finished"],
    "three_homes": [
        "the same weights: True",
        "val    epoch 3",
        "clearml-offline-",
        "task       finished, best accuracy",
    ],
    "write_your_own_hook": ["Greeter: epoch 4 of Linear", "AssertionError: Forgetful", "the disk is full"],
}
"""What a reader has to find in the outputs."""
PROCESSES = ("clearml_experiment", "distributed_evaluation", "search", "three_homes")
"""Start processes of their own, which takes longer than all others together."""
CHANGES_THE_KERNEL = "three_homes"
"""ClearML, once it has been imported, changes much of what others import."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def tagged(notebook: Any, tag: str) -> list[Any]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


@pytest.fixture(autouse=True)
def _trackers(tmp_path: Path) -> Iterator[None]:
    with trackers_at(tmp_path):
        yield


def test_there_is_a_notebook_for_every_subject() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)


@BY_NAME
def test_it_is_short_and_kept_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells), "clear the outputs and save"
    assert notebook.cells[0].source.startswith("# ")
    assert len(notebook.cells) <= MOST_CELLS
    # What clears a cell flickers and forgets; pictures are updated in their place.
    assert not any("clear_output" in cell.source for cell in cells)
    assert len(tagged(notebook, "parameters")) == 1
    # An agent runs them without IPython.
    assert not any(line.startswith(("%", "!")) for cell in cells for line in cell.source.splitlines())
    assert not any("IPython" in cell.source or "display(" in cell.source for cell in cells)


@pytest.mark.parametrize(("version", "there"), [("2.13.0", False), ("2.13.0+cu126", False), ("2.13.0", True)])
def test_installing_keeps_the_torch_that_is_there(version: str, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: calls.append(command))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there else None)
    monkeypatch.setattr(torch, "__version__", version)
    cells = [read(path).cells[1].source for path in NOTEBOOKS]
    for source in cells:
        exec(source, {})
    assert (
        [command[:4] for command in calls] == [] if there else [[sys.executable, "-m", "pip", "install"]] * len(cells)
    )
    assert {command[-1] for command in calls} == (set() if there else {"torch==2.13.0"})


@pytest.mark.slow
@pytest.mark.faults
@BY_NAME
def test_it_runs_with_parameters_and_shows_what_it_describes(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if path.stem in PROCESSES and path.stem != CHANGES_THE_KERNEL and not LONG:
        pytest.skip("make faults and make docs run it: its processes take longer than all others")
    pytest.importorskip("sklearn")
    if "clearml" in path.read_text("utf-8").lower():
        pytest.importorskip("clearml")
    given = {"WORK_DIR": "elsewhere"}
    if LONG or path.stem == CHANGES_THE_KERNEL:
        settings = {
            "cwd": str(tmp_path),
            "execution_timeout": SECONDS,
            "start_timeout": SECONDS,
            "progress_bar": False,
            "kernel_name": "python3",
        }
        with forked_kernels():
            done = papermill.execute_notebook(str(path), str(tmp_path / "done.ipynb"), given, **settings)
    else:
        # Papermill would start a kernel for each.
        notebook = papermill.iorw.load_notebook_node(str(path))
        parametrised = papermill.parameterize.parameterize_notebook(notebook, given, kernel_name="python3")
        done = request.getfixturevalue("kernel").run(parametrised, tmp_path)
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    # One line may come in several pieces.
    text = "".join(str(one.get("text") or one.get("data", {}).get("text/plain", "")) for one in outputs)
    assert [expected for expected in SHOWN[path.stem] if expected not in text] == []
    assert (tmp_path / "elsewhere").is_dir()
    assert not (tmp_path / "work_dirs").exists()
    if path.stem == "quickstart":
        assert len([one for one in outputs if "image/png" in one.get("data", {})]) == 1, "the curves"
        tables = [one for one in outputs if "<table" in one.get("data", {}).get("text/html", "")]
        beginnings = [str(one["data"].get("text/plain", "")).split("\n")[0] for one in tables]
        assert [line.split()[0] for line in beginnings].count("point") == 1, "the plan"
        assert len([line for line in beginnings if ": finished, epoch " in line]) == 1, "one panel for the run"


# Runs each script in a folder of its own; without IPython, as on the machine of an agent.
RUNNER = """
import gc, os, runpy, sys
import ignite.engine, ignite.metrics, sklearn.datasets, torch
torch.set_num_threads(1)
sys.modules["IPython"] = None
for script in sys.argv[1:]:
    os.chdir(os.path.dirname(script))
    sys.path.insert(0, "")
    gc.collect()
    gc.freeze()
    print("running", script, file=sys.stderr, flush=True)
    runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.slow
def test_they_run_as_plain_scripts_with_log_lines_for_the_panel(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    exporters: Any = pytest.importorskip("nbconvert.exporters")
    scripts = []
    for path in NOTEBOOKS:
        if path.stem in PROCESSES and not LONG:
            continue
        script = tmp_path / path.stem / "script.py"
        script.parent.mkdir()
        script.write_text(exporters.PythonExporter().from_filename(str(path))[0], "utf-8")
        scripts.append(str(script))
    command = [sys.executable, "-c", RUNNER, *scripts]
    done = warm.run(command, also=warm.LEARNS, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    told = done.stderr.split("running ")[1:]
    assert len(told) == len(scripts)
    silent = [Path(said.split("\n")[0]).parent.name for said in told if "run ended after" not in said]
    # These keep what the processes say that they start.
    assert set(silent) <= set(PROCESSES)
    assert "equal to the bit: True" in done.stdout
