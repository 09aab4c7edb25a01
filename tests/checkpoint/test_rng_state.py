"""`rng_state.py`: the random generators continue where they were."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from ignite_hooks.checkpoint.rng_state import preserve_rng, random_state, restore_rng, rng_state, set_random_state
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import to_plain


def through_a_file(value: object) -> Any:
    file = io.BytesIO()
    torch.save(to_plain({"value": value}), file)
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)["value"]


def draw() -> list[float]:
    numbers = [random.random(), random.gauss(0, 1), float(numpy.random.rand()), float(numpy.random.randn())]
    return [*numbers, float(torch.rand(()))]


def test_the_generators_continue_where_they_were() -> None:
    draw()  # a gauss drawn in pairs leaves a number for next time
    state = through_a_file(random_state())
    expected = [draw() for _ in range(3)]
    set_random_state(state)
    assert [draw() for _ in range(3)] == expected


def test_a_generator_that_the_state_does_not_mention_stays() -> None:
    before = random.getstate()
    set_random_state({"torch": torch.get_rng_state()})
    assert random.getstate() == before


@pytest.mark.parametrize("part", [{"python": {}}, {"torch": 3}, {"numpy": {"name": "x"}}, {"python": [1]}])
def test_a_random_state_that_makes_no_sense_is_an_error(part: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="random state: cannot be restored"):
        set_random_state(part)


def shuffled() -> DataLoader[int]:
    data: Any = range(8)
    return DataLoader(data, sampler=RandomSampler(data, generator=torch.Generator()))


def test_the_generator_of_a_sampler_is_restored() -> None:
    loader = shuffled()
    state = through_a_file(rng_state(loader))
    expected = [batch.item() for batch in loader], draw()
    restore_rng(loader, state)
    assert ([batch.item() for batch in loader], draw()) == expected


def test_preserve_rng_undoes_what_a_block_draws() -> None:
    loader = shuffled()
    state = rng_state(loader)
    expected = [batch.item() for batch in loader], draw()
    restore_rng(loader, state)
    with preserve_rng(loader):
        list(loader), draw()
    assert ([batch.item() for batch in loader], draw()) == expected
