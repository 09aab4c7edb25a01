"""What an agent is to call; whether it does is tested by `tests/agent`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers.clearml_script import (
    entry_point,
    launch_of,
    packages,
    requirement_of,
    trained_file,
    without_analysis,
    write_script,
)

pytest.importorskip("clearml")


class Task:
    """Keeps what is set."""

    def __init__(self) -> None:
        self.script: dict[str, str] = {}
        self.packages: Any = None

    def set_script(self, **script: str) -> None:
        self.script = script

    def set_packages(self, packages: Any) -> None:
        self.packages = packages


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["/bin/ignite-hooks", "train", "a.yaml"], "a.yaml"),
        (["/site/ignite_hooks/__main__.py", "train", "a.yaml", "--set", "seed=1"], "a.yaml"),
        (["ignite-hooks", "train", "--work-dir", "b", "--set=seed=1", "--dry-run", "a.yaml"], "a.yaml"),
        (["ignite-hooks", "resume", "b"], None),
        (["ignite-hooks", "train"], None),
        (["train.py", "train", "a.yaml"], None),
        ([], None),
    ],
)
def test_only_our_command_line_names_a_file(arguments: list[str], file: str | None) -> None:
    assert trained_file(arguments) == file


@pytest.mark.parametrize(
    ("parent", "launch"),
    [
        ("python /bin/torchrun --nproc-per-node 2 -m ignite_hooks train a.yaml", ["--nproc-per-node", "2"]),
        ("python -m torch.distributed.run --standalone --no-python ignite-hooks train a.yaml", ["--standalone"]),
        ("torchrun --nnodes=2 /bin/ignite-hooks train a.yaml", ["--nnodes=2"]),
        ("bash", []),
    ],
)
def test_the_arguments_of_torchrun_are_found(parent: str, launch: list[str]) -> None:
    assert launch_of(parent.split()) == launch


def test_values_of_set_are_no_part_of_the_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be secrets, and they are in the task's configuration."""
    monkeypatch.chdir(tmp_path)
    task = Task()
    arguments = ["ignite-hooks", "train", "a b.yaml", "--set", "tracker.api_key=k-123"]
    assert write_script(task, arguments, {}) == "-m ignite_hooks train 'a b.yaml'"
    assert task.script == {
        "repository": "",
        "branch": "",
        "commit": "",
        "diff": "",
        "working_dir": ".",
        "entry_point": "-m ignite_hooks train 'a b.yaml'",
    }
    assert task.packages == packages()
    assert write_script(task, ["script.py"], {}) is None


def test_a_file_in_a_repository_is_found_there_with_its_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *words], cwd=tmp_path, check=True)

    (tmp_path / "configs").mkdir()
    file = tmp_path / "configs" / "a.yaml"
    file.write_text("seed: 1\n")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    git("remote", "add", "origin", "/there/shared.git")
    git("config", "branch.main.remote", "origin")
    git("config", "branch.main.merge", "refs/heads/main")
    file.write_text("seed: 2\n")
    (tmp_path / "requirements.txt").write_text("ignite-hooks[clearml]\n")
    monkeypatch.chdir(tmp_path / "configs")
    task = Task()
    write_script(task, ["ignite-hooks", "train", "a.yaml"], {})
    assert task.script["repository"] == "/there/shared.git"
    assert (tmp_path / task.script["working_dir"] / task.script["entry_point"].split()[-1]).samefile(file)
    assert "+seed: 2" in task.script["diff"]
    assert task.packages == "", "the repository says itself what is installed"


@pytest.mark.parametrize(
    ("arguments", "packages_of"),
    [(["ignite-hooks", "train", "a.yaml"], os.devnull), (["train.py"], None)],
)
def test_the_sdk_reads_no_repository_for_packages_that_we_name(arguments: list[str], packages_of: str | None) -> None:
    """It would read every file of it, beside the training."""
    from clearml import Task

    before = Task._force_use_pip_freeze
    with without_analysis(arguments):
        meanwhile = Task._force_use_pip_freeze
    assert meanwhile == packages_of if packages_of else meanwhile is before
    assert Task._force_use_pip_freeze is before


@pytest.mark.parametrize(
    ("direct", "requirement"),
    [
        (None, "ignite-hooks[clearml] == 1.0"),
        ({"url": "file:///a/b.whl", "archive_info": {}}, "ignite-hooks[clearml] @ file:///a/b.whl"),
        (
            {"url": "https://a/b", "vcs_info": {"vcs": "git", "commit_id": "3f"}},
            "ignite-hooks[clearml] @ git+https://a/b@3f",
        ),
        ({"url": "file:///a", "dir_info": {"editable": True}}, "ignite-hooks[clearml] == 1.0"),
    ],
)
def test_this_package_is_installed_as_it_was_here(direct: Any, requirement: str) -> None:
    assert requirement_of("1.0", direct and json.dumps(direct)) == requirement


def test_ranks_are_started_by_the_agent_too() -> None:
    assert entry_point("a.yaml", []) == "-m torch.distributed.run -m ignite_hooks train a.yaml"
    assert entry_point("a.yaml", None) == "-m ignite_hooks train a.yaml"
