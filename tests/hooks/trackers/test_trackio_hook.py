"""Runs as Trackio itself reads them: ``make trackio``, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.trackers.tracked import CANARY, as_written

pytest.importorskip("trackio", reason="Trackio is not installed: make trackio")
pytestmark = pytest.mark.faults

TRAIN = """
import sys
from pathlib import Path
from tests.hooks.trackers.tracked import train

HOOK = {"type": "TrackioHook", "project": "digits", "name": "first", "log_model": True, "log_histograms": True}
HOOK |= {"histogram_interval": 4}
if sys.argv[2] == "killed":
    train(Path(sys.argv[1]), HOOK, fail=True)
elif sys.argv[2] == "resumed":
    train(Path(sys.argv[1]), HOOK, epochs=4, resume="epoch_2.pth")
else:
    train(Path(sys.argv[1]), HOOK)
"""
WRITE = """
import sys
from ignite_hooks.writers.trackers.trackio import TrackioWriter
from tests.writers.results import write_media

writer = TrackioWriter("digits", "first", work_dir=sys.argv[1], deadline=240.0)
write_media(writer)
writer.close()
"""
READ = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage as Storage

[run] = Storage.get_run_records("digits")
found = {"logs": Storage.get_logs("digits", "first"), "config": Storage.get_run_config("digits", "first")}
print(json.dumps({**found, "artifacts": Storage.get_artifacts("digits")}, default=str))
"""


def run(code: str, folder: Path, *arguments: str) -> str:
    """Run code in a process, as Trackio reads its folder when it is imported."""
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def numbers(found: dict[str, Any], names: Any) -> dict[str, list[tuple[int, float]]]:
    rows: dict[str, list[tuple[int, float]]] = {}
    for row in found["logs"]:
        for name, value in row.items():
            if name in names:
                rows.setdefault(name, []).append((row["step"], value))
    return {name: sorted(each) for name, each in rows.items()}


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(READ, folder).splitlines()[-1])
    return found


def test_all_of_a_run_is_in_trackio(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(TRAIN, tmp_path, str(folder), "whole")
    found, written = read(tmp_path), as_written(folder)
    assert numbers(found, written) == written
    assert found["config"]["tracker"] == {"api_key": "***"}
    kinds = {value["_type"] for row in found["logs"] for value in row.values() if isinstance(value, dict)}
    assert kinds == {"trackio.image", "trackio.histogram", "trackio.markdown"}
    names = [each["name"].rpartition("-")[0] for each in found["artifacts"]]
    assert any(name.startswith("best_accuracy") for name in names), names
    files = [path for path in (tmp_path / "trackio").rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert list(folder.glob("*.spool*")) == [], "all was delivered"


def test_a_resumed_run_goes_on_in_its_run_without_a_step_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for life in ("killed", "resumed"):
        run(TRAIN, tmp_path, str(folder), life)
    written = as_written(folder)
    assert numbers(read(tmp_path), written) == written


def test_sounds_and_videos_are_played(tmp_path: Path) -> None:
    run(WRITE, tmp_path, str(tmp_path / "run"))
    logs = {name: value for row in read(tmp_path)["logs"] for name, value in row.items() if isinstance(value, dict)}
    assert {name: value["_type"] for name, value in logs.items()} == {
        "val/tone": "trackio.audio",
        "val/film": "trackio.video",
    }
    media = [path for path in (tmp_path / "trackio" / "media").rglob("*") if path.is_file()]
    assert sorted(path.suffix for path in media) == [".gif", ".wav"]
