"""The notebooks run from top to bottom, and are kept without outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools import trackers_at

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 120
"""For one cell; all of a notebook takes a few on a machine that does nothing else."""

SHOWN: dict[str, list[str]] = {
    "clearml_experiment": [" numbers: ", "the secret is in it: False"],
    "distributed_evaluation": ["0 5 batches", "1 5 batches", "of 301 right", "tells of both: True"],
    "life_of_an_event": ["70  EvalHook.after_val_epoch", "before: []", "after: []", "'kind': 'best'"],
    "quickstart": ["a whole number of at least 1 is needed, not 'four'", "report.html", "best_accuracy_epoch_"],
    "resume_and_ema": ["the power fails", "resumed from iter_40.pth", "equal to the bit: True", "averages, too: True"],
    "write_your_own_hook": ["Greeter: epoch 4 of Linear", "AssertionError: Forgetful", "the disk is full"],
}
"""What a reader has to find in the outputs."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.fixture(autouse=True)
def _trackers(tmp_path: Path) -> Iterator[None]:
    with trackers_at(tmp_path):
        yield


def test_there_is_a_notebook_for_every_subject() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells), "clear the outputs and save"
    assert notebook.cells[0].source.startswith("# ")
    # What clears a cell flickers and forgets; pictures are updated in their place.
    assert not any("clear_output" in cell.source for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_it_describes(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    if path.stem.startswith("clearml"):
        pytest.importorskip("clearml")
    notebook = read(path)
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "\n".join(str(one.get("text") or one.get("data", {}).get("text/plain", "")) for one in outputs)
    assert [expected for expected in SHOWN[path.stem] if expected not in text] == []
    if path.stem == "quickstart":
        pictures = [one for one in outputs if "image/png" in one.get("data", {})]
        assert len(pictures) == 1, "one picture, updated in its place"
        tables = [one for one in outputs if "<table" in one.get("data", {}).get("text/html", "")]
        beginnings = [str(one["data"].get("text/plain", "")).split("\n")[0] for one in tables]
        assert [line.split()[0] for line in beginnings].count("point") == 1, "the plan"
        assert len([line for line in beginnings if ": finished, epoch " in line]) == 1, "one panel for the run"
