"""What `pre-commit install` runs at every commit finds nothing here, and finds what it is for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pre_commit")
pytest.importorskip("pre_commit_hooks")
pytest.importorskip("nbstripout")

ROOT = Path(__file__).parents[1]
LISTED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(LISTED.returncode != 0, reason="no repository: the files are not those of a clone"),
]

OUTPUT = '"outputs": [{"name": "stdout", "output_type": "stream", "text": ["1"]}]'
SPOILED = {
    "ruff check": ("a.py", "import os\n"),
    "ruff format": ("b.py", "x   =   1\n"),
    "no outputs in notebooks": (
        "c.ipynb",
        '{"cells": [{"cell_type": "code", "execution_count": 1, "id": "a", "metadata": {}, "source": ["1"], '
        f'{OUTPUT}}}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}\n',
    ),
    "one line feed at the end": ("d.md", "text"),
    "no trailing whitespace": ("e.md", "text \n"),
    "no large files": ("f.txt", "text\n" * 100_000),
    "names that differ in more than case": ("Readme.md", "text\n"),
}
"""A file that each check is for, by its name."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a repository with a copy of the files, so that nothing here is repaired by a test."""
    folder = tmp_path / "copy"
    for name in filter(None, LISTED.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def checked(folder: Path, *options: str) -> dict[str, str]:
    """Return what each check says of the files: Passed, Failed or Skipped."""
    command = [sys.executable, "-m", "pre_commit", "run", "--color=never", *options]
    variables = {**os.environ, "PRE_COMMIT_HOME": str(folder.parent / "home")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=variables)
    found = dict(re.findall(r"^(.+?)\.{3,}(?:\(.*\))?(Passed|Failed|Skipped)$", done.stdout, re.MULTILINE))
    assert found, done.stdout + done.stderr
    assert (done.returncode == 0) == ("Failed" not in found.values()), done.stdout
    return found


def test_nothing_is_found_in_the_files_of_the_repository(copy: Path) -> None:
    assert set(checked(copy, "--all-files").values()) == {"Passed"}


def test_each_check_finds_what_it_is_for(copy: Path) -> None:
    for name, text in SPOILED.values():
        (copy / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "add", "-A"], cwd=copy, check=True)
    found = checked(copy, "--files", *(name for name, _ in SPOILED.values()))
    assert {check: found[check] for check in SPOILED} == dict.fromkeys(SPOILED, "Failed")
    assert (copy / "e.md").read_text() == "text\n"
    assert '"outputs": []' in (copy / "c.ipynb").read_text()
