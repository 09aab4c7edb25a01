"""What it costs to watch: IterTimerHook, ProfilerHook outside of its window, SystemMonitorHook; and how exact it is.

Iterations of a linear classifier with the hooks and without take turns, in CPU time of their thread, and so is a
reading of SystemMonitorHook; of ten rounds the least counts. Phases are compared with timers placed by hand in the
same steps of 20 ms.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from ignite.metrics import RunningAverage
from measure import Chart, Figure, Lane, Result, Rounds, Spread, interleaved, script
from torch import nn

from ignite_hooks import IterTimerHook, ProfilerHook, attach_hooks
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.measure.machine import Machine
from ignite_hooks.measure.phases import NAMES, Phases

MOST_US_OF_TIMER = 15.0
MOST_OF_AVERAGE = round(15 / 13.3, 2)
MOST_OF_PROFILER = 1.02
MOST_PERCENT_OF_A_CORE = 1.0
MOST_PERCENT_OFF = 5.0
MONITOR_INTERVAL = 2.0
ITERATIONS = 100

WHY = (
    "four readings of a clock and one more handler of Ignite's, and a look into one step of 50 or fewer, which is dear "
    "on a slow machine: go by the ratio to RunningAverage"
)
NEVER = {"wait": 1 << 40, "warmup": 1, "active": 1}

AVERAGE = "Ignite's RunningAverage"
"""A yardstick: it cost 13.3 µs an iteration on the quiet machine that the targets in microseconds were set on."""

HOOKS: dict[str, Callable[[], list[BaseHook]] | None] = {
    "none": None,
    "attached, without hooks": list,
    "IterTimerHook": lambda: [IterTimerHook()],
    "IterTimerHook, phases: false": lambda: [IterTimerHook(phases=False)],
    "ProfilerHook, waiting": lambda: [ProfilerHook(schedule=NEVER)],
    AVERAGE: None,
}


def training(name: str, folder: Path) -> Engine:
    """Return the training of a linear classifier, so that the cost of hooks is hard to miss."""
    torch.manual_seed(0)
    model, criterion = nn.Linear(16, 4), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))

    def step(*_: Any) -> float:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    trainer, hooks = Engine(step), HOOKS[name]
    if name == AVERAGE:
        RunningAverage(output_transform=float).attach(trainer, "loss")
    if hooks is not None:
        services = {"model": model, "optimizer": optimizer, "criterion": criterion}
        attach_hooks(trainer, hooks(), work_dir=folder / name.replace(" ", "_"), **services)
    return trainer


def loops(rounds: int, folder: Path) -> Rounds:
    """Return the microseconds per iteration, measured a few iterations of each training at a time."""
    lanes = {name: Lane(training(name, folder), ITERATIONS, clock=time.thread_time) for name in HOOKS}

    def ahead(lane: Lane) -> Callable[[], float]:
        return lambda: lane.advance() / 1e3

    found = interleaved({name: ahead(lane) for name, lane in lanes.items()}, rounds)
    for lane in lanes.values():
        lane.end()
    return found


def readings(count: int) -> list[float]:
    """Return the CPU time of reading everything, as percent of a core at the default interval."""
    machine, found = Machine(), []
    for _ in range(count):
        start = time.thread_time()
        machine.read()
        found.append((time.thread_time() - start) / MONITOR_INTERVAL * 100)
    return found


class Slow(torch.autograd.Function):
    """Takes 6 ms there and 9 ms back."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.006)
        return x.clone()

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(0.009)
        return gradients[0]


class SlowModel(nn.Linear):
    """A layer and a pause."""

    def forward(self, x: torch.Tensor) -> Any:
        """Call the layer, then pause."""
        return Slow.apply(super().forward(x))


def deviations(steps: int) -> tuple[float, float]:
    """Return by how many percent the worst phase differs from a manual timer: of the step, and of the phase."""
    model = SlowModel(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.register_step_post_hook(lambda *_: time.sleep(0.004))
    phases, by_hand = Phases(), dict.fromkeys(("forward", "backward", "optimizer"), 0.0)
    phases.watch(model, optimizer)
    for _ in range(steps):
        phases.step_begins()
        times = [time.perf_counter()]
        loss = model(torch.ones(32, 64)).mean()
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        phases.step_ends()
        for i, name in enumerate(by_hand):
            by_hand[name] += times[i + 1] - times[i]
    found = dict(zip(NAMES, phases.seconds(), strict=True))
    phases.stop_watching()
    off = {name: abs(found[name] - seconds) for name, seconds in by_hand.items()}
    of_phase = max(off[name] / seconds for name, seconds in by_hand.items())
    return max(off.values()) / sum(by_hand.values()) * 100, of_phase * 100


def measure(quick: bool) -> Result:
    """Measure iterations, deviations and readings."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rounds = loops(3 if quick else 100, Path(folder))
    off = [deviations(3 if quick else 20) for _ in range(2 if quick else 10)]
    of_step, of_phase = (Spread.of(values) for values in zip(*off, strict=True))
    reading = Spread.of(readings(5 if quick else 200))

    def least(*cases: str) -> Iterator[tuple[float, ...]]:
        """Yield the least of each case in groups of rounds: other work on the machine only ever adds."""
        many = 1 if quick else 10
        for at in range(0, len(rounds.values["none"]), many):
            yield tuple(min(rounds.values[case][at : at + many]) for case in cases)

    def added(case: str, to: str = "attached, without hooks") -> Spread:
        return Spread.of([a - b for a, b in least(case, to)])

    def ratio(case: str, to: str = "none") -> Spread:
        return Spread.of([a / b for a, b in least(case, to)])

    waiting, plain = "ProfilerHook, waiting", "attached, without hooks"
    timer = Spread.of([(a - b) / (c - d) for a, b, c, d in least("IterTimerHook", plain, AVERAGE, "none")])
    figures = [
        Figure("IterTimerHook with phases, added to an iteration", added("IterTimerHook"), "µs", MOST_US_OF_TIMER, WHY),
        Figure("... without phases", added("IterTimerHook, phases: false"), "µs"),
        Figure(f"... {AVERAGE}", added(AVERAGE, "none"), "µs"),
        Figure(f"IterTimerHook with phases / {AVERAGE} (the target as 15 / 13.3)", timer, "×", MOST_OF_AVERAGE),
        Figure("... with phases, as a ratio", ratio("IterTimerHook", "attached, without hooks"), "×"),
        Figure("ProfilerHook outside of its window / none", ratio(waiting), "×", MOST_OF_PROFILER),
        Figure("... / attached, without hooks", ratio(waiting, "attached, without hooks"), "×", MOST_OF_PROFILER),
        Figure("SystemMonitorHook, of a core every 2 s", reading, "%", MOST_PERCENT_OF_A_CORE),
        Figure("phases against timers by hand: the worst of three, of the step", of_step, "%", MOST_PERCENT_OFF),
        Figure("... of itself", of_phase, "%"),
    ]
    bars = {"ours, with phases": added("IterTimerHook"), "ours, without phases": added("IterTimerHook, phases: false")}
    bars |= {"ours, ProfilerHook waiting": added(waiting), "Ignite RunningAverage": added(AVERAGE, "none")}
    chart = Chart("watching", "What watching adds to an iteration", "µs of processor time", bars)
    about = "microseconds of CPU per iteration of a linear classifier, in one thread"
    return Result(about, "µs", rounds.values, figures, [chart], ".3f")


if __name__ == "__main__":
    script(measure, __doc__)
