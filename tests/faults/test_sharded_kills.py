"""Ranks that are killed while they save sharded checkpoints."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import create_supervised_trainer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ignite_hooks import BaseHook, CheckpointHook, EMAHook, attach_hooks
from ignite_hooks.store import FolderStore
from tests.faults.tools import Life, Tell, drawn, times, wait
from tests.forks import forked

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(times(900, 3600))]

WEIGHTS = 200_000
LENGTH = 3
"""Iterations of an epoch."""


def live(folder: Path, tell: Tell, iterations: int | None = None) -> None:
    """Run one life of a rank, which continues from the last checkpoint."""

    class Witness(BaseHook):
        def before_train(self, runner: Any) -> None:
            self.began_at = runner.global_step
            tell("resumed", runner.global_step)

        def before_save_checkpoint(self, checkpoint: Any) -> None:
            tell("begun", checkpoint["meta"]["iter"])

        def after_save_checkpoint(self, checkpoint: Any) -> None:
            tell("committed", checkpoint["meta"]["iter"])

        def after_train_iter(self, runner: Any) -> None:
            if iterations and runner.global_step == self.began_at + iterations:
                runner.stop("enough")

    model: Any = torch.nn.Linear(100, WEIGHTS // 100, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    fully_shard(model, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=1.0)
    # The gradient of every weight is -1 on every rank: momentum and weights say which iteration they belong to.
    trainer = create_supervised_trainer(model, optimizer, lambda found, wanted: -found.sum())
    saving = CheckpointHook(by_epoch=False, interval=1, max_keep_ckpts=1)
    hooks = [EMAHook(), saving, Witness()]
    attach_hooks(trainer, hooks, work_dir=folder, resume="auto", model=model, optimizer=optimizer)
    trainer.run([(torch.ones(1, 100, dtype=torch.float64), torch.ones(1))] * LENGTH, max_epochs=10**6)


def heard(rank: Life) -> list[list[Any]]:
    """Return what a rank reports until its end, possibly that it failed because another has died."""
    told: list[list[Any]] = []
    with contextlib.suppress(AssertionError):
        told.extend(rank.tells())
    return told


def found_in(folder: Path) -> int:
    """Return the iteration of the newest checkpoint that verifies, after checking each number; 0 if there is none."""
    store = FolderStore(folder)
    newest = store.newest()
    if newest is None:
        return 0
    state = store.load(newest)
    iteration = int(state["meta"]["iter"])
    assert state["trainer"]["iteration"] == iteration
    momentum = state["optimizer"]["state"][0]["momentum_buffer"]
    assert momentum.aminmax() == (-iteration, -iteration)
    weight = iteration * (iteration + 1) / 2
    assert state["state_dict"]["weight"].aminmax() == (weight, weight)
    return iteration


def test_repeated_kills_of_ranks_never_lose_a_committed_checkpoint(tmp_path: Path) -> None:
    draw, kills = drawn(), times(6, 200)
    reached = began = committed = inside = 0
    done = 0
    # Where few kills fall into a save, there are more of them.
    while done < kills or inside < kills / 3:
        done += 1
        who, saves = draw.choice([[0], [1], [0, 1]]), draw.randrange(1, 4)
        told: list[list[Any]] = []
        with forked(lambda tell: live(tmp_path, tell)) as ranks:
            while [word for word, _ in told].count("begun") < saves:
                told.append(next(ranks[0].tells()))
            wait(draw.uniform(0, 0.05))
            # One that hears of the end of the other may end by itself before its turn has come.
            for rank in who:
                os.kill(ranks[rank].pid, signal.SIGKILL)
            for rank in who:
                ranks[rank].wait()
            told += heard(ranks[0])
        numbers = {
            what: [number for word, number in told if word == what] for what in ("resumed", "begun", "committed")
        }
        assert numbers["resumed"] == [reached], "it resumes from the newest that verifies"
        began, committed = max([began, *numbers["begun"]]), max([committed, *numbers["committed"]])
        inside += len(numbers["begun"]) > len(numbers["committed"])
        reached = found_in(tmp_path)
        assert committed <= reached <= began
    print(f"{done} kills: {inside} in a save, {reached} iterations saved")
    with forked(lambda tell: live(tmp_path, tell, iterations=LENGTH)) as ranks:
        for rank in ranks:
            assert next(rank.tells()) == ["resumed", reached]
            assert [number for what, number in rank.tells() if what == "committed"][-1] == reached + LENGTH
            assert rank.wait() == 0
    assert found_in(tmp_path) == reached + LENGTH
    with FolderStore(tmp_path) as store:
        assert {store.verify(entry) for entry in store.entries()} == {None}
        listed = {entry.name for entry in store.entries()}
    # A rank that waits for a dead one leaves its stacks in logs.
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()} - {"logs"}
    kept = {f"iter_{iteration}" for iteration in (reached, reached + LENGTH) if iteration}
    assert folders == listed == {*kept, "last"}, "nothing is left behind"
