"""What hooks hold: the memory of an attached hook that nothing uses, and what a long run adds to it.

A hook is counted by what Python has allocated for it, which is exact. A run is a process of its own with the default
set and an empty step, which is looked at in the middle of an epoch, once early and once at its end.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from ignite.metrics import Average
from measure import Figure, Result, Rounds, exactly, script, spread_of
from scale import HOOKS, look

from ignite_hooks import BaseHook, attach_hooks

MOST_KB = 10.0
MOST_MB = 0.0
MOST_OBJECTS = 50
"""What a save or a line of the log holds that is under way when a run is looked at."""
TRACED = 120_000
"""The iterations of the run whose memory Python counts, which makes it three times as long."""
EPOCH = 5_000
EARLY = 12_500
"""In the middle of the third epoch: two evaluations and two saves are over."""


class Elsewhere(BaseHook):
    """Answers no point of an iteration."""

    def before_epoch(self, runner: Any) -> None:
        pass


def memory_of(count: int) -> int:
    """Return the bytes that Python allocates for attaching this many hooks."""
    with tempfile.TemporaryDirectory() as folder:
        hooks = [{"type": Elsewhere, "name": f"hook{number}"} for number in range(count)]
        trainer = Engine(lambda *_: None)
        gc.collect()
        tracemalloc.start()
        try:
            runner = attach_hooks(trainer, hooks, work_dir=folder)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            runner.detach()


def each_hook(few: int = 10, many: int = 110) -> float:
    """Return the kilobytes of each further hook."""
    # The first time fills caches, such as what is known of the class.
    memory_of(few)
    return (memory_of(many) - memory_of(few)) / (many - few) / 1024


def long_run(iterations: int, *, traced: bool = False) -> list[dict[str, float]]:
    """Return what is held early in a run, and at its end.

    Args:
        iterations: Of the whole run.
        traced: Whether Python counts its memory.
    """
    if traced:
        tracemalloc.start()
    logger = logging.getLogger("ignite_hooks")
    logger.propagate = False
    logger.addHandler(logging.FileHandler(os.devnull))
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 3)
    trainer, evaluator = Engine(lambda *_: 0.5), Engine(lambda *_: 0.5)
    Average().attach(evaluator, "loss")
    seen: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runner = attach_hooks(
            trainer,
            HOOKS,
            evaluators=evaluator,
            work_dir=folder,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            val_loader=[None] * 3,
        )
        half = EPOCH // 2

        def data() -> Iterator[None]:
            yield from repeat(None, EARLY)
            seen.append(look(EARLY, 0.0, folder))
            yield from repeat(None, iterations - EARLY - half)
            seen.append(look(iterations - half, 0.0, folder))
            yield from repeat(None, half)

        trainer.run(data(), max_epochs=iterations // EPOCH, epoch_length=EPOCH)
        runner.close()
    return seen


def in_new_process(iterations: int, *, traced: bool = False) -> list[dict[str, float]]:
    """Return the same of a run in a new interpreter, which nothing else has used."""
    code = f"import json, held; print(json.dumps(held.long_run({iterations}, traced={traced})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(quick: bool) -> Result:
    """Measure hooks, then runs."""
    iterations = 30_000 if quick else 1_000_000
    runs = [in_new_process(iterations) for _ in range(1 if quick else 3)]
    grown: dict[str, list[float]] = {
        name: [late[of] - early[of] for early, late in runs]
        for name, of in (("memory added, MB", "resident_mb"), ("objects added", "objects"))
    }
    counted = iterations if quick else TRACED
    early, late = in_new_process(counted, traced=True)
    grown[f"memory of Python added until {counted:,}, kB"] = [late["python_kb"] - early["python_kb"]]
    values = {"an attached hook, kB": [each_hook()], **grown}
    rounds = Rounds(values)
    reason = (
        "it is the same after a tenth of the iterations: memory that the allocator and the thread of the saves have "
        "once asked the system for; the objects of Python and the memory that it counts, below, become no more"
    )
    figures = [
        Figure("each attached hook that nothing uses", exactly(values["an attached hook, kB"][0]), "kB", MOST_KB),
        Figure(
            f"a run from iteration {EARLY:,} to {iterations:,}, memory added",
            spread_of(rounds.values["memory added, MB"]),
            "MB",
            MOST_MB,
            reason,
        ),
        Figure("... objects of Python added", spread_of(rounds.values["objects added"]), "", MOST_OBJECTS),
        Figure(
            f"... memory that Python counts, until {counted:,}",
            exactly(late["python_kb"] - early["python_kb"]),
            "kB",
            MOST_KB,
        ),
    ]
    about = f"{len(runs)} runs of {iterations:,} iterations with the default set and an empty step"
    return Result(about, "each", values, figures)


if __name__ == "__main__":
    script(measure, __doc__)
