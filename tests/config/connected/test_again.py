"""The folder of the task of an agent, and what it goes on from."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ignite_hooks import BaseTrainer
from ignite_hooks.config.connected import again, connect
from ignite_hooks.config.connected.again import place_of_task
from ignite_hooks.config.connected.connect import read_or_of_task
from ignite_hooks.errors import CheckpointError, ConfigError
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.store.names import MANIFEST
from ignite_hooks.writers.trackers.clearml_task import Recorded, folder_of_task

TASK = "3f" * 16


@pytest.fixture(autouse=True)
def _under_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARML_TASK_ID", TASK)
    monkeypatch.delenv("IGNITE_HOOKS_WORK_DIR", raising=False)
    monkeypatch.setattr(again, "task_of_agent", lambda: None)
    monkeypatch.setattr(again, "fetched", lambda *_: None)


@pytest.mark.parametrize(
    ("named", "root", "folder"),
    [
        (None, None, f"work_dirs/digits/{TASK}"),
        (None, "/data", f"/data/work_dirs/digits/{TASK}"),
        ("runs", "/data", f"/data/runs/{TASK}"),
        ("/here/runs", "/data", f"/here/runs/{TASK}"),
    ],
)
def test_each_task_has_a_folder_of_its_own(named: str | None, root: str | None, folder: str) -> None:
    environment = {"CLEARML_TASK_ID": TASK, **({"IGNITE_HOOKS_WORK_DIR": root} if root else {})}
    assert folder_of_task(named, "digits", environment) == Path(folder)


@pytest.mark.parametrize(("played", "warned"), [("", True), ("1", False)])
def test_an_agent_removes_a_relative_folder_and_a_search_that_plays_it_does_not(
    played: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CLEARML_SIMULATE_REMOTE_TASK", played)
    place_of_task("runs", "digits", None)
    assert ("which the agent removes" in caplog.text) is warned


def test_a_task_that_is_run_again_goes_on_from_its_own_checkpoints(tmp_path: Path) -> None:
    folder, resume = place_of_task(tmp_path, "digits", "of_the_parent.pth")
    assert (folder, resume) == (tmp_path / TASK, "of_the_parent.pth")
    (tmp_path / TASK / "inner").mkdir(parents=True)
    (tmp_path / TASK / "inner" / MANIFEST).touch()
    assert place_of_task(tmp_path, "digits", "of_the_parent.pth") == (folder, "auto")
    # Another task, a clone of this one perhaps, finds nothing of it.
    assert place_of_task(tmp_path / TASK, "digits", None) == (tmp_path / TASK / TASK, None)


def test_a_task_whose_folder_is_gone_goes_on_from_its_model_if_that_is_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = FolderStore(tmp_path / "elsewhere")
    saved.open()
    saved.save("last.pth", {"a": 1}, kind="last", epoch=1, iteration=7)
    saved.close()
    [entry] = saved.entries()
    address = f"https://there/last-{entry.checksum.replace(':', '-')}.pth"
    path = tmp_path / "elsewhere" / "last.pth"
    monkeypatch.setattr(again, "fetched", lambda task, name, folder: (path, address))
    assert place_of_task(tmp_path / "runs", "digits", "of_the_parent.pth")[1] == str(path)
    for bad in (address, "https://there/last.pth"):
        path.write_bytes(b"another")
        monkeypatch.setattr(again, "fetched", lambda *_, bad=bad: (path, bad))
        with pytest.raises(CheckpointError, match="the model 'last' of the ClearML task is not what was saved: "):
            place_of_task(tmp_path / "runs", "digits", None)
        assert not path.exists()


def test_a_folder_that_the_agent_removes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    place_of_task("runs", "digits", None)
    assert "set IGNITE_HOOKS_WORK_DIR" in caplog.text


@pytest.fixture
def task_says(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What the task says, which nobody asks a server for."""
    said: dict[str, str | None] = {"text": None}
    monkeypatch.setattr(connect, "task_of_agent", object)
    monkeypatch.setattr(connect, "recorded_in", lambda task: Recorded(said["text"], said["text"], {}))
    monkeypatch.setattr(connect, "record_in", lambda task, views: None)
    return said


def test_the_text_of_the_task_replaces_a_missing_file(task_says: dict[str, str | None], tmp_path: Path) -> None:
    task_says["text"] = "seed: 3\nimports: [os]\n"
    assert read_or_of_task(tmp_path / "a.yaml") == {"seed": 3}
    (tmp_path / "a.yaml").write_text("seed: 4\n")
    assert read_or_of_task(tmp_path / "a.yaml") == {"seed": 4}


def test_neither_file_nor_text_is_an_error_that_names_both(task_says: dict[str, str | None]) -> None:
    with pytest.raises(ConfigError, match=r"a\.yaml: there is no such file, and the task has no .* 'ignite_hooks'"):
        read_or_of_task("a.yaml")


TEXT = """
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 1, batch_size: 512}
tracker: {api_key: "***"}
hooks: [{type: ClearMLHook}]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT, "is a secret, which no task holds: .* or set IGNITE_HOOKS_SECRET_TRACKER_API_KEY"),
        (f"{TEXT}imports: [os]\n", "a task cannot change it: it says which code is loaded"),
    ],
)
def test_a_missing_file_brings_no_secrets_and_loads_no_code(
    text: str, message: str, task_says: dict[str, str | None], tmp_path: Path
) -> None:
    task_says["text"] = text
    with pytest.raises(ConfigError, match=message):
        BaseTrainer(tmp_path / "a.yaml", work_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
