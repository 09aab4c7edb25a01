"""Runs a function in several processes that know of each other, as torchrun does, and brings back their results."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch

ROOT = Path(__file__).parents[1]
SECONDS = 180


class Ranks:
    """Processes that have been started. Each writes its result as JSON, and what it prints to a file of its own."""

    def __init__(self, function: Callable[..., Any], *args: Any, ranks: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        # The store lives here, on a port the system chose, and outlives every rank: no port is guessed, and no rank
        # has to stay for the sake of another.
        self.meeting = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes = [self._start(function, args, rank, ranks) for rank in range(ranks)]

    def _start(self, function: Callable[..., Any], args: tuple[Any, ...], rank: int, ranks: int) -> Any:
        place = f"{function.__module__}:{function.__qualname__}"
        command = [sys.executable, "-m", "tests.ranks", place, json.dumps(args), str(self.result_of(rank))]
        world = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.meeting.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
        with self.printed_by(rank).open("wb") as output:
            return subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **world}, stdout=output, stderr=subprocess.STDOUT
            )

    def result_of(self, rank: int) -> Path:
        return self.folder / f"{rank}.json"

    def printed_by(self, rank: int) -> Path:
        return self.folder / f"{rank}.txt"

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        """End what is left of them, and leave nothing behind."""
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self, seconds: float = SECONDS) -> list[int]:
        """The exit codes, once every process has ended; one that does not in time is killed."""
        until = time.monotonic() + seconds
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        return [process.wait() for process in self.processes]

    def results(self, seconds: float = SECONDS) -> list[Any]:
        """What each rank returned; an error with all they printed where one failed."""
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
    """What the function returned in each of several processes. Arguments and results are plain data."""
    return Ranks(function, *args, ranks=ranks).results()


def main() -> None:
    place, arguments, result = sys.argv[1:]
    torch.set_num_threads(1)
    code = 0
    try:
        idist.initialize("gloo")
        module, _, name = place.partition(":")
        returned = getattr(importlib.import_module(module), name)(*json.loads(arguments))
        Path(result).write_text(json.dumps(returned), encoding="utf-8")
        idist.finalize()
    except BaseException:
        code = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads may still hold tensors, and an interpreter that is going away aborts when they let go of them:
    # https://github.com/pytorch/pytorch/pull/179291. All that is to be said has been said by now.
    os._exit(code)


if __name__ == "__main__":
    main()
