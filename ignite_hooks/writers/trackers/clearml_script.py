"""What an agent of ClearML has to call to repeat a run that our command line began."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ignite_hooks.writers.interface import installed
from ignite_hooks.writers.trackers.clearml_task import (
    PATIENCE,
    Views,
    begun_task,
    ending_as_stopped,
    ending_whole,
    record_in,
)
from ignite_hooks.writers.trackers.probe import answers

MODULE = "ignite_hooks"
LAUNCHER = "torch.distributed.run"
NAME = "ignite-hooks"
DETECTED_WITHIN = 60.0
"""Seconds for which the thread that delivers waits until ClearML has looked for the script by itself."""


def trained_file(arguments: Sequence[str]) -> str | None:
    """Return the file that a command line trains; None if the process is a script or does something else.

    Example:
        >>> trained_file(["/venv/bin/ignite-hooks", "train", "--set", "seed=1", "digits.yaml"])
        'digits.yaml'
        >>> trained_file(["train.py", "train", "digits.yaml"]) is None
        True
    """
    if not arguments or not _is_ours(arguments[0]) or arguments[1:2] != ["train"]:
        return None
    positional = _without_options(arguments[2:])
    return positional[0] if positional else None


def _is_ours(program: str) -> bool:
    path = Path(program)
    return path.stem == "ignite-hooks" or (path.name == "__main__.py" and path.parent.name == MODULE)


def _without_options(arguments: Sequence[str]) -> list[str]:
    flags, found, rest = {"--dry-run"}, list[str](), iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            found.append(argument)
        elif "=" not in argument and argument not in flags:
            next(rest, None)
    return found


def launch_of(parent: Sequence[str]) -> list[str]:
    """Return the arguments of torchrun in the command line of the process that started the ranks.

    Example:
        >>> launch_of(["python", "/venv/bin/torchrun", "--nproc-per-node=2", "-m", "ignite_hooks", "train", "a.yaml"])
        ['--nproc-per-node=2']
        >>> launch_of(["python", "-m", "torch.distributed.run", "--no-python", "ignite-hooks", "train", "a.yaml"])
        []
    """
    at = next((i + 1 for i, word in enumerate(parent) if Path(word).stem == "torchrun" or word == LAUNCHER), 0)
    found = []
    for word in parent[at:]:
        if word in (MODULE, "train") or _is_ours(word):
            break
        found.append(word)
    # How the program was named: it is a module for the agent.
    dropped = ("-m", "--module", "--no-python", "--no_python")
    return [word for word in found if word not in dropped] if at else []


def entry_point(file: str, launch: Sequence[str] | None) -> str:
    """Return the entry point of a task; values of ``--set`` are in the task's configuration.

    Args:
        file: The configuration, as seen from the working directory.
        launch: The arguments of torchrun; None without it.

    Example:
        >>> entry_point("my configs/a.yaml", ["--nproc-per-node=2"])
        "-m torch.distributed.run --nproc-per-node=2 -m ignite_hooks train 'my configs/a.yaml'"
    """
    started = [] if launch is None else ["-m", LAUNCHER, *launch]
    return shlex.join([*started, "-m", MODULE, "train", file])


def write_script(
    task: Any, arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Let a task say how an agent repeats this process; return the entry point, or None where ClearML knows it better.

    ClearML takes ``ignite-hooks`` for a script whose text it keeps, and does not find what ``torchrun`` was given.

    Args:
        task: The task, in which ClearML has recorded its own idea of the script.
        arguments: The command line; by default that of this process.
        environment: The variables, in which torchrun leaves its traces.
    """
    file = trained_file(sys.argv if arguments is None else arguments)
    if file is None:
        return None
    detecting = getattr(task, "_detect_repo_async_thread", None)
    if detecting is not None:
        # It would write over what we write.
        detecting.join(DETECTED_WITHIN)
    launch = None
    if "TORCHELASTIC_RUN_ID" in environment:
        import psutil

        parent = psutil.Process().parent()
        launch = launch_of(parent.cmdline() if parent is not None else [])
    found = _repository_of(file)
    entry, root = entry_point(found.pop("file"), launch), found.pop("root")
    task.set_script(**found, entry_point=entry)
    # An agent installs what a repository says of itself only where the task says nothing.
    task.set_packages("" if root and Path(root, "requirements.txt").is_file() else packages())
    return entry


@contextlib.contextmanager
def without_analysis(arguments: Sequence[str] | None = None) -> Iterator[None]:
    """Let the SDK look for no packages meanwhile, if `write_script` says which an agent needs.

    It would read all files of the repository, for seconds in which the training does not get the interpreter.
    """
    from clearml import Task

    if trained_file(sys.argv if arguments is None else arguments) is None:
        yield
        return
    before = Task._force_use_pip_freeze
    Task._force_use_pip_freeze = os.devnull
    try:
        yield
    finally:
        Task._force_use_pip_freeze = before


def packages() -> list[str]:
    """Return what an agent has to install: this package as it was installed here, and what decides about numbers."""
    metadata = importlib.metadata
    found = [requirement_of(metadata.version(NAME), metadata.distribution(NAME).read_text("direct_url.json"))]
    for name in ("torch", "torchvision", "pytorch-ignite", "numpy", "clearml"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            # Without what names a build: 2.13.0+cpu is on another index.
            found.append(f"{name} == {metadata.version(name).partition('+')[0]}")
    return found


def requirement_of(version: str, direct: str | None) -> str:
    """Return how pip installs this package again.

    Args:
        version: Its version.
        direct: What pip has noted where it did not come from an index, as JSON.

    Example:
        >>> requirement_of("1.0", None)
        'ignite-hooks[clearml] == 1.0'
        >>> requirement_of("1.0", '{"url": "https://a/b", "vcs_info": {"vcs": "git", "commit_id": "3f"}}')
        'ignite-hooks[clearml] @ git+https://a/b@3f'
    """
    noted = json.loads(direct) if direct else {}
    url, vcs = noted.get("url"), noted.get("vcs_info")
    if vcs:
        return f"{NAME}[clearml] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    # A folder of this machine is of no use to another one.
    return f"{NAME}[clearml] @ {url}" if noted.get("archive_info") is not None else f"{NAME}[clearml] == {version}"


def _repository_of(file: str) -> dict[str, str]:
    """Return where an agent finds a file: its repository with uncommitted changes, or none."""
    from clearml.backend_interface.task.repo import ScriptInfo

    path = Path(file).absolute()
    script: Mapping[str, Any] = {}
    if path.is_file():
        result, _ = ScriptInfo.get(filepaths=[str(path)], create_requirements=False, detect_jupyter_notebook=False)
        script = result.script or {}
    root = script.get("repo_root")
    if not (script.get("repository") and script.get("version_num") and root):
        # What a single script would have as its text would be the configuration here.
        return {"repository": "", "branch": "", "commit": "", "diff": "", "working_dir": ".", "file": file, "root": ""}
    folder = Path(str(root), str(script.get("working_dir") or "."))
    return {
        "repository": str(script["repository"]),
        "branch": str(script.get("branch") or ""),
        "commit": str(script["version_num"]),
        "diff": str(script.get("diff") or ""),
        "working_dir": str(script.get("working_dir") or "."),
        "file": os.path.relpath(path, folder.resolve()),
        "root": str(root),
    }


def queued_task(
    views: Views,
    file: str,
    queue: str,
    *,
    project: str = "ignite_hooks",
    task_name: str | None = None,
    tags: Sequence[str] = (),
) -> tuple[str, str]:
    """Make a task that is not run here, put it into a queue, and return its id and its page.

    Args:
        views: The configuration, as the task shows it.
        file: The file of the configuration.
        queue: The name of the queue.
        project: The project of the task.
        task_name: The name of the task; the file's by default.
        tags: The tags of the task.

    Raises:
        ConnectionError: There is no server, or it does not answer.
    """
    task = drafted_task(views, file, project=project, task_name=task_name, tags=tags)
    type(task).enqueue(task, queue_name=queue)
    return str(task.id), str(task.get_output_log_web_page())


def drafted_task(
    views: Views,
    file: str,
    *,
    project: str = "ignite_hooks",
    task_name: str | None = None,
    tags: Sequence[str] = (),
) -> Any:
    """Return a task that is not run here, for a queue or to be cloned.

    Args:
        views: The configuration, as the task shows it.
        file: The file of the configuration.
        project: The project of the task.
        task_name: The name of the task; the file's by default.
        tags: The tags of the task.

    Raises:
        ConnectionError: There is no server, or it does not answer.
    """
    installed("clearml", "clearml")
    from clearml.backend_api import Session

    server = Session.get_api_server_host()
    if not answers(f"{server}/debug.ping", PATIENCE):
        raise ConnectionError(f"{server} does not answer, so no task was made: run clearml-init, or try again")
    command = ["ignite-hooks", "train", file]
    with without_analysis(command):
        task = begun_task(
            project_name=project,
            task_name=task_name or Path(file).stem,
            tags=list(tags) or None,
            reuse_last_task_id=False,
        )
        write_script(task, command, {})
    try:
        record_in(task, views)
    finally:
        with ending_whole(task), ending_as_stopped(task):
            task.close()
    return task
