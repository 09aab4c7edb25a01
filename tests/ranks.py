"""Runs a function in several connected processes, as torchrun does, and returns their results.

Importing torch takes seconds, so one process without threads imports everything and forks the ranks.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import ignite.distributed as idist
import torch

ROOT = Path(__file__).parents[1]
SECONDS = 180


class Server:
    """The process that forks ranks; it and all its ranks end when the process that started it does."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.ranks"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._heard = b""
        self._codes: dict[int, int] = {}

    def fork(self, **wanted: Any) -> Rank:
        """Start a rank and return it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        while "code" in (said := self._listen(time.monotonic() + SECONDS)):
            self._codes[said["pid"]] = said["code"]
        return Rank(self, said["pid"])

    def code_of(self, pid: int, until: float) -> int:
        """Return the exit code of a process; raise a TimeoutError if it has not ended in time."""
        while pid not in self._codes:
            said = self._listen(until)
            self._codes[said["pid"]] = said["code"]
        return self._codes[pid]

    def _listen(self, until: float) -> dict[str, int]:
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            words = os.read(self._process.stdout.fileno(), 65536)
            assert words, "the process that forks ranks is gone"
            self._heard += words
        line, _, self._heard = self._heard.partition(b"\n")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@functools.cache
def server() -> Server:
    """Return the server, one for all tests."""
    import atexit

    found = Server()
    atexit.register(found.close)
    return found


class Rank:
    """A process, with as much of `subprocess.Popen` as tests need."""

    def __init__(self, of: Server, pid: int) -> None:
        self._of, self.pid = of, pid

    def wait(self, timeout: float = SECONDS) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self._of.code_of(self.pid, time.monotonic() + timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout) from None

    def poll(self) -> int | None:
        """Return the exit code, if the rank has ended."""
        try:
            return self._of.code_of(self.pid, 0.0)
        except TimeoutError:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the rank has ended: another process may have its number by now."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)


class Ranks:
    """Started processes. Each writes its result as JSON, and prints to a separate file."""

    def __init__(self, function: Callable[..., Any], *args: Any, ranks: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        # The store is here, on a port that the system chose, and outlives every rank: no port is guessed, and no rank
        # has to wait for another.
        self.meeting = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes = [self._start(function, args, rank, ranks) for rank in range(ranks)]

    def _start(self, function: Callable[..., Any], args: tuple[Any, ...], rank: int, ranks: int) -> Rank:
        world = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.meeting.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
        # Here, because a rank may be killed before it has done anything.
        self.printed_by(rank).touch()
        return server().fork(
            place=f"{function.__module__}:{function.__qualname__}",
            arguments=args,
            result=str(self.result_of(rank)),
            printed=str(self.printed_by(rank)),
            environment={**os.environ, **world},
        )

    def result_of(self, rank: int) -> Path:
        return self.folder / f"{rank}.json"

    def printed_by(self, rank: int) -> Path:
        return self.folder / f"{rank}.txt"

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        """End the remaining processes, and delete their files."""
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self, seconds: float = SECONDS) -> list[int]:
        """Return the exit codes once every process has ended; kill those that do not end in time."""
        until = time.monotonic() + seconds
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        return [process.wait() for process in self.processes]

    def results(self, seconds: float = SECONDS) -> list[Any]:
        """Return the result of each rank; raise an error with everything they printed if one failed."""
        codes = self.wait(seconds)
        try:
            if any(codes):
                printed = "\n".join(
                    f"--- rank {r}, exit {c}\n{self.printed_by(r).read_text()}" for r, c in enumerate(codes)
                )
                raise AssertionError(printed)
            return [json.loads(self.result_of(rank).read_text()) for rank in range(len(codes))]
        finally:
            shutil.rmtree(self.folder)


def run_ranks(function: Callable[..., Any], *args: Any, ranks: int = 2) -> list[Any]:
    """Return the results of the function in several processes. Arguments and results are plain data."""
    return Ranks(function, *args, ranks=ranks).results()


def serve() -> None:
    """Fork the ranks requested on stdin, and report on stdout how each has ended."""
    warm()
    # What a collection in a rank only looks at would be copied for it.
    gc.collect()
    gc.freeze()
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    alive: set[int] = set()
    asked = b""
    while True:
        ready, _, _ = select.select([0, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            for pid in list(alive):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    alive.remove(pid)
                    say(pid=pid, code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            words = os.read(0, 65536)
            if not words:
                break
            asked += words
            while b"\n" in asked:
                line, _, asked = asked.partition(b"\n")
                pid = os.fork()
                if not pid:
                    begin(**json.loads(line))
                alive.add(pid)
                say(pid=pid)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def say(**words: int) -> None:
    """One line."""
    os.write(1, json.dumps(words).encode() + b"\n")


def begin(place: str, arguments: list[Any], result: str, printed: str, environment: dict[str, str]) -> NoReturn:
    """Run a rank in the process that was just forked."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    code = 0
    try:
        idist.initialize("gloo")
        module, _, name = place.partition(":")
        returned = getattr(importlib.import_module(module), name)(*arguments)
        Path(result).write_text(json.dumps(returned), encoding="utf-8")
        idist.finalize()
    except BaseException:
        code = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads may still hold tensors, and an interpreter that is shutting down aborts when they release them:
    # https://github.com/pytorch/pytorch/pull/179291. Everything has been reported by now.
    os._exit(code)


def warm() -> None:
    """Import what ranks use, and what the first step of an optimizer imports, without starting a thread."""
    torch.set_num_threads(1)
    hooks = (f"ignite_hooks.hooks.{name}_hook" for name in ("checkpoint", "ema", "eval"))
    ours = ("ignite_hooks.attach", "ignite_hooks.testing", "ignite_hooks.store.sharded.saving", *hooks, "tests.tools")
    others = ("ignite.metrics", "psutil", "pydantic.type_adapter", "pytest")
    for module in ("torch.distributed.fsdp", "torch.distributed.checkpoint", *others, *ours):
        importlib.import_module(module)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()


if __name__ == "__main__":
    serve()
