from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm

ROOT = Path(__file__).parents[1]

WHO = """
import atexit, json, os, pickle, sys, threading, warnings

class Here:
    pass

atexit.register(print, "at the end", flush=True)
threading.Thread(target=lambda: (threading.main_thread().join(), print("the thread has ended"))).start()
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "orig": sys.orig_argv[1:], "path": sys.path, "cwd": os.getcwd(), "environment": dict(os.environ),
    "name": __name__, "file": globals().get("__file__"), "package": __package__, "globals": sorted(globals()),
    "spec": getattr(__spec__, "name", None), "loader": str(__loader__).partition(" object at")[0],
    "pickled": type(pickle.loads(pickle.dumps(Here()))) is main.Here, "stdin": sys.stdin.read(),
    "streams": [(s.name, s.mode, s.encoding, s.errors, s.line_buffering) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "same": sys.stdout is sys.__stdout__, "hook": sys.excepthook is sys.__excepthook__, "warns": sys.warnoptions,
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "files": sorted(os.listdir(f"/proc/self/fd")),
}))
warnings.warn("a warning")
sys.stderr.write("said\\n")
print("not yet flushed")
"""
FAULTS = """
import os, signal, sys
end = sys.argv[1]
print("begun", flush=end == "SIGTERM")
def inner():
    try:
        int("x")
    except ValueError as error:
        raise KeyError("y") from error
if end == "error":
    inner()
elif end == "hook":
    sys.excepthook = lambda kind, error, trace: print(kind.__name__, error, trace.tb_frame.f_code.co_name)
    inner()
elif end == "text":
    sys.exit("a text")
elif end == "3":
    raise SystemExit(3)
elif end == "syntax":
    exec("1 +")
else:
    os.kill(os.getpid(), getattr(signal, end))
"""


def both(command: list[str], **settings: Any) -> list[tuple[int, str, str]]:
    """Return code, output and errors of a plain process and of a warm one."""
    done = [
        start([sys.executable, *command], capture_output=True, text=True, **settings)
        for start in (subprocess.run, warm.run)
    ]
    return [(one.returncode, one.stdout, one.stderr) for one in done]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules."""
    for name, code in (("who", WHO), ("faults", FAULTS)):
        (tmp_path / f"{name}.py").write_text(code)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(WHO)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["who.py", "a", "-W"], ["-c", WHO, "b"], ["-W", "ignore", "-m", "who", "c d"], ["-m", "package"]],
    ids=["script", "code", "module", "package"],
)
def test_a_process_finds_all_as_in_a_plain_one(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "NEW": "ä\udcff", "PYTHONPATH": f"{folder}:/nowhere"}
    settings = {"cwd": folder, "env": environment, "input": "typed\nin", "start_new_session": command[0] == "-c"}
    (code, said, told), (warm_code, warm_said, warm_told) = both(command, **settings)
    plain, ours = (json.loads(said.split("\n")[0]) for said in (said, warm_said))
    # A folder that is being listed is open.
    assert len(ours["files"]) == 4
    assert ours == {**plain, "files": ours["files"]}
    assert ours["pickled"]
    assert (
        warm_said.split("\n")[1:]
        == said.split("\n")[1:]
        == ["not yet flushed", "the thread has ended", "at the end", ""]
    )
    assert (warm_code, warm_told) == (code, told)


@pytest.mark.parametrize("end", ["error", "hook", "text", "3", "syntax", "SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("kind", ["script", "module"])
def test_it_ends_as_a_plain_process(kind: str, end: str, folder: Path) -> None:
    plain, ours = both([*(["-m", "faults"] if kind == "module" else ["faults.py"]), end], cwd=folder)
    assert ours == plain
    assert ours[0] == {"text": 1, "3": 3}.get(end, -getattr(signal, end, 1) if end.startswith("SIG") else 1)


def test_a_command_that_is_not_there_fails_as_a_plain_one(tmp_path: Path) -> None:
    plain, ours = both(["-m", "nothing_there"], cwd=tmp_path)
    assert ours == plain
    for start in (subprocess.run, warm.run):
        with pytest.raises(FileNotFoundError):
            start([sys.executable, "-c", ""], cwd=tmp_path / "nowhere")


LIVES = """
import signal, sys
if sys.argv[1] == "handles":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize(
    ("does", "number", "code"),
    [("handles", signal.SIGTERM, 7), ("dies", signal.SIGTERM, -15), ("dies", signal.SIGINT, -2), ("dies", 9, -9)],
)
def test_signals_reach_a_running_process(does: str, number: int, code: int) -> None:
    with warm.Popen(["-c", LIVES, does], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.0)
        process.send_signal(number)
        assert process.wait() == code == process.poll()
        process.kill()


def test_overrunning_processes_are_killed_and_errors_are_raised() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        warm.run(["-c", LIVES, "dies"], timeout=0.1, stdout=subprocess.PIPE)
    assert caught.value.output in (None, b"ready\n")
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        warm.run(["-c", "raise SystemExit(3)"], check=True)


def test_output_goes_to_files_in_the_order_in_which_it_is_written(tmp_path: Path) -> None:
    code = "import os, sys; print(1, flush=True); print(2, file=sys.stderr); os.write(1, b'3')"
    with (tmp_path / "log").open("w") as log:
        warm.run(["-c", code], stdout=log, stderr=subprocess.STDOUT, check=True)
    assert (tmp_path / "log").read_text() == "1\n2\n3"


DRAWS = """
import random, sys, threading, os, signal, warnings
before = set(sys.modules)
import numpy, torch, ignite.engine
print(random.random(), numpy.random.rand(), torch.initial_seed())
ours = {"ignite_hooks", "tests"} & {name.partition(".")[0] for name in before}
print("torch" in before, ours, threading.active_count(), len(os.listdir("/proc/self/task")))
print(signal.getsignal(signal.SIGCHLD), signal.getsignal(signal.SIGINT) is signal.default_int_handler)

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return Squares, index * index

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Squares(), num_workers=2, multiprocessing_context="fork", collate_fn=lambda pairs: pairs
    )
    print([square for ((kind, square),) in loader], torch.get_num_threads())
"""


def test_imports_are_there_and_random_numbers_are_fresh() -> None:
    first, second = (
        warm.run(["-c", DRAWS], capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
        for environment in (None, {**os.environ, "OMP_NUM_THREADS": "2"})
    )
    assert first[1:-1] == ["True set() 1 1", "0 True"]
    assert (first[-1], second[-1]) == ("[0, 1, 4, 9] 1", "[0, 1, 4, 9] 2")
    (*drawn, seed), (*drawn_again, seed_again) = first[0].split(), second[0].split()
    assert not set(drawn) & set(drawn_again)
    assert seed == seed_again


def test_a_server_may_have_imported_more() -> None:
    code = "import sys; print('xml.dom.pulldom' in sys.modules, 'torch' in sys.modules)"
    sets = ((), ("xml.dom.pulldom", "nowhere"), ())
    said = [warm.run(["-c", code], capture_output=True, text=True, also=also).stdout for also in sets]
    assert said == ["False True\n", "True True\n", "False True\n"]


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD"])
def test_variables_that_are_read_at_the_start_are_refused(name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name} is read at the start: use subprocess"):
        warm.run(["-c", ""], env={**os.environ, name: "0"})


def test_what_a_command_has_set_in_this_process_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH_CPP_LOG_LEVEL", "KMP_INIT_AT_FORK", "KINETO_LOG_LEVEL"):
        monkeypatch.setenv(name, "1")
    warm.run(["-c", "import os; os.environ['KMP_INIT_AT_FORK']"], check=True)


def test_no_file_stays_open_here() -> None:
    folder = Path("/proc/self/fd")
    warm.run(["-c", ""])
    before = len(list(folder.iterdir()))
    for _ in range(3):
        warm.run(["-c", "print(input())"], capture_output=True, input=b"x")
    assert len(list(folder.iterdir())) == before


TESTS = """
import os, sys, signal
from tests import warm
server = warm.Server(())
warm._server = lambda *_: server
if sys.argv[1] == "forked":
    # Has the socket too, and lives on.
    if os.fork() == 0:
        for number in (0, 1, 2):
            os.close(number)
        signal.pause()
child = warm.Popen(["-c", "import signal; print('begun', flush=True); signal.pause()"], stdout=warm.subprocess.PIPE)
print(child.stdout.readline().decode(), end="", flush=True)
if sys.argv[1] == "ends":
    server.close()
else:
    signal.pause()
"""


@pytest.mark.parametrize("how", ["ends", "killed", "forked"])
def test_a_server_and_its_processes_end_with_the_tests(how: str) -> None:
    # The pipe is at its end once no process has it.
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([sys.executable, "-c", TESTS, how], cwd=ROOT, start_new_session=True, **pipe) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"begun\n"
        if how != "ends":
            tests.kill()
        tests.stdout.read()
        if how == "forked":
            os.killpg(tests.pid, signal.SIGKILL)
