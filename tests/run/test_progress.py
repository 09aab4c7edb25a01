"""`progress.py`: finished iterations and epochs, wherever in a run somebody asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import attach_hooks
from ignite_hooks.run.progress import finished_epochs, finished_iterations, planned_epochs, progress_of

DATA = [1, 2, 3]


@pytest.mark.parametrize(
    ("event", "iteration", "epoch"),
    [
        (Events.ITERATION_STARTED(once=5), 4, 1),
        (Events.ITERATION_COMPLETED(once=5), 5, 1),
        (Events.ITERATION_COMPLETED(once=6), 6, 2),
        (Events.EPOCH_COMPLETED(once=2), 6, 2),
        (Events.EPOCH_STARTED(once=2), 3, 1),
        (Events.STARTED, 0, 0),
    ],
)
def test_only_what_is_finished_counts(event: Any, iteration: int, epoch: int, tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: 0.5)
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    seen: list[Any] = []
    trainer.add_event_handler(event, lambda: seen.append(progress_of(runner)))
    trainer.run(DATA, max_epochs=3)
    assert [(seen[0].iteration, seen[0].epoch)] == [(iteration, epoch)]
    assert seen[0].begun == iteration + seen[0].in_step
    assert (finished_iterations(runner), finished_epochs(runner)) == (9, 3)


@pytest.mark.parametrize(
    ("limits", "epochs"),
    [({"max_epochs": 4}, 4), ({"max_iters": 7}, 3), ({"max_iters": 6}, 2)],
)
def test_planned_epochs_are_those_the_run_will_begin(limits: dict[str, int], epochs: int, tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: 0.5)
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    seen: list[int | None] = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=1), lambda: seen.append(planned_epochs(runner)))
    trainer.run(DATA, **limits)
    assert seen == [epochs]
