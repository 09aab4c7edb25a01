"""`loader_parts.py`: samplers of samplers and their generators are found, each once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from ignite_hooks.checkpoint.data.loader_parts import is_stream, loader_generators, loader_parts
from ignite_hooks.checkpoint.data.rest_of_epoch import counts_of
from ignite_hooks.checkpoint.rng_state import loader_state
from ignite_hooks.checkpoint.script.own_state import OwnState
from ignite_hooks.distributed.batch_sharing import why_not_shared
from ignite_hooks.engine.training_data import drawn_by
from ignite_hooks.model.loader_workers import has_persistent_workers, has_workers


def test_a_generator_in_several_parts_is_found_once() -> None:
    data: Any = range(8)
    mine = torch.Generator()
    batches = BatchSampler(RandomSampler(data, generator=mine), 2, False)
    parts = loader_parts(DataLoader(data, batch_sampler=batches, generator=mine))
    assert {"", "batch_sampler.", "batch_sampler.sampler."} <= {*parts}
    assert [*loader_generators(parts).values()] == [mine]


class NeverMade(DataLoader[int]):
    """A loader of a script that inherits only the name."""

    def __init__(self) -> None:
        self.calls = 0

    def __iter__(self) -> Any:
        self.calls += 1
        yield from range(4)


@pytest.mark.parametrize(
    ("look", "found"),
    [
        (lambda data: [*loader_parts(data)], [""]),
        (is_stream, False),
        (counts_of, None),
        (lambda data: has_workers(data) or has_persistent_workers(data), False),
        (lambda data: loader_state(data, OwnState(data))["own"], {}),
        (lambda data: [*iter(data)] and OwnState(data).unkept(), []),
        (lambda data: drawn_by(data).dataset, None),
        (why_not_shared, "NeverMade has its own __iter__"),
    ],
)
def test_a_loader_that_was_never_made_has_no_parts(look: Any, found: Any) -> None:
    assert look(NeverMade()) == found
