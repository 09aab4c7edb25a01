"""`host.py`: what macOS and Windows lack is not needed; these systems themselves are where the workflow runs."""

from __future__ import annotations

import ast
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ignite_hooks.config.signals import read_signals
from ignite_hooks.store.files import open_regular
from ignite_hooks.system import host
from tests import warm

PACKAGE = Path(host.__file__).parents[1]

TRAIN = """
import json, sys
from pathlib import Path

import torch
import ignite.engine, ignite.handlers, ignite.metrics, torch._dynamo

from tests.bare import take_away

take_away(system="win32" if sys.argv[2] == "windows" else "linux", locks=sys.argv[2] == "windows")

from tests.one_process import check

print(json.dumps(check(Path(sys.argv[1]))))
"""


@pytest.mark.parametrize("kind", ["bare", "windows"])
def test_a_run_trains_saves_and_resumes_without_what_linux_alone_has(kind: str, tmp_path: Path) -> None:
    done = warm.run([sys.executable, "-c", TRAIN, str(tmp_path), kind], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    refused = json.loads(done.stdout.splitlines()[-1])
    if kind == "windows":
        assert "parts is in use by process" in refused
    else:
        assert refused == ""
        assert "cannot be locked (this Python cannot lock files): let one run write there" in done.stderr


def test_only_one_module_asks_which_system_this_is() -> None:
    asking = {"fcntl", "msvcrt", "prctl", "register_at_fork", "killpg", "sched_setscheduler", "sched_getaffinity"}
    asking |= {"pthread_sigmask", "sigwait", "sigwaitinfo", "platform", "MAP_PRIVATE", "pread", "pwrite", "O_CLOEXEC"}
    asking |= {"O_NOFOLLOW", "O_DIRECT", "O_DIRECTORY", "O_NONBLOCK", "fsync", "getppid"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "sys", "signal", "mmap"):
                names = [node.attr]
            found |= {f"{path.name}: {name}" for name in names if name in asking and path.name != "host.py"}
    # `import platform` is the module that names the machine.
    assert found <= {"environment.py: platform"}


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "WINDOWS", True)


@pytest.mark.usefixtures("windows")
def test_windows_is_asked_again_to_replace_a_file_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, calls, pauses = os.replace, iter((PermissionError, PermissionError, None)), list[float]()

    def busy(source: Path, target: Path) -> None:
        if (error := next(calls)) is not None:
            raise error(errno.EACCES, "Access is denied")
        rename(source, target)

    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(time, "sleep", pauses.append)
    (tmp_path / "new").write_text("new")
    host.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new"
    assert pauses == list(host.RETRIES[:2])


@pytest.mark.usefixtures("windows")
def test_what_stays_in_use_is_an_error_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def busy(*paths: Path) -> None:
        raise PermissionError(errno.EACCES, "Access is denied")

    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(PermissionError):
        host.replace(tmp_path / "new", tmp_path / "old")
    assert pauses == list(host.RETRIES)


def test_elsewhere_a_refusal_to_replace_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(FileNotFoundError):
        host.replace(tmp_path / "new", tmp_path / "old")


def test_links_are_not_followed_where_the_system_has_no_flag_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "NO_LINKS", 0)
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="is a symbolic link, which is not followed"):
        open_regular(tmp_path / "link")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
    with open_regular(tmp_path / "link", follow_links=True) as file:
        assert file.read() == b"content"


@pytest.mark.parametrize("refused", [False, True])
def test_macos_flushes_the_cache_of_the_disk_too(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    class Fcntl:
        F_FULLFSYNC = 51

        @staticmethod
        def fcntl(descriptor: int, command: int) -> None:
            called.append(f"fcntl {command}")
            if refused:
                raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(host, "_fcntl", Fcntl)
    monkeypatch.setattr(os, "fsync", lambda descriptor: called.append("fsync"))
    host.sync(1)
    assert called == ["fcntl 51", *(["fsync"] if refused else [])]


def test_without_links_a_second_name_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise OSError(errno.EPERM, "A required privilege is not held by the client")

    monkeypatch.setattr(os, "symlink", refuse)
    (tmp_path / "file").write_bytes(b"content")
    host.second_name(tmp_path / "file", tmp_path / "name")
    assert (tmp_path / "name").read_bytes() == b"content"


def test_a_signal_that_the_system_lacks_is_a_problem_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGUSR1")
    problems: list[Any] = []
    assert read_signals({"signals": {"USR1": "save", "TERM": "save and stop"}}, problems) == {15: "save and stop"}
    assert [str(one) for one in problems] == ["signals.USR1: this system (linux) has no such signal: leave it out"]


WORKER = """
import os, signal, sys
from ignite_hooks.system import host
{prelude}
host.shield_from_group({{signal.SIGINT}})
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def worker(prelude: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WORKER.format(prelude=prelude)]
    with warm.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_without_a_known_sender_a_worker_obeys_the_second_signal() -> None:
    with worker("del signal.sigwaitinfo") as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        # Two that arrive before one is taken are one to the system.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert process.returncode == 0


def test_on_windows_a_worker_ignores_ctrl_c_alone() -> None:
    with worker("del signal.pthread_sigmask; host.WINDOWS = True") as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


SERVED = """
import json, os, signal, subprocess, sys, time
from torch.utils.data import DataLoader, Dataset
from ignite_hooks.model.loader_workers import ShieldedWorkers

class Data(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 3:
            time.sleep(600)  # it hangs
        return os.getpid()

if __name__ == "__main__":
    loader = DataLoader(Data(), num_workers=1, multiprocessing_context=sys.argv[1])
    with ShieldedWorkers([loader]):
        batches = iter(loader)
        worker = int(next(batches))
        process = batches._workers[0]
        # Of another process: as a scheduler sends it to all processes of the job.
        subprocess.run(["kill", "-INT", str(worker)], check=True)
        subprocess.run(["kill", "-TERM", str(worker)], check=True)
        rest = [int(next(batches)) for _ in range(2)]
        batches._shutdown_workers()
        process.join(60)
        print(json.dumps([rest == [worker] * 2, process.exitcode]))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_obey_their_run_alone_however_they_are_started(method: str, tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, str(tmp_path / "served.py"), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == [True, 0]


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
CHILD = """
import os, time
from ignite_hooks.system import host
host.LINUX, host.LOOKS_FOR_PARENT = False, 0.01
host.die_with(os.getppid())
print("ready", flush=True)
time.sleep(600)
"""


def test_a_process_ends_with_its_parent_where_the_system_does_not_see_to_it() -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        child.wait(60)


@pytest.mark.parametrize("has_groups", [True, False])
def test_a_command_is_killed_with_its_children(has_groups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_groups:
        monkeypatch.delattr(os, "killpg")
    command = ["sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        host.kill_session(process)
        assert process.wait(60) == -signal.SIGKILL
        child.wait(60)


@pytest.mark.parametrize("change", [None, "pread", "pwrite"])
def test_places_of_a_file_are_read_and_written(
    change: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [change] if change else []:
        monkeypatch.delattr(os, name)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | host.OPEN)
    try:
        assert host.write_at(descriptor, b"0123456789", 0) == 10
        assert host.write_at(descriptor, b"ab", 4) == 2
        assert host.read_at(descriptor, 4, 3) == b"3ab6"
    finally:
        os.close(descriptor)


def test_an_open_file_has_a_path_that_outlives_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as file:
        held = host.path_of_open(file.fileno(), tmp_path / "file")
        (tmp_path / "file").unlink()
        assert Path(held).read_bytes() == b"content"
    assert host.path_of_open(10_000, tmp_path / "file") == str(tmp_path / "file")


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert host.usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert host.usable_cores() == 1
