"""`rank_times.py`: what an iteration takes on each rank without waiting for others, and which rank is the slowest."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import attach_hooks
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.results.history import History
from ignite_hooks.testing import tiny_run
from tests.ranks import run_ranks


def uneven() -> dict[str, Any]:
    """Train with one rank whose forward pass is slow, and gradients for which the others wait."""
    run, seconds = tiny_run(), 0.12 * (rank() == 1)

    class Slow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pass
            return x

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(Slow(), run.model))

    def step(engine: Any, batch: Any) -> float:
        run.optimizer.zero_grad()
        loss = run.criterion(model(batch[0]), batch[1])
        loss.backward()
        run.optimizer.step()
        return float(loss.detach())

    run.trainer._process_function = step
    folder = Path(tempfile.mkdtemp())
    runner = attach_hooks(
        run.trainer, ["IterTimerHook"], work_dir=folder, model=model, optimizer=run.optimizer, criterion=run.criterion
    )
    run.trainer.run(run.data, max_epochs=3)
    written = {name: value for row in History.read(runner.work_dir) for name, value in row.items()}
    found = runner.report().findings.get("IterTimerHook", [])
    return {"times": [list(one) for one in runner.state.rank_times], "found": found, "written": list(written)}


@pytest.mark.slow
def test_the_rank_that_others_wait_for_is_named_on_all_of_them() -> None:
    results = run_ranks(uneven)
    for one in results:
        assert one["times"] == results[0]["times"]
        (_, own), (_, slow) = one["times"]
        assert slow > 0.1
        assert slow > own
    assert "time/own_rank_1" in results[0]["written"]


def test_one_process_has_no_slowest_rank(tmp_path: Path) -> None:
    run = tiny_run()
    runner = attach_hooks(run.trainer, ["IterTimerHook"], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert runner.state.rank_times == ()
    assert runner.hooks["IterTimerHook"].rank_time().own > 0
