from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.averages import Averages, TensorAverages, parameters
from ignite_hooks.model.averaging_kernels import TOGETHER, DeviceUpdate, is_dense


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


def update_as_on_device(part: TensorAverages) -> None:
    """Update tensors of the CPU as those of a GPU."""
    part.strategy = DeviceUpdate(part.layout, part._skipped)


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n].nan_to_num(), other[n].nan_to_num()) for n in one)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_averages_follow_the_formula_up_to_rounding(dtype: torch.dtype, on_device: bool) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    model = Mixed(dtype)
    averages = Averages(model)
    if on_device:
        update_as_on_device(averages.weights)
    exact = {name: p.detach().to(torch.complex128) for name, p in model.named_parameters()}
    for _ in range(20):
        move(model, generator)
        momentum = draw.uniform(0.01, 0.9999)
        assert step(averages, momentum)
        for name, parameter in model.named_parameters():
            exact[name] = momentum * exact[name] + (1 - momentum) * parameter.detach().to(torch.complex128)
    found = averages.state_dict()
    for name, value in exact.items():
        assert torch.allclose(found[name].to(torch.complex128), value, rtol=1e-4, atol=1e-5), name
        assert found[name].dtype == dict(model.named_parameters())[name].dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_averages_of_half_precision_keep_small_steps(dtype: torch.dtype) -> None:
    model = nn.ParameterList([torch.ones(4, dtype=dtype), torch.ones(20_000, dtype=dtype)])
    averages = Averages(model)
    with torch.no_grad():
        for parameter in model:
            parameter.fill_(2)
    for _ in range(10):
        assert step(averages, 0.9999)
    for value in averages.state_dict().values():
        assert value.dtype == torch.float32
        assert torch.allclose(value, torch.tensor(2 - 0.9999**10), atol=1e-5)
    averages.swap_in()
    assert [p.dtype for p in model] == [dtype, dtype]
    averages.swap_out()
    assert all(bool((p == 2).all()) for p in model)


def test_shared_weights_are_averaged_once_and_saved_twice() -> None:
    averages = Averages(Mixed())
    assert "small" in averages.weights.values
    assert "tied" not in averages.weights.values
    found = averages.state_dict()
    assert found["tied"] is found["small"]
    assert found.keys() == averages.model.state_dict().keys()


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
    assert model.norm.running_mean[0] == (1.0 if buffers else 6.0)
    assert torch.equal(averages.state_dict()["norm.running_mean"], torch.full((3,), 0.25 if buffers else 6.0))


NAMES = ("large", "odd", "small", "scalar", "pixels", "every_second", "norm.weight")


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_one_number_that_is_not_finite_skips_the_update(name: str, value: float, on_device: bool) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    model, generator = Mixed(), torch.Generator().manual_seed(seed)
    averages = Averages(model)
    if on_device:
        update_as_on_device(averages.weights)
    move(model, generator)
    assert step(averages, 0.9)
    before, good = copies(averages.state_dict()), copies(model.state_dict())
    move(model, generator)
    parameter = model.get_parameter(name)
    at = tuple(random.Random(seed).randrange(size) for size in parameter.shape)
    with torch.no_grad():
        parameter[at] = value
    done = step(averages, 0.9)
    assert (averages.weights.take_skipped() if on_device else not done) == 1
    assert averages.weights.take_skipped() == 0
    now = averages.state_dict()
    assert all(torch.equal(now[n], before[n]) for n in averages.weights.values)
    # Afterwards updates go on.
    model.load_state_dict(good)
    assert step(averages, 0.9)
    assert averages.weights.take_skipped() == 0
    assert all(bool(torch.isfinite(torch.view_as_real(v + 0j)).all()) for v in averages.weights.values.values())


def test_the_last_of_an_odd_number_of_elements_is_checked() -> None:
    model = nn.ParameterList([torch.ones(20_001)])
    averages = Averages(model)
    for at in (0, 10_000, 20_000):
        with torch.no_grad():
            model[0].fill_(1)[at] = math.nan
        assert not step(averages, 0.9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_whose_sum_is_too_large_are_finite(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    model = nn.ParameterList([torch.full((5,), largest, dtype=dtype), torch.full((20_000,), largest, dtype=dtype)])
    averages = Averages(model)
    assert step(averages, 0.9)
    assert all(bool(torch.isfinite(value).all()) for value in averages.tensors())


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


# -- deferred updates ----------------------------------------------------------------------------


class Small(nn.Module):
    """One pack is all there is."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 4, generator=generator))
        self.bias = nn.Parameter(torch.randn(5, generator=generator))


@pytest.mark.parametrize("count", [1, TOGETHER - 1, TOGETHER, 3 * TOGETHER + 2])
@pytest.mark.parametrize("bad", [(), (2,), (1, 2, 9)])
def test_deferred_updates_equal_immediate_ones_bit_for_bit(count: int, bad: tuple[int, ...]) -> None:
    model = Small()
    at_once, deferrable = Averages(model), Averages(model, deferrable=True)
    generator = torch.Generator().manual_seed(1)
    made, left_out = 0, []
    for n in range(1, count + 1):
        move(model, generator)
        kept = model.bias.detach().clone()
        if n in bad:
            model.bias.data[-1] = math.nan
        momentum = n / (9 + n)
        at_once.weights.update(momentum)
        assert deferrable.weights.deferred is not None
        if deferrable.weights.deferred.record(momentum, n):
            outcome = deferrable.catch_up()
            made, left_out = made + outcome[0], left_out + outcome[1]
        model.bias.data.copy_(kept)
    outcome = deferrable.catch_up()
    made, left_out = made + outcome[0], left_out + outcome[1]
    assert left_out == [n for n in bad if n <= count]
    assert made == count - len(left_out)
    assert same(deferrable.weights.values, at_once.weights.values)
    assert deferrable.catch_up() == (0, [])


def test_deferred_updates_accept_numbers_with_too_large_squares() -> None:
    model = Small()
    deferrable = Averages(model, deferrable=True)
    model.weight.data.fill_(1e30)
    assert deferrable.weights.deferred is not None
    for n in (1, 2):
        deferrable.weights.deferred.record(0.0, n)
    assert deferrable.catch_up() == (2, [])
    assert bool((deferrable.weights.values["weight"] == 1e30).all())


@pytest.mark.parametrize("change", [lambda model: reassign_data(model), lambda model: model.double()])
def test_deferred_updates_are_made_before_tensors_change(change: Callable[[nn.Module], object]) -> None:
    model = Small()
    at_once, deferrable = Averages(model), Averages(model, deferrable=True)
    for n in (1, 2, 3):
        if n == 3:
            change(model)
        move(model, torch.Generator().manual_seed(n))
        for averages in (at_once, deferrable):
            averages.refresh()
        at_once.weights.update(0.5)
        assert deferrable.weights.deferred is not None
        deferrable.weights.deferred.record(0.5, n)
    assert deferrable.catch_up() == (3, [])
    assert same(deferrable.weights.values, at_once.weights.values)


def test_only_small_models_on_the_cpu_are_deferred() -> None:
    assert Averages(Mixed(), deferrable=True).weights.deferred is None
    assert Averages(nn.Linear(200, 200), deferrable=True).weights.deferred is None
    assert Averages(Small().half(), deferrable=True).weights.deferred is None
    assert Averages(Small()).weights.deferred is None


def test_a_new_layer_begins_as_its_weights() -> None:
    model = Mixed()
    averages = Averages(model)
    del model.large
    model.added = nn.Linear(2, 2)
    step(averages, 0.9)
    found = averages.state_dict()
    assert found.keys() == model.state_dict().keys()
    assert torch.allclose(found["added.weight"], model.added.weight)


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


def test_dense_tensors_fill_a_range_of_memory() -> None:
    whole = torch.ones(2, 3, 4, 5)
    assert is_dense(whole)
    assert is_dense(whole.to(memory_format=torch.channels_last))
    assert is_dense(torch.ones(3, 4).t())
    assert not is_dense(whole[:, :, ::2])
    assert not is_dense(torch.ones(3, 1).expand(3, 4))
    assert [place.name for place in parameters(nn.Linear(2, 2))] == ["weight", "bias"]
