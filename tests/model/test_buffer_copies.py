"""`buffer_copies.py`: what an evaluation does to buffers does not reach the training."""

from __future__ import annotations

import torch
from torch import nn

from ignite_hooks.model.buffer_copies import BufferCopies


class Tied(nn.Module):
    """A model with buffers of each kind: shared, replaced in the forward pass, not saved, empty."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
        self.other.running_mean = self.norm.running_mean
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        self.passing.add_(1)
        return self.other(self.norm(x))  # type: ignore[no-any-return]


def values(model: nn.Module) -> list[list[float]]:
    return [buffer.flatten().tolist() for buffer in model.buffers()]


def test_the_model_gets_its_own_buffers_back() -> None:
    model = Tied()
    copies, before, objects = BufferCopies(model), values(model), list(model.buffers())
    where = [buffer.data_ptr() for buffer in objects]
    copies.swap_in()
    assert values(model) == before
    assert not set(where) & {buffer.data_ptr() for buffer in copies.tensors()}
    model(torch.randn(4, 2) + 5)
    assert values(model) != before
    assert model.norm.running_mean is model.other.running_mean
    copies.swap_out()
    assert values(model) == before
    assert [buffer.data_ptr() for buffer in model.buffers()] == where
    assert all(one is other for one, other in zip(objects, model.buffers(), strict=True))
    assert not copies.tensors()


def test_a_buffer_with_an_average_is_left_alone() -> None:
    model = Tied()
    copies = BufferCopies(model)
    copies.swap_in({id(model.calls)})
    assert not any(tensor is model.calls for tensor in copies.tensors())


def test_copies_can_be_put_away_for_a_while() -> None:
    model = Tied()
    copies, before = BufferCopies(model), values(model)
    copies.swap_in()
    model(torch.randn(4, 2) + 5)
    changed = values(model)
    taken = copies.take()
    copies.swap_out()
    assert values(model) == before
    copies.swap_in()
    copies.put(taken)
    assert values(model) == changed
    copies.swap_out()
    assert values(model) == before
