"""The folder of a run by each release is read by every later version: `releases/` holds one of each.

A folder is made by ``python -m tests.checkpoint.test_releases`` with the release itself, and never again.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Events

from ignite_hooks import read_run
from ignite_hooks.store import FolderStore
from ignite_hooks.store.manifest import FILE_NAME
from ignite_hooks.version import __version__
from tests.checkpoint.runs import EMA, LENGTH, STOPPING, content, same, script

ROOT = Path(__file__).parents[2]
FOLDERS = Path(__file__).with_name("releases")
RELEASES = sorted(path.name for path in FOLDERS.iterdir())
KEPT = (FILE_NAME, "last.pth", "result.json")
HOOKS = [EMA, {"type": "CheckpointHook", "interval": 50, "save_best": False}, STOPPING]
STOPPED_AT = 6


def released() -> list[str]:
    """Return the versions that the changelog has a section of."""
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    return sorted(line.split("]")[0][4:] for line in lines if line.startswith("## [") and "Unreleased" not in line)


@pytest.fixture(params=RELEASES)
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of the folder of a release."""
    return Path(shutil.copytree(FOLDERS / request.param, tmp_path / "work"))


def test_there_is_a_folder_of_each_release() -> None:
    assert released() == RELEASES
    assert __version__ in RELEASES
    assert {path.name for path in FOLDERS.glob("*/*")} == {*KEPT}


def test_checkpoints_of_a_release_verify(work: Path) -> None:
    store = FolderStore(work)
    assert [(entry.name, entry.kind, store.verify(entry)) for entry in store.entries()] == [("last.pth", "last", None)]


def test_the_result_of_a_release_is_read(work: Path) -> None:
    run = read_run(work)
    assert (run.problems, run.state, run.reason) == ((), "stopped", "enough")
    assert run.result is not None
    assert run.result.iterations == STOPPED_AT
    written = json.loads((work / "result.json").read_text())["metrics"]["val_loss"]
    assert run.result.metrics["val_loss"].value == written["value"]


@pytest.mark.usefixtures("quick")
def test_a_run_of_a_release_goes_on_in_its_folder(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    average = content(work / "last.pth")["ema_state_dict"]
    now = script(work, HOOKS, resume=True)
    batches: list[Any] = []
    found: list[Any] = []

    @now.trainer.on(Events.ITERATION_STARTED)
    def look() -> None:
        batches.append(now.trainer.state.iteration)
        if not found:
            found.append(copy.deepcopy(now.runner.hooks["EMAHook"].weights()["ema_state_dict"]))

    now.run(3)
    assert batches == list(range(STOPPED_AT + 1, 3 * LENGTH + 1))
    assert now.counter.seen[:2] == [0, 1]  # the second was told when the run was stopped in it
    assert same(found, [average])
    assert "is approximate" not in caplog.text
    written = json.loads((work / FILE_NAME).read_text())
    assert [entry["iteration"] for entry in written["entries"]] == [3 * LENGTH]


def make(folder: Path) -> None:
    """Write the folder of this version."""
    now = script(folder, HOOKS)
    now.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=STOPPED_AT), lambda: now.runner.stop("enough"))
    now.run(3)
    target = FOLDERS / __version__
    target.mkdir(parents=True)
    for name in KEPT:
        shutil.copyfile(folder / name, target / name)
    # Where it was made is nobody's business.
    result = json.loads((target / "result.json").read_text())
    result["environment"] |= {"python": "3.11", "machine": "Linux", "command": "python script.py", "folder": "/project"}
    (target / "result.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    import tempfile

    make(Path(tempfile.mkdtemp()))
