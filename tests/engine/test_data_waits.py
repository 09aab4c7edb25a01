"""`data_waits.py`: a few batches are measured, and all other iterations are as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ignite.engine import Engine, Events

from ignite_hooks.engine.data_waits import MEASURED, PASSED_OVER, DataWaits


class Slow:
    """Data that takes a second for each batch, by its own clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        for number in range(40):
            self.now += 1.0
            yield number


def handlers(trainer: Engine) -> int:
    return sum(len(trainer._event_handlers.get(e, ())) for e in (Events.GET_BATCH_STARTED, Events.GET_BATCH_COMPLETED))


@pytest.mark.parametrize(("interval", "watched"), [(50, PASSED_OVER + MEASURED), (20, PASSED_OVER + MEASURED), (5, 40)])
def test_a_few_batches_are_measured(interval: int, watched: int) -> None:
    data, seen = Slow(), []
    trainer = Engine(lambda engine, batch: setattr(data, "now", data.now + 10.0))
    waits = DataWaits(trainer, lambda: data.now)
    trainer.add_event_handler(Events.STARTED, lambda: waits.measure(interval))
    trainer.add_event_handler(Events.ITERATION_STARTED, lambda: seen.append(handlers(trainer) > 0))
    trainer.run(data)
    assert waits.mean() == 1.0
    # The handlers go with the last batch.
    assert sum(seen) == (watched if watched == 40 else watched - 1)
    waits.stop()
    assert handlers(trainer) == 0


def test_without_data_there_is_no_wait() -> None:
    trainer = Engine(lambda engine, batch: None)
    waits = DataWaits(trainer, lambda: 0.0)
    trainer.add_event_handler(Events.STARTED, lambda: waits.measure(50))
    trainer.run(max_epochs=1, epoch_length=20)
    assert waits.mean() is None
