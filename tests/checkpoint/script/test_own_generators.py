"""`own_generators.py`: generators that are objects continue where they were."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks import CheckpointError
from ignite_hooks.checkpoint.script.own_generators import generator_state, is_generator, set_generator_state
from ignite_hooks.store import to_plain

MAKERS: dict[str, Any] = {
    "python": random.Random,
    "RandomState": numpy.random.RandomState,
    "torch": lambda seed: torch.Generator().manual_seed(seed),
    **{
        kind: lambda seed, kind=kind: numpy.random.Generator(getattr(numpy.random, kind)(seed))
        for kind in ("PCG64", "MT19937", "Philox", "SFC64", "PCG64DXSM")
    },
}


def draw(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.rand(5, generator=generator).tolist()  # type: ignore[no-any-return]
    if isinstance(generator, random.Random):
        return [generator.random(), generator.gauss(0, 1), generator.random()]
    # An odd number of 32-bit draws leaves half of one.
    return [*generator.normal(size=3), *generator.random(3)]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_generator_continues_after_a_file(kind: str) -> None:
    one, other = MAKERS[kind](1), MAKERS[kind](2)
    draw(one)
    file = io.BytesIO()
    torch.save(to_plain(generator_state(one)), file)
    file.seek(0)
    set_generator_state(other, torch.load(file, weights_only=True))
    assert is_generator(one)
    assert draw(other) == draw(one)


@pytest.mark.parametrize("state", [{}, {"kind": "python"}, {"kind": "python", "version": 3, "numbers": [1]}])
def test_a_state_that_makes_no_sense_is_an_error(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="cannot be restored"):
        set_generator_state(random.Random(0), state)


def test_an_array_of_another_type_is_refused() -> None:
    state = generator_state(numpy.random.RandomState(0))
    state["state"]["state"]["key"]["type"] = "object"
    with pytest.raises(CheckpointError, match="an array of object belongs to no generator"):
        set_generator_state(numpy.random.RandomState(0), state)
