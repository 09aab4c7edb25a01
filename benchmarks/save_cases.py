"""The cases of `save.py`: loops with saves and without, and what they are compared with."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from ignite.handlers import Checkpoint, DiskSaver
from peers import lightning_savers, torch_async_saver

from ignite_hooks import attach_hooks
from ignite_hooks.store import FolderStore, to_plain
from ignite_hooks.store.plain import size_in_bytes

Save = Callable[[], Callable[[], object] | None]
"""Saves, or begins to: then it returns what waits until the next step may change the weights."""

SPIN = """
while True:
    pass
"""

BUSY = """
import hashlib, time
data, end = bytes(1 << 22), time.perf_counter() + 0.7
while time.perf_counter() < end:
    hashlib.sha256(data)
"""


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def both(
    name: str, measured: Callable[[], tuple[float, float]], processor: dict[str, list[float]]
) -> Callable[[], float]:
    """Return a case that measures seconds, and keeps those of all processors under its name."""

    def run() -> float:
        seconds, computed = measured()
        processor.setdefault(name, []).append(computed)
        return seconds

    return run


def train_nothing(engine: Engine, batch: Any) -> None:
    """Do nothing, as the step of an engine that only exists to be passed to `Checkpoint`."""


class Least:
    """What no save beside the training can do without: copies as many bytes, and writes a file of them, by a thread.

    Args:
        size: The number of bytes.
        path: The file.
    """

    BLOCK = 1 << 22

    def __init__(self, size: int, path: Path) -> None:
        self._from, self._to = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
        self._path, self._thread = path, threading.Thread()

    def __call__(self) -> Callable[[], object]:
        """Begin; return what waits for the copy."""
        self.finish()
        copied = threading.Event()

        def work() -> None:
            self._to.copy_(self._from)
            copied.set()
            whole = memoryview(self._to.numpy())
            with self._path.open("wb", buffering=0) as file:
                for start in range(0, len(whole), self.BLOCK):
                    file.write(whole[start : start + self.BLOCK])
                os.fsync(file.fileno())

        self._thread = threading.Thread(target=work)
        self._thread.start()
        return copied.wait

    def finish(self) -> None:
        """Wait for the file."""
        if self._thread.ident is not None:
            self._thread.join()


class Training:
    """A stack of square layers whose weights and AdamW state have a given size."""

    def __init__(self, width: int, layers: int, iterations: int, milliseconds: float, folder: Path) -> None:
        self.iterations = iterations
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.store = FolderStore(folder / "ours").open()
        self._folder = folder
        self.input = torch.randn(1, width)
        self._calibrate(milliseconds / 1000)
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        self.steady = [*self.model.parameters(), *moments]
        self.size = size_in_bytes(to_plain(self.state()))
        self._from, self._to = (torch.ones(self.size, dtype=torch.uint8) for _ in range(2))
        self._ignite = self._ignite_saver(folder / "ignite")
        self._least = Least(self.size, folder / "least.bin")
        self._torch_async = torch_async_saver(self.state, folder / "torch_async")
        self._lightning = lightning_savers(self.state, folder / "lightning")
        self._saves = 0

    def _calibrate(self, seconds: float) -> None:
        width = self.input.shape[1]
        while self.seconds_per_iteration() < seconds:
            self.input = torch.randn(int(len(self.input) * 1.3) + 4, width)

    def seconds_per_iteration(self) -> float:
        """Return the best of a few measurements."""
        times = []
        for _ in range(4):
            start = time.perf_counter()
            self.compute()
            self.optimizer.step()
            times.append(time.perf_counter() - start)
        return min(times)

    def compute(self) -> None:
        """Forward and backward."""
        self.optimizer.zero_grad()
        self.model(self.input).square().mean().backward()

    def state(self) -> dict[str, Any]:
        """Return what is saved."""
        return {"state_dict": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def _ignite_saver(self, folder: Path) -> Callable[[], None]:
        engine, steps = Engine(train_nothing), itertools.count()

        saver = DiskSaver(str(folder), require_empty=False)
        objects = {"model": self.model, "optimizer": self.optimizer}
        handler = Checkpoint(objects, saver, n_saved=1, global_step_transform=lambda *_: next(steps))
        return lambda: handler(engine)

    def loop(self, save: Save) -> tuple[float, float]:
        """Return the seconds of a loop that saves after its second iteration, and those of all processors."""
        wait, began = None, time.process_time()
        start = time.perf_counter()
        for number in range(self.iterations):
            self.compute()
            if wait is not None:
                wait()
                wait = None
            self.optimizer.step()
            if number == 1:
                wait = save()
        seconds = time.perf_counter() - start
        # The time for finishing what is still being written is not counted, what it computes is.
        self._finish(save)
        return seconds, time.process_time() - began

    def _finish(self, save: Save) -> None:
        self.store.newest()
        finish = getattr(save, "finish", None)
        if finish is not None:
            finish()

    def _begin(self, steady: list[torch.Tensor]) -> Callable[[], object]:
        self._saves += 1
        given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": self._saves}
        return self.store.begin("last.pth", self.state(), steady=steady, **given).wait_copied

    def _save(self) -> None:
        self._saves += 1
        self.store.save("last.pth", self.state(), kind="last", epoch=0, iteration=self._saves)

    def _torch_save(self) -> None:
        path = self._folder / "torch.pth"
        torch.save(self.state(), path)
        for each in (path, self._folder):
            descriptor = os.open(each, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def copy(self) -> float:
        """Return the seconds of copying as many bytes into allocated memory."""
        return seconds_of(lambda: self._to.copy_(self._from))

    def cases(self, label: str, processor: dict[str, list[float]]) -> dict[str, Callable[[], float]]:
        """Return everything to be measured with this training, after every saver has saved once."""
        saves: dict[str, Save] = {
            "no save": lambda: None,
            "hidden": lambda: self._begin(self.steady),
            "at once": lambda: self._begin([]),
            "synchronous": self._save,
            "torch.save and fsync": self._torch_save,
            "Ignite": self._ignite,
            "copy and write": self._least,
            "torch async_save": self._torch_async,
            **self._lightning,
        }
        for save in saves.values():
            wait = save()
            if wait is not None:
                wait()
            self._finish(save)
        named = {f"{label}, {name}": save for name, save in saves.items()}
        cases = {name: both(name, partial(self.loop, save), processor) for name, save in named.items()}
        return {**cases, f"{label}, memcpy": lambda: min(self.copy() for _ in range(3))}


class Independent:
    """A loop that does not wait for its saves but computes.

    Args:
        model: Whose weights and momenta are the state.
        optimizer: Its optimizer.
        loss: Computes what is minimised.
        iterations: How many there are; the first save counts as the others do.
        each: After how many iterations there is a save.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[], torch.Tensor],
        iterations: int,
        each: int,
    ) -> None:
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.iterations, self.each = iterations, each
        self._least: Least | None = None

    @classmethod
    def wide(cls, width: int, iterations: int) -> Independent:
        """Return 12 square layers with momenta: 100 MB of state where they are 1,024 wide."""
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(12)))
        batch, momentum = torch.randn(96, width), torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        return cls(model, momentum, lambda: model(batch).square().mean(), iterations, 8)

    @classmethod
    def many(cls, parameters: int, iterations: int) -> Independent:
        """Return as many small parameters with AdamW, which has three tensors more for each."""
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(16, 16)) for _ in range(parameters)])
        adam = torch.optim.AdamW(model.parameters())
        return cls(model, adam, lambda: torch.stack(list(model)).square().mean(), iterations, 20)

    def size(self) -> int:
        """Return the bytes of the state after a first step."""
        self.step()
        return size_in_bytes(to_plain({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}))

    def step(self) -> None:
        """Compute one iteration."""
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def run(self, folder: Path, saver: str) -> tuple[float, float]:
        """Return the seconds of a loop on one thread, and those of all processors until its saves have ended.

        Args:
            folder: Where files go.
            saver: Who saves: nobody, ours beside the training, ours synchronously, torch, or a thread that only copies
                and writes.
        """
        stamps: list[float] = []
        if saver == "copy and write" and self._least is None:
            self._least = Least(self.size(), folder.parent / "least.bin")

        def step(_engine: Engine, number: int) -> None:
            stamps.append(time.perf_counter())
            self.step()
            if number % self.each != self.each - 1:
                return
            if saver == "torch":
                state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
                torch.save(state, folder / "torch.pth")
            elif saver == "copy and write":
                self._least()

        trainer = Engine(step)
        if saver.startswith("ours"):
            settings = {
                "interval": self.each,
                "by_epoch": False,
                "max_keep_ckpts": 1,
                "async_save": saver == "ours, hidden",
            }
            hooks = {"hooks": [{"type": "CheckpointHook", "save_best": False, "save_last": False, **settings}]}
            attach_hooks(trainer, hooks, model=self.model, optimizer=self.optimizer, work_dir=folder)
        threads, began = torch.get_num_threads(), time.process_time()
        torch.set_num_threads(1)
        try:
            trainer.run(range(self.iterations), max_epochs=1)
        finally:
            torch.set_num_threads(threads)
            if self._least is not None:
                self._least.finish()
        return stamps[-1] - stamps[0], time.process_time() - began

    def case(
        self, name: str, folder: Path, processor: dict[str, list[float]], busy: bool = False
    ) -> Callable[[], float]:
        """Return the case whose last words are who saves.

        Args:
            name: Of the case.
            folder: Gets a folder for each run.
            processor: Where the seconds of all processors are kept.
            busy: Whether a process on each core computes at the same time.
        """
        saver = name.split(", ", 2)[2]

        def measured() -> tuple[float, float]:
            others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range((os.cpu_count() or 1) * busy)]
            with tempfile.TemporaryDirectory(dir=folder) as here:
                try:
                    return self.run(Path(here), saver)
                finally:
                    for other in others:
                        other.kill()
                        other.wait()

        return both(name, measured, processor)


def independent_cases(
    folder: Path, processor: dict[str, list[float]], iterations: int, width: int
) -> dict[str, Callable[[], float]]:
    """Return loops that do not wait for a save, on idle cores and beside a process on each core."""
    loop = Independent.wide(width, iterations)
    source, target = (torch.ones(loop.size(), dtype=torch.uint8) for _ in range(2))
    savers = ("nobody", "ours, hidden", "copy and write", "ours, synchronous", "torch")
    idle = [f"loop, idle, {saver}" for saver in savers]
    busy = [f"loop, busy, {saver}" for saver in ("nobody", "ours, hidden", "torch")]
    return {
        **{name: loop.case(name, folder, processor) for name in idle},
        **{name: loop.case(name, folder, processor, busy=True) for name in busy},
        "loop, memcpy": lambda: min(seconds_of(lambda: target.copy_(source)) for _ in range(3)),
    }


def many_cases(
    folder: Path, processor: dict[str, list[float]], iterations: int, parameters: int
) -> dict[str, Callable[[], float]]:
    """Return loops with saves of many small tensors, and the processor time of single ones."""
    loop = Independent.many(parameters, iterations)
    loop.step()
    store = FolderStore(folder / "many").open()
    given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": 1}
    saves: dict[str, Callable[[dict[str, Any]], object]] = {
        "hidden": lambda state: store.begin("a.pth", state, **given).wait(),
        "synchronous": lambda state: store.save("a.pth", state, **given),
        "torch": lambda state: torch.save(state, folder / "many.pth"),
    }

    def seconds(save: Callable[[dict[str, Any]], object]) -> float:
        start = time.process_time()
        save({"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()})
        return time.process_time() - start

    named = [f"many, loop, {saver}" for saver in ("nobody", "ours, hidden", "ours, synchronous", "torch")]
    cases = {name: loop.case(name, folder, processor) for name in named}
    return {**cases, **{f"many, {name}": partial(seconds, save) for name, save in saves.items()}}


def end_cases(folder: Path, megabytes: int) -> dict[str, Callable[[], float]]:
    """Return how long the end of a run waits for a save that has just begun, its copy, and a save that needs none."""
    state = {str(number): torch.ones(megabytes * 2500) for number in range(100)}
    store = FolderStore(folder / "end").open()
    given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": 1}

    def copied() -> float:
        start = time.perf_counter()
        saving = store.begin("a.pth", state, **given)
        saving.wait_copied()
        seconds = time.perf_counter() - start
        saving.wait()
        return seconds

    return {
        "end, waits": lambda: seconds_of(lambda: store.begin("a.pth", state, **given).wait()),
        "end, writes": lambda: seconds_of(lambda: store.save("a.pth", state, **given)),
        "end, copies": copied,
    }


def spin() -> int:
    """Spend about a millisecond in the interpreter."""
    total = 0
    for number in range(20_000):
        total += number & 3
    return total


def speed_until(over: Callable[[], bool]) -> float:
    """Return the seconds per turn of a Python loop until something is over."""
    turns, start = 0, time.perf_counter()
    while not over():
        spin()
        turns += 1
    return (time.perf_counter() - start) / max(turns, 1)


def python_cases(folder: Path, megabytes: int) -> dict[str, Callable[[], float]]:
    """Return a Python-bound loop alone, and while a state is written."""
    state = {"state_dict": {str(number): torch.ones(megabytes * 2500) for number in range(100)}}
    store = FolderStore(folder / "python").open()

    def alone() -> float:
        end = time.perf_counter() + 0.5
        return speed_until(lambda: time.perf_counter() > end)

    def ours() -> float:
        return speed_until(store.begin("last.pth", state, kind="last", epoch=0, iteration=1).done)

    def beside() -> float:
        process = subprocess.Popen([sys.executable, "-c", BUSY])
        try:
            return speed_until(lambda: process.poll() is not None)
        finally:
            process.wait()

    def theirs() -> float:
        thread = threading.Thread(target=torch.save, args=(state, folder / "theirs.pth"))
        thread.start()
        return speed_until(lambda: not thread.is_alive())

    return {"Python alone": alone, "Python, other process": beside, "Python, ours": ours, "Python, torch.save": theirs}
