"""The updates of averages: one strategy for each kind of model."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

from ignite_hooks.model import averaging_kernels
from ignite_hooks.model.averages import Averages, TensorAverages, parameters
from ignite_hooks.model.averaging_kernels import (
    LINE,
    TOGETHER,
    TOO_FEW,
    DeviceUpdate,
    EmptyUpdate,
    HostUpdate,
    Layout,
    LayoutChanged,
    SkipCounter,
    TinyUpdate,
    _halves,
    is_dense,
    strategy_for,
)
from tests.model.test_averages import Mixed, copies, move, reassign_data, same, step


def update_as_on_device(part: TensorAverages) -> None:
    """Update tensors of the CPU as those of a GPU."""
    part.strategy = DeviceUpdate(part.layout, part._skipped)


@pytest.mark.usefixtures("layouts")
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


NAMES = ("large", "odd", "small", "scalar", "pixels", "every_second", "norm.weight")


@pytest.mark.usefixtures("layouts")
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


@pytest.mark.parametrize("size", [1, 15, 16, 17, 33, 20_001])
def test_halves_cover_every_element_and_begin_at_cache_lines(size: int) -> None:
    flat = torch.arange(size)
    one, other = _halves(flat)
    assert one.shape == other.shape
    assert set(one.tolist()) | set(other.tolist()) == set(range(size))
    assert (other.data_ptr() - flat.data_ptr()) % (LINE * flat.element_size()) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_whose_sum_is_too_large_are_finite(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    model = nn.ParameterList([torch.full((5,), largest, dtype=dtype), torch.full((20_000,), largest, dtype=dtype)])
    averages = Averages(model)
    assert step(averages, 0.9)
    assert all(bool(torch.isfinite(value).all()) for value in averages.tensors())


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


def test_dense_tensors_fill_a_range_of_memory() -> None:
    whole = torch.ones(2, 3, 4, 5)
    assert is_dense(whole)
    assert is_dense(whole.to(memory_format=torch.channels_last))
    assert is_dense(torch.ones(3, 4).t())
    assert not is_dense(whole[:, :, ::2])
    assert not is_dense(torch.ones(3, 1).expand(3, 4))
    assert [place.name for place in parameters(nn.Linear(2, 2))] == ["weight", "bias"]


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        (nn.Module(), EmptyUpdate),
        (nn.Linear(2, 2), TinyUpdate),
        (nn.Linear(2, 2).half(), HostUpdate),
        (nn.Linear(200, 200), HostUpdate),
        (nn.Linear(2, 2, device="meta"), DeviceUpdate),
    ],
    ids=["empty", "small", "half", "large", "on a device"],
)
def test_each_kind_of_model_has_its_strategy(model: nn.Module, strategy: type) -> None:
    layout = Layout.of(list(parameters(model)))
    assert type(strategy_for(layout, SkipCounter())) is strategy


@pytest.mark.parametrize(("small", "packs"), [(TOO_FEW, 0), (TOO_FEW + 1, 1)])
def test_a_few_small_tensors_beside_a_large_one_are_not_packed(small: int, packs: int) -> None:
    model = nn.ParameterList([torch.ones(200, 200), *(torch.ones(2, 2) for _ in range(small))])
    assert len(Layout.of(list(parameters(model))).packs) == packs


def test_averages_have_the_same_bits_packed_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    model = Mixed()
    alone = Averages(model)
    assert alone.weights.layout.packs == []
    monkeypatch.setattr(averaging_kernels, "TOO_FEW", 0)
    packed = Averages(model)
    assert packed.weights.layout.packs
    for n in range(1, 12):
        move(model, generator)
        assert step(packed, n / (9 + n)) & step(alone, n / (9 + n))
    assert same(packed.weights.values, alone.weights.values)


def test_tensors_that_changed_are_not_gathered() -> None:
    model = Small()
    layout = Layout.of(list(parameters(model)))
    (pack,) = layout.packs
    assert torch.equal(pack.gather(), torch.cat([model.weight.flatten(), model.bias]))
    flat = nn.ParameterList([torch.ones(2) for _ in range(40)])
    layout = Layout.of(list(parameters(flat)))
    flat[3] = nn.Parameter(torch.ones(5))
    with pytest.raises(LayoutChanged):
        [pack.gather() for pack in layout.packs]


def test_skipped_updates_are_counted_once() -> None:
    counter = SkipCounter()
    for finite in (True, False, False):
        counter.add(torch.tensor(finite))
    assert (counter.take(), counter.take()) == (2, 0)
