"""What a save costs the training loop, beside the same bytes copied into memory that is already there.

A loop of real iterations (forward, backward, AdamW) runs with one save in its middle and without one, in turn; the
difference is what the save takes from the loop. The file may be finished later: that is waited for outside the time.
Every saver has saved once before. Torch computes with all cores but one, which is left to the
thread that copies and writes. A loop in Python is compared with itself, alone and beside another process that computes:
on a machine whose cores are in use only the second ratio says what the interpreter lock costs.

What each save takes from the loop is measured in ten rounds; what takes long and is compared by more than its tenth
part runs in each second, third or fifth of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from measure import Chart, Figure, Result, Rounds, Spread, interleaved, script
from save_cases import Training, end_cases, independent_cases, many_cases, python_cases

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

COMPUTED = (
    "no save",
    "MB, hidden",
    "copy and write",
    "torch.save and fsync",
    "idle, nobody",
    "idle, ours, hidden",
    "idle, torch",
)
"""How the cases end of which the processor time is of interest."""

WHY = (
    "a thread that only copies and writes as many bytes takes from the loop what the line with its name says, as it "
    "shares memory, caches and perhaps a core with it; ours computes checksums beside that, some milliseconds of a "
    "processor for 100 MB"
)
WHY_MANY = (
    "by processor time it is less than half of it, see the lines below; by the clock, loops of two rounds differ by as "
    "much as a save takes"
)
WHY_AT_END = (
    "the last periodic save copies the state before it writes, so that an evaluation can go on, which a write alone "
    "need not: see the share of the copy"
)
WHY_SYNCHRONOUS = (
    "four of its six calls of fsync are those of the manifest, written before the rename of the file and after it, "
    "each time with its folder: a fixed time, which depends on the disk and weighs the more the smaller the state is"
)

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


def peak_growth() -> float:
    """Return the megabytes that a synchronous save of 200 MB adds to the peak of a new process."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", PEAK, folder], check=True, capture_output=True, text=True)
    return float(done.stdout)


def all_figures(rounds: Rounds, labels: list[str], memory: Spread, saves: dict[str, int]) -> list[Figure]:
    """Return the numbers with their targets."""

    def lost(label: str, name: str) -> Spread:
        cases = [f"{label}, {case}" for case in (name, "no save", "memcpy")]
        return rounds.combined(lambda with_save, without, copy: (with_save - without) / copy, *cases)

    def slower(case: str, than: str = "Python alone") -> Spread:
        return rounds.combined(lambda a, b: a / b, case, than)

    def computed(where: str, case: str, other: str, without: str) -> Spread:
        return rounds.against(*(f"{where}, {name}, processor" for name in (case, other, without)))

    def in_a_loop(where: str, saver: str = "ours, hidden") -> Spread:
        cases = (f"loop, {where}, {saver}", f"loop, {where}, nobody", "loop, memcpy")
        return rounds.combined(lambda a, b, copy: (a - b) / saves["loop"] / copy, *cases)

    def in_turn(where: str, saver: str) -> Spread:
        return rounds.against(f"{where}, {saver}", f"{where}, torch", f"{where}, nobody")

    targets = {
        "hidden": MOST_HIDDEN,
        "at once": MOST_AT_ONCE,
        "copy and write": None,
        "synchronous": None,
        "Ignite": None,
    }
    return [
        *(
            Figure(f"{label}, {name}: loop time lost / memcpy", lost(label, name), "×", target, WHY)
            for label in labels
            for name, target in targets.items()
        ),
        *(
            Figure(
                f"{label}, synchronous / torch.save with fsync of file and folder",
                rounds.against(f"{label}, synchronous", f"{label}, torch.save and fsync", f"{label}, no save"),
                "×",
                MOST_SYNCHRONOUS,
                WHY_SYNCHRONOUS,
            )
            for label in labels
        ),
        Figure("independent loop, idle: time lost per save / memcpy", in_a_loop("idle"), "×", MOST_IN_A_LOOP, WHY),
        Figure("independent loop, busy cores: time lost per save / memcpy", in_a_loop("busy"), "×", None, WHY),
        Figure("... idle, copy and write", in_a_loop("idle", "copy and write"), "×"),
        Figure("... idle, synchronous", in_a_loop("idle", "ours, synchronous"), "×"),
        Figure("... idle, torch.save", in_a_loop("idle", "torch"), "×"),
        Figure("... busy cores, torch.save", in_a_loop("busy", "torch"), "×"),
        Figure(
            "independent loop, 100 MB: processor time of saves / of torch.save",
            computed("loop, idle", "ours, hidden", "torch", "nobody"),
            "×",
            MOST_PROCESSOR,
        ),
        *(
            Figure(
                f"{label}, hidden: processor time / of torch.save with fsync",
                computed(label, "hidden", "torch.save and fsync", "no save"),
                "×",
                MOST_PROCESSOR,
            )
            for label in labels
        ),
        Figure(
            "8,000 tensors: time that a loop loses per save / by torch.save",
            in_turn("many, loop", "ours, hidden"),
            "×",
            MOST_MANY,
            WHY_MANY,
        ),
        Figure("... synchronous", in_turn("many, loop", "ours, synchronous"), "×"),
        *(
            Figure(
                f"8,000 tensors, {how}: processor time / of torch.save",
                slower(f"many, {how}", "many, torch"),
                "×",
                MOST_MANY,
            )
            for how in ("hidden", "synchronous")
        ),
        Figure(
            "the end of a run waits / the write of a save",
            slower("end, waits", "end, writes"),
            "×",
            MOST_AT_END,
            WHY_AT_END,
        ),
        Figure("... the copy", slower("end, copies", "end, writes"), "×"),
        Figure("loop in Python while we write / alone", slower("Python, ours"), "×", round(1 / LEAST_PYTHON, 2)),
        Figure("... while we write / another process computes", slower("Python, ours", "Python, other process"), "×"),
        Figure("... while torch.save writes in a thread / alone", slower("Python, torch.save"), "×"),
        Figure("peak memory added by a synchronous save of 200 MB", memory, "MB", MOST_MEMORY_MB),
    ]


def pace_of(case: str) -> int:
    """Return in each how many rounds a case is measured."""
    label, _, name = case.partition(", ")
    if label.endswith("MB"):
        if name in ("no save", "hidden", "at once", "copy and write", "memcpy"):
            return 1
        return {"100 MB": 2}.get(label, 3) if "fsync" in name or name == "synchronous" else 5
    if case == "loop, memcpy":
        return 1
    if case in ("loop, idle, nobody", "loop, idle, ours, hidden", "loop, idle, copy and write") or case.startswith(
        "end"
    ):
        return 1
    return 5 if "busy" in case else 4 if case == "loop, idle, ours, synchronous" else 2


def measure(quick: bool) -> Result:
    """Measure loops with a save and without, a loop in Python beside a save, and the peak of memory."""
    count, processor = 2 if quick else 10, dict[str, list[float]]()
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
        cases = {k: v for label, training in trainings.items() for k, v in training.cases(label, processor).items()}
        cases |= python_cases(folder, 10 if quick else 200) | end_cases(folder, 10 if quick else 200)
        cases |= independent_cases(folder, processor, 10 if quick else 40, 64 if quick else 1024)
        cases |= many_cases(folder, processor, 22 if quick else 60, 50 if quick else 2000)
        rounds = interleaved(cases, count, {} if quick else {name: pace_of(name) for name in cases})
        for training in trainings.values():
            training.store.close()
    for case in cases:
        if case.endswith(COMPUTED):
            rounds.add(f"{case}, processor", processor[case], case)
    saves = {"loop": 1 if quick else 4}
    figures = all_figures(rounds, list(trainings), Spread.of([peak_growth() for _ in range(3)]), saves)
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
