"""Tasks that an agent takes from a queue: aborted at any moment, killed and begun again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.store.folder import FolderStore
from tests.agent.agent import PATIENCE, Agent
from tests.agent.test_trained import assert_same
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


def verified(folder: Path, name: str = "last.pth") -> int:
    """Return the iteration of the newest checkpoint of this name; every one that is listed has to verify."""
    store = FolderStore(folder)
    entries = store.entries()
    assert [why for entry in entries if (why := store.verify(entry)) is not None] == []
    return max(entry.iteration for entry in entries if fnmatch(entry.name, name))


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


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("by", ["torchrun", "script"])
def test_an_aborted_task_is_stopped_also_where_the_exit_code_does_not_say_so(
    by: str, agent: Agent, tmp_path: Path
) -> None:
    """An agent takes 0 for completed and 1 for failed: the first is how a script ends, the second how torchrun does."""
    server = agent.server
    (tmp_path / "digits.yaml").write_text(LONG.replace("100000", "1"))
    (tmp_path / "train.py").write_text("from ignite_hooks import BaseTrainer\n\nBaseTrainer('digits.yaml').train()\n")
    launch = ("-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "ignite_hooks", "train", "digits.yaml")
    agent.by_hand(*(launch if by == "torchrun" else ("train.py",)), folder=tmp_path)
    [made] = server.tasks
    task = server.clone(made)
    server.set_parameter(task, "Training/epochs", "100000")
    server.enqueue(task, "short")
    # The SDK hears of an abort within a second here, so mostly before the agent.
    with agent.daemon("short", looks_every=20):
        until(partial(_wants_to_be_asked, server.tasks[task]), seconds=PATIENCE)
        server.abort(task)
        until(partial(_has_ended, server.tasks[task]), seconds=PATIENCE)
    [folder] = (agent.home / "runs").rglob(task)
    assert verified(folder) > 0
    assert server.tasks[task]["status"] == "stopped"


@pytest.mark.parametrize(("moment", "machine"), [(100, "same"), (1000, "same"), (1000, "another")])
def test_a_killed_task_goes_on_as_if_it_had_never_stopped(
    moment: int, machine: str, agent: Agent, tmp_path: Path
) -> None:
    server = agent.server
    text = LONG.replace("100000", "100").replace("abort_timeout: 60", "log_model: true, upload_every: 1 s")
    (tmp_path / "digits.yaml").write_text(text)
    agent.by_hand("-m", "ignite_hooks", "train", "digits.yaml", "--queue", "nobody", folder=tmp_path)
    [made] = server.tasks
    task = server.clone(made)
    with agent.executing(task) as first:
        until(lambda: any(event["iter"] > moment for event in server.scalars_of(task)))
        if machine == "another":
            until(lambda: any("/models/last" in model["uri"] for model in server.models.values()))
        os.killpg(first.pid, signal.SIGKILL)
    [folder] = (agent.home / "runs").rglob(task)
    assert 0 < verified(folder, "iter_*.pth") < 1900
    if machine == "another":
        shutil.rmtree(agent.home / "runs")
    # What the server does after two hours without a word.
    server.change(task, "stopped", {"status_message": "non-responsive"})
    server.enqueue(task, "nobody")
    said = agent.execute(task, "--standalone-mode")
    assert "resumed from" in said
    assert ("goes on from the model 'last'" in said) == (machine == "another")
    assert server.tasks[task]["status"] == "completed"
    assert server.repeats == []
    [model] = (server.models[one["model"]] for one in server.tasks[task]["models"]["output"])
    registered = model["uri"].removeprefix(server.url)
    assert server.uploads[registered] == (folder / "last.pth").read_bytes()
    others = [path for path in server.uploads if "/models/last" in path and path != registered]
    assert len(others) <= 1, "what was uploaded when the first life was killed, and not yet registered"
    assert model["metadata"]["iteration"]["value"] == "1900"
    agent.by_hand("-m", "ignite_hooks", "train", "digits.yaml", "--work-dir", "alone", folder=tmp_path)
    alone = list(server.tasks)[-1]
    assert points(agent, task) == points(agent, alone)
    assert_same(folder, tmp_path / "alone")


def points(agent: Agent, task: str) -> list[tuple[str, str, int, float]]:
    """Return the curves of a task; the memory of a process is another each time."""
    found = [(e["metric"], e["variant"], e["iter"], e["value"]) for e in agent.server.scalars_of(task)]
    return sorted(point for point in found if "memory" not in point[0])


def _wants_to_be_asked(task: dict[str, Any]) -> bool:
    return bool(task["runtime"].get("_abort_callback_timeout"))


def _has_ended(task: dict[str, Any]) -> bool:
    return task["status"] not in ("queued", "in_progress")
