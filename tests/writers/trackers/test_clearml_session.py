"""An archive of ClearML that was made on another machine, by whomever: only what is in it is sent."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers.clearml_session import unpack

FILES = "http://files"


def archive(folder: Path, task: dict[str, Any], *names: str) -> Path:
    path = folder / "clearml-offline-1.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("task.json", json.dumps({"offline_folder": "/elsewhere/offline-1", **task}))
        for name in names:
            packed.writestr(name, name)
    return path


def model(path: str | None, **other: Any) -> dict[str, Any]:
    weights = {"weights_filename": path, "register_uri": None, "target_filename": "best.pth"}
    return {"init": {"name": "best"}, "weights": weights, "output_uri": None, "id": "1", **other}


def unpacked(tmp_path: Path, task: dict[str, Any], *names: str) -> tuple[dict[str, Any], Any, Path]:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    metadata = unpack(archive(tmp_path, task, *names), folder, FILES)
    return json.loads((folder / "task.json").read_text()), metadata, folder


def test_a_model_is_the_file_in_the_archive_and_goes_to_the_server(tmp_path: Path) -> None:
    shown = {"epoch": {"value": "3", "type": "int"}}
    one = model("/elsewhere/offline-1/models/best-3.pth", metadata=shown)
    task, metadata, folder = unpacked(tmp_path, {"offline_output_models": [one]}, "models/best-3.pth")
    [found] = task["offline_output_models"]
    assert found["weights"]["weights_filename"] == str(folder / "models/best-3.pth")
    assert (found["output_uri"], found["weights"]["async_enable"]) == (FILES, False)
    assert metadata == {"best": shown}


def test_a_destination_of_the_run_is_kept(tmp_path: Path) -> None:
    one = model("/elsewhere/offline-1/models/best-3.pth", output_uri="s3://bucket")
    task, metadata, _ = unpacked(tmp_path, {"offline_output_models": [one]}, "models/best-3.pth")
    assert task["offline_output_models"][0]["output_uri"] == "s3://bucket"
    assert metadata == {"best": {}}


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret", "/elsewhere/offline-1/models/lost.pth", None])
def test_no_other_file_is_sent_as_a_model(path: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task, _, _ = unpacked(tmp_path, {"offline_output_models": [model(path)]}, "models/best-3.pth")
    assert task["offline_output_models"] == []
    assert caplog.messages == ["the file of the model best is not in the archive, so it is not sent"]


def test_no_other_file_is_sent_as_an_artifact(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uris = ["/elsewhere/offline-1/data/plan.txt", "/etc/passwd", "../../../secret", "http://server/there"]
    execution = {"artifacts": [{"uri": uri} for uri in uris]}
    task, _, _ = unpacked(tmp_path, {"execution": execution}, "data/plan.txt")
    assert [one["uri"] for one in task["execution"]["artifacts"]] == [uris[0], uris[3]]
    assert caplog.messages == [f"{uri} is not in the archive, so it is not sent" for uri in uris[1:3]]


def test_nothing_is_unpacked_elsewhere(tmp_path: Path) -> None:
    unpacked(tmp_path, {}, "../../outside", "/outside")
    assert not (tmp_path.parent / "outside").exists()
    assert not Path("/outside").exists()
