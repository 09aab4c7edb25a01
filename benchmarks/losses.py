"""What looking for NaN costs, and what it costs to be able to leave a batch out.

Whole iterations of a network with 1.3 million weights and Adam, on batches of 64, with CheckInvalidLossHook, as
ratios to the same without hooks. The loss is a tensor, so that each look waits for it.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from measure import Figure, Lane, Result, interleaved, script

from ignite_hooks import attach_hooks

WAYS: dict[str, dict[str, Any] | None] = {
    "no hooks": None,
    "raise, every 50 iterations": {},
    "raise, every iteration": {"interval": 1},
    "skip, every iteration": {"action": "skip"},
}


def engine(settings: dict[str, Any] | None, folder: Path) -> Engine:
    """Return a training run, with the hook if there are settings for it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.BatchNorm1d(1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 256), torch.randint(0, 1024, (64,))

    def step(_: Engine, __: object) -> dict[str, Any]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "weights": 1.0}

    trainer = Engine(step)
    if settings is not None:
        hook = {"type": "CheckInvalidLossHook", **settings}
        attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=folder)
    return trainer


def measure(quick: bool) -> Result:
    """Measure whole iterations."""
    torch.set_num_threads(1)
    iterations, count = 8, 3 if quick else 20
    logging.getLogger("ignite_hooks").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        lanes = {
            name: Lane(engine(way, Path(folder) / str(i)), iterations, warm_up=2)
            for i, (name, way) in enumerate(WAYS.items())
        }
        rounds = interleaved({name: lane.advance for name, lane in lanes.items()}, count)
        for lane in lanes.values():
            lane.end()
    ways = [name for name in lanes if name != "no hooks"]
    figures = [Figure(name, rounds.combined(lambda a, b: a / b, name, "no hooks"), "×") for name in ways]
    about = f"nanoseconds per iteration: {count} interleaved rounds of {iterations} iterations"
    return Result(about, "ns", rounds.values, figures, form=",.3f")


if __name__ == "__main__":
    script(measure, __doc__)
