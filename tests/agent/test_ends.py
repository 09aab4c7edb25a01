"""Tasks that an agent takes from a queue: aborted at any moment, killed and begun again."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.store.folder import FolderStore
from tests.agent.agent import Agent
from tests.faults.tools import until

ABORTS = int(os.environ.get("IGNITE_HOOKS_ABORTS", "20"))
LONG = """
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 100000, batch_size: 64, seed: 0}
hooks:
  - {type: CheckpointHook, save_best: false, every: 100 iter, max_keep_ckpts: 2}
  - {type: ClearMLHook, project: digits, interval: 10, abort_timeout: 60}
"""


def verified(folder: Path) -> int:
    """Return the iteration of the newest checkpoint; every one that is listed has to verify."""
    store = FolderStore(folder)
    entries = store.entries()
    assert [why for entry in entries if (why := store.verify(entry)) is not None] == []
    assert torch.load(folder / "last.pth", weights_only=True)["meta"]["iter"] == max(one.iteration for one in entries)
    return max(entry.iteration for entry in entries)


@pytest.mark.timeout(3600)
def test_an_abort_at_any_moment_leaves_a_checkpoint_and_the_state_stopped(agent: Agent, tmp_path: Path) -> None:
    seed = int(os.environ.get("IGNITE_HOOKS_SEED", random.randrange(2**32)))
    print(f"IGNITE_HOOKS_SEED={seed}")
    moment = random.Random(seed)
    server = agent.server
    (tmp_path / "digits.yaml").write_text(LONG)
    agent.by_hand("-m", "ignite_hooks", "train", "digits.yaml", "--queue", "nobody", folder=tmp_path)
    [made] = server.tasks
    done = []
    with agent.daemon("short"):
        for number in range(ABORTS):
            task = server.clone(made)
            server.enqueue(task, "short")
            shown = server.tasks[task]
            # From the moment at which the run has said that it wants to be asked.
            until(partial(_wants_to_be_asked, shown))
            time.sleep(moment.uniform(0.0, 6.0))
            server.abort(task)
            until(partial(_has_ended, shown))
            [folder] = (agent.home / "runs").rglob(task)
            done.append((number, shown["status"], verified(folder)))
            print(*done[-1], flush=True)
    assert [state for _, state, _ in done] == ["stopped"] * ABORTS


def _wants_to_be_asked(task: dict[str, Any]) -> bool:
    return bool(task["runtime"].get("_abort_callback_timeout"))


def _has_ended(task: dict[str, Any]) -> bool:
    return task["status"] not in ("queued", "in_progress")
