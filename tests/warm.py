"""Starts Python with torch and Ignite imported, in place of ``subprocess``: importing them takes seconds each time.

    warm.run([sys.executable, "-W", "ignore", "-c", code, "argument"], capture_output=True, text=True)

`run` and `Popen` are those of ``subprocess`` for commands of this Python: options ``-W``, ``-c`` and ``-m``, or a
script. For each process of tests one server, which has one thread and computes nothing, imports what belongs to others
and forks; a child imports all of this package itself. Only a real process shows what is read before the first line
(variables such as ``PYTHONHASHSEED``, which are refused here), what is imported and how long that takes, how its
command looks to others, and whether torch itself can be taken apart at the end. torch has one thread in a child, or as
many as its ``OMP_NUM_THREADS`` says.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.machinery
import inspect
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ALWAYS = ("torch", "ignite.engine", "ignite.metrics", "ignite.handlers", "numpy", "yaml", "psutil", "torch._dynamo")
"""What every server imports; the last is what the first optimizer of a process imports."""
LEARNS = ("sklearn.datasets",)
"""What a training on the digits imports besides, for `also`."""
TRACKERS = (
    *LEARNS,
    *("PIL.Image", "alembic", "attr", "click", "cryptography.x509", "fastapi", "google.protobuf.message", "hydra"),
    *("jsonschema", "jwt", "pandas", "pydantic", "requests", "sqlalchemy"),
)
"""What the packages of trackers import, but not they themselves: they read their settings then."""
READ_AT_THE_START = ("PYTHON", "LD_")
READ_LATER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_AT_START = dict(os.environ)
"""The variables before any test changed them: what the server imports may read some."""
_SAID = struct.Struct("!?i")
"""Whether a process has begun, with its number, or has ended, with its code."""
_LENGTH = struct.Struct("!I")
_C = ctypes.CDLL(None)
_others: dict[str, Any] = {}
CHILD, SERVER = b"c", b"s"


def run(
    command: list[str],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **settings: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command of this Python to its end, as `subprocess.run` does."""
    if input is not None:
        settings["stdin"] = subprocess.PIPE
    if capture_output:
        settings["stdout"] = settings["stderr"] = subprocess.PIPE
    with Popen(command, **settings) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A process that the server has forked.

    Args:
        command: As for `subprocess.Popen`.
        also: What the server is to have imported besides, of others: there is a server for each such set.
        settings: Those of `subprocess.Popen` for input, output, text, folder, variables and session.
    """

    def __init__(self, command: list[str], *, also: tuple[str, ...] = (), **settings: Any) -> None:
        self._also = also
        self._hearing = threading.Lock()
        super().__init__(command, **settings)

    def _execute_child(self, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(subprocess.Popen._execute_child).bind(self, *args, **kwargs).arguments
        refused = [name for name in ("preexec_fn", "pass_fds", "executable", "shell", "gids") if given[name]]
        assert not refused, f"{refused}: use subprocess"
        os.stat(given["cwd"] or ".")
        environment = dict(os.environ if given["env"] is None else given["env"])
        wanted = {
            "words": _words(given["args"]),
            "folder": os.path.abspath(given["cwd"] or "."),
            "environment": _checked(environment),
            "session": given["start_new_session"],
            "group": given["process_group"],
        }
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        standard = [number if end == -1 else end for number, end in enumerate(ends)]
        self._line = _server(os.getpid(), self._also).fork(wanted, standard)
        self._hear(None)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))

    def _hear(self, until: float | None) -> bool:
        """Return whether the server has said something before a time."""
        waiting = select.poll()
        waiting.register(self._line, select.POLLIN)
        left = None if until is None else max(0.0, until - time.monotonic()) * 1000
        if not waiting.poll(left):
            return False
        said = self._line.recv(_SAID.size, socket.MSG_WAITALL)
        assert said, "the process that forks is gone"
        begun, number = _SAID.unpack(said)
        if begun:
            self.pid = number
        else:
            self.returncode = number
            self._line.close()
        return True

    def _wait(self, timeout: float | None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        with self._hearing:
            if self.returncode is None and not self._hear(until):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._hearing.acquire(blocking=False):
            try:
                if self.returncode is None:
                    self._hear(0.0)
            finally:
                self._hearing.release()
        return self.returncode


def _words(command: Any) -> list[str]:
    words = [os.fspath(word) for word in command]
    return words[1:] if words and words[0] == sys.executable else words


def _checked(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables; refuse those that a process reads before its first line."""
    for name in {*environment, *_AT_START}:
        if name.startswith(READ_AT_THE_START) and not name.startswith(READ_LATER):
            assert environment.get(name) == _AT_START.get(name), f"{name} is read at the start: use subprocess"
    return environment


class Server:
    """The process that forks; it and all that it has forked end when the process that started it does."""

    def __init__(self, modules: tuple[str, ...] = ALWAYS) -> None:
        self._line, its = socket.socketpair()
        environment = {**_AT_START, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment.pop("PYTHONPATH", None)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(its.fileno()), str(os.getpid()), *modules],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )

    def fork(self, wanted: dict[str, Any], standard: list[int]) -> socket.socket:
        """Let a process begin, with three open files, and return the socket on which it says so."""
        own, its = socket.socketpair()
        with its:
            socket.send_fds(self._line, [SERVER if "also" in wanted else CHILD], [its.fileno(), *standard])
        said = json.dumps(wanted).encode()
        own.sendall(_LENGTH.pack(len(said)) + said)
        return own

    def with_more(self, modules: tuple[str, ...]) -> Server:
        """Return a server that this one has forked, which has imported more."""
        more = Server.__new__(Server)
        more._line = self.fork({"also": modules}, [0, 1, 2])
        return more

    def close(self) -> None:
        """End the process."""
        self._line.close()
        if hasattr(self, "_process"):
            self._process.wait()


@functools.cache
def _server(pid: int, also: tuple[str, ...]) -> Server:
    """Return the server of this process: one that was forked from it needs its own."""
    found = _server(pid, ()).with_more(also) if also else Server()
    # The last one first: a server waits for those that it has forked.
    atexit.register(lambda: found.close() if os.getpid() == pid else None)
    return found


def serve(line: socket.socket, client: int) -> list[str] | None:
    """Fork a process for each request until the tests end; return in each of them, with the words of its command.

    Args:
        line: Brings requests.
        client: A file that is ready once the process of the tests has ended, or -1.
    """
    gc.collect()
    gc.freeze()
    awake, wake = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C is for the tests, which then end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    alive: dict[int, socket.socket] = {}
    servers = []
    watched = [line, awake, *([client] if client >= 0 else [])]
    while client not in (ready := select.select(watched, [], [])[0]):
        if awake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(awake, 4096)
            for pid in list(alive):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    with alive.pop(pid) as its:
                        _say(its, False, os.waitstatus_to_exitcode(status))
        if line in ready:
            kind, files, _, _ = socket.recv_fds(line, 1, 4)
            if not kind:
                break
            its = socket.socket(fileno=files[0])
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for one in (awake, wake):
                    os.close(one)
                for other in (line, *alive.values()):
                    other.close()
                return _begin(its, files[1:], client)
            for file in files[1:]:
                os.close(file)
            if kind == SERVER:
                servers.append(pid)
                its.close()
            else:
                alive[pid] = its
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    for pid, its in alive.items():
        _say(its, False, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    for pid in servers:
        os.waitpid(pid, 0)
    return None


def _say(line: socket.socket, begun: bool, number: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        line.sendall(_SAID.pack(begun, number))


def _begin(line: socket.socket, standard: list[int], client: int) -> list[str] | None:
    """Be what was requested, in the process that was just forked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    (length,) = _LENGTH.unpack(line.recv(_LENGTH.size, socket.MSG_WAITALL))
    wanted = json.loads(line.recv(length, socket.MSG_WAITALL))
    for number, file in enumerate(standard):
        if "also" not in wanted:
            os.dup2(file, number)
        os.close(file)
    if "also" in wanted:
        _import(wanted["also"])
        return serve(line, client)
    if client >= 0:
        os.close(client)
    os.chdir(wanted["folder"])
    if wanted["session"]:
        os.setsid()
    elif wanted["group"] >= 0:
        os.setpgid(0, wanted["group"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    _forget()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with line:
        _say(line, True, os.getpid())
    return list(wanted["words"])


def _forget() -> None:
    """Have nothing of the server, and no random numbers that its other children have."""
    for name in [name for name in sys.modules if _root(name) == "tests"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        setattr(sys, name, _standard(getattr(sys, name), name, number))
        setattr(sys, f"__{name}__", getattr(sys, name))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    if threads != "1":
        sys.modules["torch"].set_num_threads(int(threads))


def _standard(before: Any, name: str, number: int) -> Any:
    """Return what Python makes of an open file when it starts."""
    mode = "w" if number else "r"
    unbuffered = before.write_through
    binary: Any = open(number, f"{mode}b", 0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
    getattr(binary, "raw", binary).name = f"<{name}>"
    text: Any = io.TextIOWrapper(
        binary,
        before.encoding,
        before.errors,
        newline="\n",
        line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
        write_through=unbuffered,
    )
    text.mode = mode
    return text


def _become(words: list[str]) -> None:
    """Run a command of Python as the main module."""
    sys.orig_argv = [sys.executable, *words]
    while words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        sys.warnoptions.append(words[1])
        words = words[2:]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, __loader__=importlib.machinery.BuiltinImporter)
    sys.argv = words
    try:
        if words[0] == "-m":
            sys.path[0] = os.getcwd()
            sys.argv = ["-m", *words[2:]]
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        elif words[0] == "-c":
            sys.path[0] = ""
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), main.__dict__)
        else:
            file = os.path.abspath(words[0])
            sys.path[0] = os.path.dirname(os.path.realpath(file))
            loader = importlib.machinery.SourceFileLoader("__main__", file)
            main.__dict__.update(__file__=file, __cached__=None, __loader__=loader)
            exec(compile(Path(file).read_bytes(), file, "exec"), main.__dict__)
    except BaseException as error:
        # It has not come through this file: for others the text of an error begins with their own.
        hook, trace = sys.excepthook, error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook = lambda kind, error, _: hook(kind, error.with_traceback(trace), trace)
        raise


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    _keep()


def main() -> None:
    """Fork on the socket that is the first word, until the process that is the second ends; import the others first."""
    # Runs after what modules have registered.
    atexit.register(_leave)
    _import(sys.argv[3:])
    words = serve(socket.socket(fileno=int(sys.argv[1])), _ends(int(sys.argv[2])))
    if words is not None:
        _become(words)


def _keep() -> None:
    """Have what was imported left alone at the end: taking it apart takes longer than most scripts."""
    _others.update((name, module) for name, module in sys.modules.items() if _root(name) not in sys.stdlib_module_names)
    with contextlib.suppress(AttributeError):
        # Before the destructors of the libraries, and after those of what a script loads itself.
        _C.on_exit(_C._exit, None)


def _leave() -> None:
    for name in _others.keys() & sys.modules.keys():
        del sys.modules[name]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_others))
    _C.fflush(None)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _ends(pid: int) -> int:
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1


if __name__ == "__main__":
    # Nothing of this module is in what the child takes for the main module.
    from tests import warm

    __name__ = "tests.warm"
    warm.main()
