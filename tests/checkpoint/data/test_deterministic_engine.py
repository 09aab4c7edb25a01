"""`deterministic_engine.py`: a run of Ignite's DeterministicEngine resumes exactly wherever it was stopped."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ignite.engine import Events
from ignite.engine.deterministic import DeterministicEngine
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from ignite_hooks import attach_hooks
from tests.checkpoint.data.test_position import (
    EXACT,
    LENGTHS,
    WORKERS,
    Noisy,
    Shelf,
    Taker,
    check_resumes,
    generator,
    script,
    stops_of,
)
from tests.checkpoint.script.test_own_state import Python


class Shuffled(BatchSampler):
    """A batch sampler that draws while it is read."""

    def __init__(self) -> None:
        super().__init__(RandomSampler(range(10)), 2, False)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            yield sorted(batch, key=lambda index: random.random())


NOT_FOR_IGNITE = ("nothing", "own loader")
"""Data with which Ignite's DeterministicEngine fails by itself."""
MADE: dict[str, Callable[[], Any]] = {
    **{name: make for name, make in EXACT.items() if name not in NOT_FOR_IGNITE},
    "own batch sampler": lambda: DataLoader(Noisy(), batch_sampler=Shuffled()),
    "sampler with random.Random": lambda: DataLoader(Noisy(), 2, sampler=Python()),
}


@pytest.fixture(autouse=True)
def warnings_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ignite_hooks")


def run_in_parts(make: Callable[[], Any], stops: list[int], **options: Any) -> list[Any]:
    log: list[Any] = []
    shelf, source = Shelf(), None
    for number, at in enumerate([*stops, -1]):
        seed = 100 * number
        script(make, log, Taker(shelf, at), shelf=source, seed=seed, engine=DeterministicEngine, **options).run()
        source = shelf
    return log


# Ignite says itself that it cannot repeat the order of a distributed sampler with another length.
@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "length"),
    [(name, length) for name in MADE for length in LENGTHS if name != "distributed sampler" or LENGTHS[length] is None],
)
def test_it_resumes_exactly_wherever_it_was_stopped(name: str, length: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {"epoch_length": LENGTHS[length], "max_iters": 13, "engine": DeterministicEngine}
    assert len(check_resumes(MADE[name], stops_of(name, LENGTHS[length]), **options)) == 13
    if name != "stream of known length":
        assert "approximate" not in caplog.text


@pytest.mark.parametrize("name", WORKERS)
def test_what_workers_draw_is_exact_too(name: str) -> None:
    whole = run_in_parts(WORKERS[name], [], max_epochs=2)
    assert run_in_parts(WORKERS[name], [2, 5, 8], max_epochs=2) == whole


@pytest.mark.parametrize("at", [1, 3, 7, 8])
def test_it_resumes_exactly_after_an_epoch_ended_early(at: int) -> None:
    def extra(made: Any) -> None:
        made.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: made.trainer.terminate_epoch())

    whole = run_in_parts(EXACT["shuffled"], [], extra=extra)
    assert run_in_parts(EXACT["shuffled"], [at], extra=extra) == whole


def test_a_pass_that_began_in_its_middle_resumes_exactly() -> None:
    """A stopped run that goes on in the same process skips to where it was, as Ignite's engine does."""

    def twice(stops: list[int]) -> list[Any]:
        log: list[Any] = []
        shelf = Shelf()
        made = script(EXACT["shuffled"], log, Taker(shelf, stops[0] if stops else -1), engine=DeterministicEngine)
        made.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=7), lambda: made.trainer.terminate())
        made.run(), torch.manual_seed(7), made.run()
        if stops:
            script(EXACT["shuffled"], log, shelf=shelf, seed=5, engine=DeterministicEngine).run()
        return log

    assert twice([9]) == twice([])


def seen_by_a_script(make: Callable[[], Any], attached: bool) -> list[Any]:
    torch.manual_seed(0), random.seed(0)
    seen: list[Any] = []
    trainer = DeterministicEngine(lambda engine, batch: seen.append((str(batch), float(torch.rand(())))))
    for event in (Events.STARTED, Events.EPOCH_STARTED, Events.EPOCH_COMPLETED):
        trainer.add_event_handler(event, lambda: seen.append((float(torch.rand(())), random.random())))
    if attached:
        attach_hooks(trainer, [], work_dir="unused")
    trainer.run(make(), max_epochs=3, epoch_length=4)
    return seen


@pytest.mark.parametrize("name", ["shuffled", "own generator", "own batch sampler", "no batches"])
def test_an_attached_run_draws_as_one_without_hooks(name: str) -> None:
    def make() -> Any:
        return DataLoader(range(12), batch_sampler=Shuffled()) if name == "own batch sampler" else MADE[name]()  # type: ignore[arg-type]

    assert seen_by_a_script(make, attached=True) == seen_by_a_script(make, attached=False)


def test_the_warning_of_ignite_is_still_given() -> None:
    def make() -> Any:
        return DataLoader(Noisy(), 2, sampler=DistributedSampler(Noisy(), num_replicas=1, rank=0))

    with pytest.warns(UserWarning, match="can not be setup in a reproducible manner"):
        seen_by_a_script(make, attached=True)


def test_a_checkpoint_without_seed_is_read(caplog: pytest.LogCaptureFixture) -> None:
    shelf, log = Shelf(), []
    script(EXACT["shuffled"], log, Taker(shelf, 7)).run()
    del shelf.content["data"]["seed"]
    script(EXACT["shuffled"], log, shelf=shelf, seed=5).run()
    assert len(log) == 15
    assert "approximate" not in caplog.text


def test_a_generator_of_the_sampler_survives_the_replacement_of_the_loader() -> None:
    def make() -> Any:
        return DataLoader(Noisy(), 2, sampler=RandomSampler(Noisy(), generator=generator()))

    whole = run_in_parts(make, [], max_epochs=4)
    assert run_in_parts(make, [3, 5, 12], max_epochs=4) == whole
