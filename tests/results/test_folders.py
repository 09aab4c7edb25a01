"""What is said of a folder that is no work directory of a run, by every command that takes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.engine import tell

CASES = {
    "runs/nowhere": "there is no such folder",
    "runs/frist": "there is no such folder, did you mean 'first'?",
    "empty": "the folder is empty: name the work directory of a run",
    "notes.txt": "this is a file: name the work directory of a run",
    "runs": "this is no run, but holds runs: name one of them, such as runs/first",
    "pictures": "no run has written here: name the work directory of a run",
}
COMMANDS = {
    "resume": ["DIR"],
    "test": ["DIR"],
    "export": ["DIR"],
    "compare": ["DIR", "runs/first"],
    "diff": ["DIR", "runs/first"],
    "tell": ["DIR", "stop", "--timeout", "0.01"],
    "send": ["DIR"],
}
OTHERWISE = {
    ("compare", "runs"): "2 to 50 runs can be compared, not 1",
    # Any file may be a checkpoint, and a folder of the user may hold sessions.
    ("test", "notes.txt"): "notes.txt is no checkpoint of a run",
    ("export", "notes.txt"): "notes.txt is no checkpoint of a run",
    # A run that writes nothing can be told.
    ("tell", "runs"): "no run is going on in runs",
    ("tell", "empty"): "no run is going on in empty",
    ("tell", "pictures"): "no run is going on in pictures",
    ("send", "runs"): "",
    ("send", "empty"): "",
    ("send", "pictures"): "",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("folder", CASES)
def test_every_command_says_what_is_wrong_with_a_folder(
    command: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # No run is there to take the order.
    monkeypatch.setitem(tell.tell.__kwdefaults__ or {}, "patience", 0.01)
    for name in ("runs/first", "empty", "pictures"):
        Path(name).mkdir(parents=True)
    for name in ("notes.txt", "pictures/cat.png", "runs/first/metrics.jsonl"):
        Path(name).touch()
    code = main([command, *(folder if word == "DIR" else word for word in COMMANDS[command])])
    said = capsys.readouterr().err
    expected = OTHERWISE.get((command, folder), f"{folder}: {CASES[folder]}")
    assert expected in said
    assert "Errno" not in said
    assert (code == 0) == (expected == "")


def test_a_run_of_a_script_is_resumed_by_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/metrics.jsonl").touch()
    assert main(["resume", "run"]) == 2
    assert "run: there is no config.yaml, so a script began it: run that script again, with resume='auto'" in (
        capsys.readouterr().err
    )
