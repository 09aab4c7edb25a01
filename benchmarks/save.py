"""What a save costs the training loop, beside the same bytes copied into memory that is already there.

A loop of real iterations (forward, backward, AdamW) runs with one save in its middle and without one, in turn; the
difference is what the save takes from the loop. The file may be finished later: that is waited for outside the time.
Every store has saved once before. Torch computes with all cores but one, which is left to the
thread that copies and writes. A loop in Python is compared with itself, alone and beside another process that computes:
on a machine whose cores are in use only the second ratio says what the interpreter lock costs.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from ignite.handlers import Checkpoint, DiskSaver
from measure import Chart, Figure, Result, Rounds, Spread, interleaved, script
from peers import lightning_savers, torch_async_saver

from ignite_hooks import attach_hooks
from ignite_hooks.store import FolderStore, to_plain
from ignite_hooks.store.plain import size_in_bytes

MOST_SYNCHRONOUS = 1.1
"""Times `torch.save` with fsync of file and folder: a save that a crash of the machine does not undo."""
MOST_PROCESSOR = 1.0
MOST_IN_A_LOOP = 2.0
MOST_MANY = 1.0
MOST_AT_END = 1.2
MOST_HIDDEN = 1.0
MOST_AT_ONCE = 1.5
LEAST_PYTHON = 0.9
MOST_MEMORY_MB = 30.0

WHY = (
    "the copy and the writing need a core beside those of the loop; where there is none, what they compute comes off "
    "the loop, as does another process that only computes (see the loops in Python)"
)

SPIN = """
while True:
    pass
"""

PEAK = """
import sys, torch
from ignite_hooks.store import FolderStore
def peak():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
given = dict(kind="last", epoch=0, iteration=1)
with FolderStore(sys.argv[1]) as store:
    store.save("warm.pth", {"w": torch.ones(1000)}, **given)
    state = {str(i): torch.ones(2_500_000) for i in range(20)}
    before = peak()
    store.save("a.pth", state, **given)
    print(peak() - before)
"""


def train_nothing(engine: Engine, batch: Any) -> None:
    """Do nothing, as the step of an engine that only exists to be passed to `Checkpoint`."""


BUSY = """
import hashlib, time
data, end = bytes(1 << 22), time.perf_counter() + 0.7
while time.perf_counter() < end:
    hashlib.sha256(data)
"""


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

    def loop(self, save: Callable[[], Callable[[], object] | None]) -> float:
        """Return the seconds of a loop that saves after its second iteration."""
        wait = None
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
        # The time for finishing what is still being written is not counted.
        self.store.newest()
        finish = getattr(save, "finish", None)
        if finish is not None:
            finish()
        return seconds

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
        start = time.perf_counter()
        self._to.copy_(self._from)
        return time.perf_counter() - start

    def cases(self, label: str) -> dict[str, Callable[[], float]]:
        """Return everything to be measured with this training."""
        saves: dict[str, Callable[[], Callable[[], object] | None]] = {
            "no save": lambda: None,
            "hidden": lambda: self._begin(self.steady),
            "at once": lambda: self._begin([]),
            "synchronous": self._save,
            "torch.save and fsync": self._torch_save,
            "Ignite": self._ignite,
            "torch async_save": self._torch_async,
            **self._lightning,
        }
        cases = {f"{label}, {name}": (lambda save=save: self.loop(save)) for name, save in saves.items()}
        return {**cases, f"{label}, memcpy": lambda: min(self.copy() for _ in range(3))}


def train_independently(folder: Path, saver: str, iterations: int, width: int) -> tuple[float, float]:
    """Return the seconds of a loop on one thread with a save each 8 iterations, and those of all processors.

    Args:
        folder: where files go.
        saver: who saves: nobody, ours beside the training, ours synchronously, or torch.
        iterations: how many there are; the first save counts as the others do.
        width: of the 12 layers, whose weights and momenta are the state.
    """
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    batch, stamps = torch.randn(96, width), []

    def step(_engine: Engine, number: int) -> None:
        stamps.append(time.perf_counter())
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if saver == "torch" and number % 8 == 7:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "torch.pth")

    trainer = Engine(step)
    if saver.startswith("ours"):
        settings = {"interval": 8, "by_epoch": False, "max_keep_ckpts": 1, "async_save": saver == "ours, hidden"}
        hooks = {"hooks": [{"type": "CheckpointHook", "save_best": False, "save_last": False, **settings}]}
        attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=folder)
    threads, began = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(1)
    try:
        trainer.run(range(iterations), max_epochs=1)
    finally:
        torch.set_num_threads(threads)
    return stamps[-1] - stamps[0], time.process_time() - began


def independent_cases(folder: Path, iterations: int, width: int) -> dict[str, Callable[[], float]]:
    """Return loops that do not wait for a save but compute, on idle cores and beside a process on each core."""
    processor: dict[str, float] = {}

    def run(saver: str, busy: bool) -> float:
        others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range((os.cpu_count() or 1) * busy)]
        with tempfile.TemporaryDirectory(dir=folder) as here:
            try:
                seconds, processor[saver] = train_independently(Path(here), saver, iterations, width)
            finally:
                for other in others:
                    other.kill()
                    other.wait()
        return seconds

    cases: dict[str, Callable[[], float]] = {}
    for where, busy in (("idle", False), ("busy", True)):
        for saver in ("nobody", "ours, hidden", "ours, synchronous", "torch"):
            name = f"loop, {where}, {saver}"
            cases[name] = lambda saver=saver, busy=busy: run(saver, busy)  # type: ignore[misc]

    def measured(saver: str) -> float:
        run(saver, busy=False)
        return processor[saver]

    for saver in ("nobody", "ours, hidden", "torch"):
        cases[f"loop, processor, {saver}"] = lambda saver=saver: measured(saver)  # type: ignore[misc]
    source, target = (torch.ones(12 * width * (width + 1) * 8, dtype=torch.uint8) for _ in range(2))

    def copy() -> float:
        start = time.perf_counter()
        target.copy_(source)
        return time.perf_counter() - start

    return {**cases, "loop, memcpy": lambda: min(copy() for _ in range(3))}


def many_cases(folder: Path, parameters: int) -> dict[str, Callable[[], float]]:
    """Return the processor time of saves of many small tensors, which the interpreter lock makes that of the loop."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(16, 16)) for _ in range(parameters)])
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    store = FolderStore(folder / "many").open()
    given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": 1}
    saves: dict[str, Callable[[dict[str, Any]], object]] = {
        "hidden": lambda state: store.begin("a.pth", state, **given).wait(),
        "synchronous": lambda state: store.save("a.pth", state, **given),
        "torch": lambda state: torch.save(state, folder / "many.pth"),
    }

    def seconds(save: Callable[[dict[str, Any]], object]) -> float:
        start = time.process_time()
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        return time.process_time() - start

    return {f"many, {name}": (lambda save=save: seconds(save)) for name, save in saves.items()}


def end_cases(folder: Path, megabytes: int) -> dict[str, Callable[[], float]]:
    """Return how long the end of a run waits for a save that has just begun, and how long the save alone takes."""
    state = {str(number): torch.ones(megabytes * 2500) for number in range(100)}
    store = FolderStore(folder / "end").open()
    given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": 1}

    def seconds(save: Callable[[], object]) -> float:
        start = time.perf_counter()
        save()
        return time.perf_counter() - start

    return {
        "end, waits": lambda: seconds(lambda: store.begin("a.pth", state, **given).wait()),
        "end, writes": lambda: seconds(lambda: store.save("a.pth", state, **given)),
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


def peak_growth() -> float:
    """Return the megabytes that a synchronous save of 200 MB adds to the peak of a new process."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", PEAK, folder], check=True, capture_output=True, text=True)
    return float(done.stdout)


def all_figures(rounds: Rounds, labels: list[str], memory: Spread, saves: int) -> list[Figure]:
    """Return the numbers with their targets."""

    def lost(label: str, name: str) -> Spread:
        cases = [f"{label}, {case}" for case in (name, "no save", "memcpy")]
        return rounds.combined(lambda with_save, without, copy: (with_save - without) / copy, *cases)

    def slower(case: str, than: str = "Python alone") -> Spread:
        return rounds.combined(lambda a, b: a / b, case, than)

    def against(case: str, other: str, without: str) -> Spread:
        return rounds.combined(lambda a, b, none: (a - none) / max(b - none, 1e-9), case, other, without)

    def in_a_loop(where: str) -> Spread:
        cases = (f"loop, {where}, ours, hidden", f"loop, {where}, nobody", "loop, memcpy")
        return rounds.combined(lambda a, b, copy: (a - b) / saves / copy, *cases)

    targets = {"hidden": MOST_HIDDEN, "at once": MOST_AT_ONCE, "synchronous": None, "Ignite": None}
    return [
        *(
            Figure(f"{label}, {name}: loop time lost / memcpy", lost(label, name), "×", target, WHY)
            for label in labels
            for name, target in targets.items()
        ),
        *(
            Figure(
                f"{label}, synchronous / torch.save with fsync of file and folder",
                against(f"{label}, synchronous", f"{label}, torch.save and fsync", f"{label}, no save"),
                "×",
                MOST_SYNCHRONOUS,
            )
            for label in labels
        ),
        Figure("independent loop, idle: time lost per save / memcpy", in_a_loop("idle"), "×", MOST_IN_A_LOOP, WHY),
        Figure("independent loop, busy cores: time lost per save / memcpy", in_a_loop("busy"), "×", None, WHY),
        Figure(
            "independent loop: processor time of saves / of torch.save",
            against("loop, processor, ours, hidden", "loop, processor, torch", "loop, processor, nobody"),
            "×",
            MOST_PROCESSOR,
        ),
        *(
            Figure(
                f"8,000 tensors, {how}: processor time / torch.save",
                slower(f"many, {how}", "many, torch"),
                "×",
                MOST_MANY,
            )
            for how in ("hidden", "synchronous")
        ),
        Figure("the end of a run waits / the write of a save", slower("end, waits", "end, writes"), "×", MOST_AT_END),
        Figure("loop in Python while we write / alone", slower("Python, ours"), "×", round(1 / LEAST_PYTHON, 2)),
        Figure("... while we write / another process computes", slower("Python, ours", "Python, other process"), "×"),
        Figure("... while torch.save writes in a thread / alone", slower("Python, torch.save"), "×"),
        Figure("peak memory added by a synchronous save of 200 MB", memory, "MB", MOST_MEMORY_MB),
    ]


def measure(quick: bool) -> Result:
    """Measure loops with a save and without, a loop in Python beside a save, and the peak of memory."""
    count = 2 if quick else 4
    torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if quick:
            trainings = {"3 MB": Training(256, 4, 4, 5, folder / "small")}
        else:
            trainings = {
                "100 MB": Training(1024, 8, 12, 50, folder / "100"),
                "500 MB": Training(2048, 10, 6, 220, folder / "500"),
            }
        cases = {k: v for label, training in trainings.items() for k, v in training.cases(label).items()}
        cases |= python_cases(folder, 10 if quick else 200) | many_cases(folder, 50 if quick else 2000)
        iterations = 10 if quick else 40
        cases |= end_cases(folder, 10 if quick else 200) | independent_cases(folder, iterations, 64 if quick else 1024)
        rounds = interleaved(cases, count)
        for training in trainings.values():
            training.store.close()
    figures = all_figures(rounds, list(trainings), Spread.of([peak_growth() for _ in range(3)]), (iterations - 1) // 8)
    charts = []
    for label in trainings:
        names = {"ours, hidden": "hidden", "ours, at once": "at once", "ours, synchronous": "synchronous"}
        names |= {name: name for name in ("Ignite", "torch async_save", "Lightning", "Lightning async")}
        bars = {
            who: rounds.combined(lambda a, b: (a - b) * 1e3, f"{label}, {case}", f"{label}, no save")
            for who, case in names.items()
            if f"{label}, {case}" in rounds.values
        }
        copy = rounds.spread(f"{label}, memcpy").median * 1e3
        title = f"Loop time lost by one save of {label}"
        charts.append(Chart(f"save_{label.split()[0]}", title, "ms", bars, copy, "memcpy of as much"))
    values = {name: [each * 1e3 for each in found] for name, found in rounds.values.items()}
    about = f"milliseconds; {count} interleaved rounds, {torch.get_num_threads()} threads of torch"
    return Result(about, "ms", values, figures, charts)


if __name__ == "__main__":
    script(measure, __doc__)
