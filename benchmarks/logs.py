"""What the default logging set costs per iteration: console, metrics.jsonl, TensorBoard, learning rates, timer.

Times are microseconds per iteration of a tiny model, above the same run without hooks. "After 100,000 iterations" is
the same set on an engine that has already run that long: a cost that grows with the run would show.
"""

from __future__ import annotations

import logging
import tempfile
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from measure import Figure, Lane, arguments, interleaved, print_figures, print_table, write_json

from ignite_hooks import attach_hooks

MOST_MICROSECONDS = 6.0
HOOKS: list[dict[str, Any]] = [{"type": "LoggerHook"}, {"type": "IterTimerHook"}, {"type": "TensorBoardHook"}]
LONG = 100_000


def engine(folder: Path | None) -> Engine:
    """A tiny training run, with the logging set where there is a folder for it."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))

    def step(_: Engine, __: object) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    if folder is not None:
        attach_hooks(trainer, HOOKS, model=model, optimizer=optimizer, work_dir=folder)
    return trainer


def empty_engine(folder: Path) -> Engine:
    """An engine whose step does nothing, which grows old quickly; the hooks see the same."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    trainer = Engine(lambda _, __: 0.5)
    attach_hooks(trainer, HOOKS, optimizer=optimizer, work_dir=folder)
    return trainer


def main() -> None:
    """Measure, print, write."""
    given = arguments(__doc__)
    torch.set_num_threads(1)
    iterations, count, long = 200, 10 if given.quick else 100, 5_000 if given.quick else LONG
    # As in a job whose output goes to a file.
    logging.getLogger("ignite_hooks").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        log = logging.FileHandler(Path(folder) / "console")
        logging.getLogger("ignite_hooks").addHandler(log)
        lanes = {
            "no hooks": Lane(engine(None), iterations),
            "logging set": Lane(engine(Path(folder) / "a"), iterations),
            "empty step, logging set": Lane(empty_engine(Path(folder) / "b"), iterations),
            "empty step, logging set, old": Lane(empty_engine(Path(folder) / "c"), iterations),
            "empty step, no hooks": Lane(Engine(lambda _, __: 0.5), iterations),
        }
        old = lanes["empty step, logging set, old"]
        for _ in repeat(None, long // iterations):
            old.advance()
        rounds = interleaved({name: lane.advance for name, lane in lanes.items()}, count)
        for lane in lanes.values():
            lane.end()
        logging.getLogger("ignite_hooks").removeHandler(log)
        log.close()
    print(f"nanoseconds per iteration: {count} interleaved rounds of {iterations:,} iterations\n")
    print_table(["case", "median", "quartiles"], [[name, *rounds.spread(name).text(",.0f")] for name in lanes])

    def above(case: str, bare: str) -> Any:
        return rounds.combined(lambda a, b: (a - b) / 1000, case, bare)

    young, aged, bare = "empty step, logging set", "empty step, logging set, old", "empty step, no hooks"
    figures = [
        Figure(
            "the logging set on a tiny model, above no hooks", above("logging set", "no hooks"), "µs", MOST_MICROSECONDS
        ),
        Figure("... as a share of the iteration", rounds.combined(lambda a, b: a / b, "logging set", "no hooks"), "×"),
        Figure("... above an empty step", above(young, bare), "µs", MOST_MICROSECONDS),
        Figure(f"... after {long:,} iterations, above an empty step", above(aged, bare), "µs", MOST_MICROSECONDS),
        Figure("... after that many / at the start", rounds.combined(lambda a, b: a / b, aged, young), "×", 1.1),
    ]
    print_figures(figures)
    write_json(given.json, rounds, figures)


if __name__ == "__main__":
    main()
