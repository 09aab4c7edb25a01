"""Runs that are killed at random moments, repeatedly, in the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import create_supervised_trainer

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.store import FolderStore
from tests.faults.tools import Life, Tell, drawn, times, wait

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(900, 3600))]

WEIGHTS = 500_000
"""Of 8 bytes each, and the optimizer has as many: a state of 8 MB."""
LENGTH = 4
"""Iterations of an epoch; most kills come in the middle of one."""
MOMENTS = ("start", "resumed", "begun", "begun", "committed")
"""What kills wait for before they come, in turn."""


def made() -> tuple[Any, Any, Any]:
    """Return a trainer whose weights and momentum show, in each number, which iteration they belong to.

    The gradient of every weight is -1. With a momentum and a learning rate of 1, the momentum is -n after n iterations
    and the weight n (n + 1) / 2, exactly: a state that was torn by a later step shows it.
    """
    model = torch.nn.Linear(1000, WEIGHTS // 1000, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=1.0)
    return create_supervised_trainer(model, optimizer, lambda found, wanted: -found.sum()), model, optimizer


def batches() -> list[Any]:
    return [(torch.ones(1, 1000, dtype=torch.float64), torch.ones(1))] * LENGTH


def live(folder: Path, tell: Tell, async_save: bool, iterations: int | None = None) -> None:
    """Run one life, which continues from the last checkpoint."""

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

    trainer, model, optimizer = made()
    saving = {"type": "CheckpointHook", "by_epoch": False, "interval": 1, "max_keep_ckpts": 1, "async_save": async_save}
    attach_hooks(trainer, [saving, Witness()], work_dir=folder, resume="auto", model=model, optimizer=optimizer)
    trainer.run(batches(), max_epochs=10**6)


def found_in(folder: Path) -> int:
    """Return the iteration of the newest checkpoint that verifies, after checking each number; 0 if there is none."""
    store = FolderStore(folder)
    newest = store.newest()
    if newest is None:
        return 0
    state = store.load(newest)
    iteration = int(state["meta"]["iter"])
    momentum = state["optimizer"]["state"][0]["momentum_buffer"]
    assert state["trainer"]["iteration"] == iteration
    assert momentum.aminmax() == (-iteration, -iteration)
    weight = iteration * (iteration + 1) / 2
    assert state["state_dict"]["weight"].aminmax() == (weight, weight)
    return iteration


@pytest.fixture(autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make a step and a run, whose first calls import much of torch and most of this package."""
    for _ in range(2):
        live(tmp_path_factory.mktemp("warm"), lambda *_: None, async_save=False, iterations=1)


@pytest.mark.parametrize(
    ("async_save", "kills"), [(True, times(60, 500)), (False, times(12, 100))], ids=["async", "sync"]
)
def test_repeated_kills_never_lose_a_committed_checkpoint(async_save: bool, kills: int, tmp_path: Path) -> None:
    draw = drawn()
    reached = began = committed = inside = in_the_beginning = left_behind = 0
    done = 0
    # Where few kills fall into a save, because the disk is fast or the machine busy, there are more of them.
    while done < kills or inside < kills / 3:
        moment = MOMENTS[done % len(MOMENTS)]
        done += 1
        told: list[list[Any]] = []
        with Life(lambda tell: live(tmp_path, tell, async_save)) as run:
            while moment not in ("start", *(word for word, _ in told)):
                told.append(next(run.tells()))
            wait(draw.uniform(0, 0.1))
            run.kill()
            told += run.tells()
        numbers = {
            what: [number for word, number in told if word == what] for what in ("resumed", "begun", "committed")
        }
        assert numbers["resumed"] in ([], [reached]), "it resumes from the newest that verifies"
        began, committed = max([began, *numbers["begun"]]), max([committed, *numbers["committed"]])
        inside += len(numbers["begun"]) > len(numbers["committed"])
        in_the_beginning += not numbers["resumed"]
        left_behind += len(list(tmp_path.glob(".tmp-*")))
        reached = found_in(tmp_path)
        assert committed <= reached <= began
    print(
        f"{done} kills: {inside} in a save, {in_the_beginning} before the run began, {reached} iterations saved, "
        f"{left_behind} temporary files left behind"
    )
    # Of each round one kill waits for a save that is over.
    assert reached >= kills // len(MOMENTS)
    with Life(lambda tell: live(tmp_path, tell, async_save, iterations=3)) as run:
        assert next(run.tells()) == ["resumed", reached]
        committed_now = [number for what, number in run.tells() if what == "committed"]
        assert committed_now == [reached + 1, reached + 2, reached + 3, reached + 3], "what is begun is committed"
        assert run.wait() == 0
    assert found_in(tmp_path) == reached + 3
    with FolderStore(tmp_path) as store:
        listed = {entry.name for entry in store.entries()}
        assert [store.verify(entry) for entry in store.entries()] == [None] * len(listed)
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    # What the last life resumed from is kept for its time.
    assert listed == {f"iter_{reached}.pth", f"iter_{reached + 3}.pth", "last.pth"}
    assert files - {".lock", "manifest.json", "metrics.jsonl", "result.json"} == listed, "nothing is left behind"
