"""A real shell completes commands, options, words and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.cli.completion import FILES, FOLDERS, SHELLS, _mark_paths

ASK = """
eval "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p ignite-hooks | sed 's/.*-F \\([^ ]*\\).*/\\1/') ignite-hooks "${@: -1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def scripts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    pytest.importorskip("shtab")
    found = {}
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        found[shell] = capsys.readouterr().out
    return found


def test_bash_completes_a_line(scripts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "runs").mkdir()
    for line, answer in {
        "tr": {"train"},
        "train --dr": {"--dry-run"},
        "tell . st": {"stop"},
        "tell r": {"runs"},
        "train m": {"mine.yaml"},
        "export --form": {"--format"},
        "completion z": {"zsh"},
    }.items():
        command = ["bash", "--norc", "-c", ASK, "bash", scripts["bash"], "ignite-hooks", *line.split(" ")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
        assert {word.strip() for word in done.stdout.split()} == answer, f"{line}: {done.stderr}"


@pytest.mark.parametrize("shell", sorted({*SHELLS} - {"bash"}))
def test_the_script_of_another_shell_is_read_by_it(shell: str, scripts: dict[str, str], tmp_path: Path) -> None:
    assert "dry-run" in scripts[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(scripts[shell])
    subprocess.run([shell, "-n", "script"], cwd=tmp_path, check=True, timeout=60)


def test_every_path_of_a_command_is_completed_as_one() -> None:
    from ignite_hooks.cli.app import whole_parser

    found: dict[str, Any] = {}

    def collect(parser: Any) -> None:
        for action in parser._actions:
            for command in action.choices.values() if isinstance(action.choices, dict) else ():
                collect(command)
            if isinstance(action.metavar, str):
                found[action.metavar] = getattr(action, "complete", None)

    parser = whole_parser()
    _mark_paths(parser, "file", "folder")
    collect(parser)
    words = {"COMMAND", "HOOK", "KEY=VALUE", "METRIC", "N", "NAME", "SECONDS", "X", "raw|ema|NAME"}
    assert {name for name, complete in found.items() if complete is None} == words
    assert {*FILES, *FOLDERS} <= found.keys()


def test_without_shtab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'ignite-hooks[completion]'" in capsys.readouterr().err
