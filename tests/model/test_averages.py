from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.averages import Averages, TensorAverages, state_of


class Mixed(nn.Module):
    """One of everything: small and large, shared, frozen, channels last, strided, whole numbers, masks."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def some(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(dtype)

        self.large = nn.Parameter(some(130, 130))
        self.odd = nn.Parameter(some(20_001))
        self.small = nn.Parameter(some(3, 2))
        self.scalar = nn.Parameter(some(1).squeeze())
        self.tied = self.small
        self.frozen = nn.Parameter(some(4), requires_grad=False)
        self.pixels = nn.Parameter(some(2, 3, 4, 5).to(memory_format=torch.channels_last))
        self.every_second = nn.Parameter(some(10)[::2])
        self.empty = nn.Parameter(some(0))
        self.whole = nn.Parameter(torch.tensor([1, 2]), requires_grad=False)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))
        self.register_buffer("passing", torch.ones(2), persistent=False)


def move(model: nn.Module, generator: torch.Generator) -> None:
    """Change the model like an optimizer and forward passes."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype), alpha=0.1)
        for buffer in model.buffers():
            buffer.add_(1)


def step(averages: Averages, momentum: float) -> bool:
    averages.refresh()
    return averages.buffers.update(momentum) & averages.weights.update(momentum)


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n].nan_to_num(), other[n].nan_to_num()) for n in one)


def test_shared_weights_are_averaged_once_and_saved_twice() -> None:
    averages = Averages(Mixed())
    assert "small" in averages.weights.values
    assert "tied" not in averages.weights.values
    found = averages.state_dict()
    assert found["tied"] is found["small"]
    assert found.keys() == averages.model.state_dict().keys()


@pytest.mark.usefixtures("layouts")
def test_frozen_weights_keep_every_bit() -> None:
    model = Mixed()
    averages = Averages(model)
    for _ in range(3):
        move(model, torch.Generator().manual_seed(1))
        step(averages, 0.9)
    assert torch.equal(averages.state_dict()["frozen"], model.frozen)


@pytest.mark.parametrize("buffers", [False, True])
def test_buffers_are_averaged_if_asked_for_and_possible(buffers: bool) -> None:
    model = Mixed()
    averages = Averages(model, buffers=buffers)
    assert list(averages.buffers.values) == (["norm.running_mean", "norm.running_var"] if buffers else [])
    move(model, torch.Generator().manual_seed(1))
    step(averages, 0.75)
    found = averages.state_dict()
    assert torch.equal(found["norm.running_mean"], torch.full((3,), 0.25 if buffers else 1.0))
    assert torch.equal(found["norm.num_batches_tracked"], torch.tensor(1))
    assert torch.equal(found["mask"], torch.tensor([1.0, -math.inf]))
    live = {b.data_ptr() for b in model.buffers()} | {model.whole.data_ptr()}
    assert not live & {found[n].data_ptr() for n in found if found[n].numel()}
    averages.swap_in()
    assert model.norm.running_mean[0] == (0.25 if buffers else 1.0)
    model.norm.running_mean.add_(5)  # an evaluation in training mode
    averages.swap_out()
    assert model.norm.running_mean[0] == 1.0
    assert torch.equal(averages.state_dict()["norm.running_mean"], torch.full((3,), 0.25 if buffers else 1.0))


@pytest.mark.parametrize("buffers", [False, True])
def test_what_is_saved_in_an_evaluation_has_the_models_own_buffers(buffers: bool) -> None:
    model = Mixed()
    averages = Averages(model, buffers=buffers)
    move(model, torch.Generator().manual_seed(1))
    step(averages, 0.75)
    raw, expected = copies(dict(model.state_dict())), copies(averages.state_dict())
    averages.swap_in()
    model.norm.num_batches_tracked.add_(7)
    if not buffers:
        model.norm.running_mean.add_(5)
    assert same(copies(averages.raw_state_dict()), raw)
    assert same(copies(averages.state_dict()), expected)
    assert model.norm.num_batches_tracked == 8, "the evaluation goes on with its own"
    averages.swap_out()
    assert same(dict(model.state_dict()), raw)


@pytest.mark.parametrize("buffers", [False, True])
def test_averages_swapped_in_inference_mode_can_be_differentiated(buffers: bool) -> None:
    """A picture that explains a prediction is made by a backward pass within an evaluation."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).eval()
    averages = Averages(model, buffers=buffers)
    with torch.inference_mode():
        averages.swap_in()
        with torch.inference_mode(False):
            model(torch.ones(2, 2)).sum().backward()
    averages.swap_out()
    assert all(weight.grad is not None and not weight.is_inference() for weight in model.parameters())
    assert not any(tensor.is_inference() for tensor in (*model.buffers(), *averages.tensors()))


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda part: torch.compile(part, backend="eager")])
@pytest.mark.parametrize("swapped", [False, True])
def test_averages_of_parts_wrapped_alone_have_plain_names(wrap: Callable[[Any], Any], swapped: bool) -> None:
    plain = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model = nn.Sequential(wrap(nn.Linear(2, 3)), wrap(nn.BatchNorm1d(3)))
    averages = Averages(model, buffers=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    step(averages, 0.75)
    if swapped:
        averages.swap_in()
    saved = copies(averages.state_dict())
    raw = averages.raw_state_dict() if swapped else state_of(model)
    assert saved.keys() == raw.keys() == plain.state_dict().keys()
    assert not torch.equal(saved["0.weight"], raw["0.weight"])
    averages.swap_out()
    older = dict(zip(model.state_dict(), saved.values(), strict=True))
    for state in (saved, older):
        for into in (plain, model):
            other = Averages(into, buffers=True)
            other.load_state_dict(state)
            assert same(dict(other.state_dict()), saved)


def test_a_checkpoint_loaded_in_an_evaluation_sets_the_models_own_buffers() -> None:
    model, other = Mixed(), Mixed()
    averages = Averages(model)
    move(other, torch.Generator().manual_seed(2))
    averages.swap_in()
    model.load_state_dict(other.state_dict())
    averages.keep_as_raw()
    averages.swap_out()
    assert same(dict(model.state_dict()), dict(other.state_dict()))


def reassign_data(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data + 1 if parameter.is_floating_point() else parameter.data


def assign(model: Mixed) -> None:
    model.load_state_dict({n: (v + 1).clone() for n, v in model.state_dict().items()}, assign=True)


def to_double(model: Mixed) -> None:
    model.double()


def to_half_and_on(model: Mixed) -> None:
    model.bfloat16()


def replace_one(model: Mixed) -> None:
    model.large = nn.Parameter(model.large.detach() + 1)


def channels_last(model: Mixed) -> None:
    model.pixels.data = model.pixels.data.contiguous()


@pytest.mark.usefixtures("layouts")
@pytest.mark.parametrize(
    "change", [reassign_data, assign, to_double, to_half_and_on, replace_one, channels_last], ids=lambda f: f.__name__
)
def test_replaced_weights_are_averaged(change: Callable[[Mixed], None]) -> None:
    model = Mixed()
    averages = Averages(model)
    step(averages, 0.5)
    before = copies(averages.weights.values)
    change(model)
    move(model, torch.Generator().manual_seed(2))
    step(averages, 0.5)
    found = averages.state_dict()
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            now = parameter.detach().double()
            # ``assign`` ends the sharing: what has been "tied" to another begins as its weights.
            expected = (before[name].double() + now) / 2 if name in before else now
            assert torch.allclose(found[name].double(), expected, atol=1e-6), name
    averages.swap_in()
    averages.swap_out()


@pytest.mark.usefixtures("layouts")
def test_the_layout_stays_while_the_weights_stay_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Mixed()
    averages = Averages(model, buffers=True)
    fits: list[TensorAverages] = []
    whole = TensorAverages.fit
    monkeypatch.setattr(TensorAverages, "fit", lambda part: (fits.append(part), whole(part)))
    for _ in range(3):
        move(model, torch.Generator().manual_seed(2))
        step(averages, 0.9)
        averages.swap_in()
        averages.swap_out()
    model.load_state_dict(model.state_dict())
    step(averages, 0.9)
    assert fits == []
    reassign_data(model)
    step(averages, 0.9)
    assert fits == [averages.weights]


@pytest.mark.usefixtures("layouts")
def test_a_new_layer_begins_as_its_weights() -> None:
    model = Mixed()
    averages = Averages(model)
    del model.large
    model.added = nn.Linear(2, 2)
    step(averages, 0.9)
    found = averages.state_dict()
    assert found.keys() == model.state_dict().keys()
    assert torch.allclose(found["added.weight"], model.added.weight)


@pytest.mark.usefixtures("layouts")
def test_swapping_copies_nothing_and_restores_every_bit() -> None:
    model = Mixed()
    averages = Averages(model)
    objects = list(model.parameters())
    move(model, torch.Generator().manual_seed(3))
    step(averages, 0.9)
    raw, where = copies(model.state_dict()), [p.data_ptr() for p in objects]
    expected = copies(averages.state_dict())
    averages.swap_in()
    averages.swap_in()
    assert averages.swapped
    assert same(dict(model.state_dict()), expected)
    floating = [p for p in objects if p.is_floating_point() and p.numel()]
    assert {p.data_ptr() for p in floating} == {v.data_ptr() for v in averages.tensors() if v.numel()}
    assert [p.stride() for p in floating if p is model.pixels] == [model.pixels.stride()]
    assert same(averages.raw_state_dict(), raw)
    assert averages.swapped
    averages.swap_out()
    averages.swap_out()
    assert same(dict(model.state_dict()), raw)
    assert [p.data_ptr() for p in objects] == where
    assert all(a is b for a, b in zip(objects, model.parameters(), strict=True))
    assert same(averages.state_dict(), expected)


@pytest.mark.usefixtures("layouts")
def test_saved_averages_load_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(4)
    model, other = Mixed(), Mixed()
    averages, again = Averages(model, buffers=True), Averages(other, buffers=True)
    move(model, generator)
    step(averages, 0.9)
    again.load_state_dict(copies(averages.state_dict()))
    other.load_state_dict(model.state_dict())
    assert same(again.state_dict(), averages.state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"small": None}, "the averages do not fit the model: small is missing$"),
        ({"strange": torch.ones(1)}, "the averages do not fit the model: strange is not in the model$"),
        ({"odd": torch.ones(2, 1)}, r"odd is of shape \(2, 1\), not \(20001,\)$"),
        (dict.fromkeys(("small", "odd", "large", "scalar", "tied", "frozen", "pixels")), "odd is missing.* and 2 more"),
    ],
)
def test_averages_of_another_model_are_refused(change: dict[str, Any], message: str) -> None:
    averages = Averages(Mixed())
    before = copies(averages.state_dict())
    state = {n: v for n, v in {**averages.model.state_dict(), **change}.items() if v is not None}
    with pytest.raises(CheckpointError, match=message):
        averages.load_state_dict(state)
    assert same(averages.state_dict(), before)
