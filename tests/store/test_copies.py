"""`copies.py`: copies of a state in memory that is reused."""

from __future__ import annotations

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.buffers import Buffers
from ignite_hooks.store.copies import Copies


def test_memory_freed_before_its_copy_is_noticed() -> None:
    weight = torch.ones(100_000)
    copies = Copies([weight], [weight], Buffers())
    weight.untyped_storage().resize_(0)
    copies.wait()
    with pytest.raises(CheckpointError, match=r"w was changed"):
        copies.synchronize({"w": weight})


def test_a_buffer_grows_and_is_used_again() -> None:
    buffers = Buffers()
    addresses = []
    for size in 10, 10_000, 5, 10_000:
        weight = torch.full((size,), float(size))
        copies = Copies([weight], [], buffers)
        (view,) = map(copies.image.bytes_of, copies.image.places)
        assert bytes(view) == weight.numpy().tobytes()
        addresses.append(copies._buffer.address)
        assert addresses[-1] % 64 == 0
        copies.release()
    assert addresses[1:] == [addresses[1]] * 3


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_only_steady_tensors_are_copied_later(kept: int) -> None:
    weights = [torch.full((3,), float(number)) for number in range(2)]
    copies = Copies(weights, weights[:kept], Buffers())
    for weight in weights[kept:]:
        weight.fill_(9.0)
    copies.wait()
    for weight in weights:
        weight.fill_(9.0)
    copies.synchronize({})
    assert copies._over
    held = [
        torch.frombuffer(bytearray(view), dtype=torch.float32).tolist()
        for view in map(copies.image.bytes_of, copies.image.places)
    ]
    assert sorted(held) == [[0.0] * 3, [1.0] * 3]


def test_of_a_storage_that_is_shared_there_is_one_copy() -> None:
    weight = torch.arange(6.0)
    copies = Copies([weight, weight.view(2, 3), weight[:]], [], Buffers())
    assert len(copies.image.places) == 1
