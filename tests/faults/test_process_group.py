"""A signal to the whole process group, as job schedulers and terminals send it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ignite_hooks.model.loader_workers import ShieldedInit
from tests import warm
from tests.faults.tools import Life, Tell

pytestmark = pytest.mark.faults

SCRIPT = """
import sys, torch
from ignite.engine import Events, create_supervised_trainer
from ignite_hooks import attach_hooks
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
loader = DataLoader(TensorDataset(torch.ones(4000, 2), torch.ones(4000, 1)), batch_size=2, num_workers=2)

@trainer.on(Events.ITERATION_COMPLETED(once=20))
def tell():
    print("training", flush=True)

attach_hooks(trainer, [{"type": "CheckpointHook"}], work_dir=sys.argv[1], model=model, optimizer=optimizer)
trainer.run(loader, max_epochs=1000)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_the_run_ends_in_order_if_workers_get_the_signal(number: int, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with warm.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=240)
    # Python itself ends with SIGINT where KeyboardInterrupt is not caught.
    assert process.returncode in (code, -number if number == signal.SIGINT else code), errors
    assert "DataLoader worker" not in errors
    saved = torch.load(tmp_path / "last.pth", weights_only=True)
    assert saved["meta"]["iter"] >= 20
    assert saved["state_dict"].keys() == {"weight", "bias"}


def leave_a_worker_behind(tell: Tell) -> None:
    if os.fork() == 0:
        ShieldedInit(None)(0)
        tell("worker", os.getpid())
        signal.pause()
    signal.pause()


def test_an_orphaned_worker_of_a_killed_run_obeys_signals() -> None:
    with Life(leave_a_worker_behind) as life:
        lines = life.tells()
        _, worker = next(lines)
        life.kill()
        # Its parent is another one now, which did not send this.
        os.kill(worker, signal.SIGTERM)
        assert list(lines) == []  # the worker had the other end of the pipe
