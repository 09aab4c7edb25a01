"""`devices.py`: the GPU of a Mac, by stand-ins for torch's calls; there is none here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.drawing.explain import undisturbed
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.monitors.oom_observer_hook import report
from ignite_hooks.measure.machine import is_out_of_memory
from ignite_hooks.measure.phases import DeviceTimes, gpu_of
from ignite_hooks.run.memory import free_memory
from ignite_hooks.store import plain
from ignite_hooks.store.plain import to_plain
from ignite_hooks.system import devices
from ignite_hooks.trainer.base_trainer import _call
from ignite_hooks.trainer.build import device_of


class Mps:
    """The calls of ``torch.mps``, and what was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.generator = torch.Generator()

    def __getattr__(self, name: str) -> Any:
        sizes = {"current_allocated_memory": 3, "driver_allocated_memory": 5, "recommended_max_memory": 8}
        if name in sizes:
            return lambda: sizes[name] * 2**20
        assert name == "empty_cache", name
        return lambda: self.calls.append(name)

    def get_rng_state(self, device: Any = "mps") -> torch.Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = "mps") -> None:
        self.generator.set_state(state)

    def device_count(self) -> int:
        return 1

    def draw(self) -> float:
        return torch.rand(1, generator=self.generator).item()


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> Mps:
    found = Mps()
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "mps", found)
    return found


@pytest.mark.usefixtures("mps")
def test_memory_of_a_mac_is_what_torch_holds() -> None:
    assert devices.memory_of_gpu() == {"allocated": 3.0, "reserved": 5.0}
    assert devices.peak_of_gpu() == {"memory_mb": 5.0}
    assert devices.memory_summary() == ["allocated: 3 MB", "reserved: 5 MB", "recommended at most: 8 MB"]
    runner: Any = SimpleNamespace(
        trainer=SimpleNamespace(state=SimpleNamespace(epoch=1)),
        global_step=1,
        data_batch=None,
        model=None,
        optimizer=None,
    )
    error = RuntimeError("MPS backend out of memory (MPS allocated: 3.0 MB, max allowed: 8.0 MB)")
    assert is_out_of_memory(error)
    assert "the GPU\n  allocated: 3 MB" in report(runner, error, 1)


def test_without_a_gpu_nothing_is_said_of_its_memory() -> None:
    assert (devices.memory_of_gpu(), devices.peak_of_gpu(), devices.memory_summary()) == ({}, {}, [])
    assert not is_out_of_memory(RuntimeError("out of luck"))


def test_cached_memory_of_a_mac_is_given_back(mps: Mps) -> None:
    free_memory()
    assert mps.calls == ["empty_cache"]


def test_random_numbers_of_a_mac_go_on_where_they_were(mps: Mps) -> None:
    state = random_state()
    drawn = [mps.draw() for _ in range(3)]
    set_random_state(state)
    assert [mps.draw() for _ in range(3)] == drawn


def test_explaining_a_model_draws_nothing_from_the_generator_of_a_mac(mps: Mps) -> None:
    before = mps.get_rng_state()
    with undisturbed(nn.Dropout()):
        mps.draw()
    assert torch.equal(mps.get_rng_state(), before)


def test_a_state_from_a_mac_can_be_restored_elsewhere(mps: Mps, monkeypatch: pytest.MonkeyPatch) -> None:
    state = random_state()
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.delattr(torch, "mps")
    set_random_state(state)


@pytest.mark.parametrize(
    ("wanted", "here", "message"),
    [
        ("mps", True, None),
        ("mps", False, "mps: torch sees no GPU of a Mac here: leave it out, or say cpu"),
        ("cuda:0", False, "cuda:0: torch sees no GPU here: leave it out, or say cpu"),
        ("gpu", True, "cpu, cuda, cuda:0 or mps is needed, not 'gpu'"),
    ],
)
def test_a_device_is_looked_for(wanted: str, here: bool, message: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: here)
    problems: list[Problem] = []
    found = device_of(wanted, problems)
    assert [one.message for one in problems] == ([message] if message else [])
    if message is None:
        assert found == torch.device(wanted)


def test_events_are_those_of_the_device_of_the_model(mps: Mps) -> None:
    mps.Event = lambda enable_timing: f"timed {enable_timing}"  # type: ignore[attr-defined]
    assert devices.timed_event("mps") == "timed True"
    there: Any = SimpleNamespace(parameters=lambda: [SimpleNamespace(device=torch.device("mps"))])
    assert gpu_of([nn.ReLU(), nn.Linear(1, 1)]) is None
    assert gpu_of([nn.ReLU(), there]) == "mps"
    assert DeviceTimes(lambda: devices.timed_event("mps")).seconds() == [0.0] * 6


def test_a_tensor_elsewhere_is_copied_to_the_cpu_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(3.0)
    assert to_plain({"a": tensor})["a"].data_ptr() == tensor.data_ptr()
    monkeypatch.setattr(plain, "is_read_in_place", lambda tensor: False)
    written = to_plain({"a": tensor})["a"]
    assert written.data_ptr() != tensor.data_ptr()
    assert torch.equal(written, tensor)


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_half_precision_is_that_of_the_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    autocast = torch.autocast

    def watched(device_type: str, dtype: torch.dtype) -> Any:
        asked.append((device_type, dtype))
        return autocast("cpu", dtype=dtype)

    monkeypatch.setattr(torch, "autocast", watched)
    found = _call(kind)(nn.Linear(2, 1), torch.ones(3, 2))
    assert asked == [(kind, torch.bfloat16)]
    assert found.dtype == torch.float32


def test_double_precision_is_on_the_cpu_where_the_device_has_none() -> None:
    there: Any = SimpleNamespace(device=torch.device("mps"), cpu=lambda: torch.ones(2))
    assert devices.in_double(there).dtype == torch.float64
    assert devices.in_double(torch.ones(2)).dtype == torch.float64
