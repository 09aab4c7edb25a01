from __future__ import annotations

import copy
import io
import time
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.measure.phases import (
    BACKWARD,
    DATA,
    FORWARD,
    HOOKS,
    NAMES,
    OPTIMIZER,
    OTHER,
    DeviceTimes,
    Phases,
    call_after_backward,
    first_with_gradient,
    phase_shares,
)


class Hands:
    """A clock that advances only when a test turns it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += seconds


def in_phases(phases: Phases) -> dict[str, float]:
    return {name: value for name, value in zip(NAMES, phases.seconds(), strict=True) if value}


def test_every_moment_belongs_to_one_phase() -> None:
    hands = Hands()
    phases = Phases(hands)
    hands.turn(1.0)
    phases.enter(HOOKS)
    hands.turn(2.0)
    phases.step_begins()
    hands.turn(4.0)
    phases.step_ends()
    hands.turn(8.0)
    assert in_phases(phases) == {"data": 1.0, "hooks": 10.0, "other": 4.0}
    phases.enter(DATA)
    hands.turn(16.0)
    phases.skip()
    assert in_phases(phases) == {"data": 1.0, "hooks": 10.0, "other": 4.0}


def test_a_pause_belongs_to_none_and_ends_where_it_began() -> None:
    hands = Hands()
    phases = Phases(hands)
    model = nn.Linear(2, 1)
    phases.watch(model, None)
    phases.step_begins()
    hands.turn(1.0)
    phases.pause()
    phases.pause()
    model(torch.ones(2))
    hands.turn(50.0)
    assert in_phases(phases) == {"other": 1.0}
    phases.resume()
    phases.resume()
    hands.turn(1.0)
    assert in_phases(phases) == {"other": 2.0}
    phases.stop_watching()


class Slow(torch.autograd.Function):
    """A module that is slow in the forward and the backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, take: Any, there: float, back: float) -> torch.Tensor:
        context.take, context.back = take, back
        take(there)
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        context.take(context.back)
        return gradients[0], None, None, None


class SlowModel(nn.Linear):
    def __init__(self, take: Any, there: float, back: float) -> None:
        super().__init__(2, 1)
        self.slowness = take, there, back

    def forward(self, x: torch.Tensor) -> Any:
        return Slow.apply(super().forward(x), *self.slowness)  # type: ignore[no-untyped-call]


def trained(phases: Phases, model: nn.Module, optimizer: torch.optim.Optimizer, how: str, hands: Hands) -> None:
    """Run one step as scripts write it."""
    phases.step_begins()
    loss_of = nn.L1Loss()

    def loss() -> torch.Tensor:
        hands.turn(0.5)
        output = model(torch.ones(3, 2))
        hands.turn(0.25)
        return loss_of(output, torch.zeros(3, 1))  # type: ignore[no-any-return]

    if how == "closure":

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            found = loss()
            found.backward()  # type: ignore[no-untyped-call]
            return found

        optimizer.step(closure)  # type: ignore[arg-type]
    elif how == "accumulated":
        for _ in range(2):
            loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    elif how == "no gradient":
        with torch.no_grad():
            loss()
    elif how == "gradients asked for":
        torch.autograd.grad(loss(), list(model.parameters()))
    else:
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    phases.step_ends()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("plain", {"forward": 1.25, "backward": 2.0, "other": 0.5}),
        ("accumulated", {"forward": 2.5, "backward": 4.0, "other": 1.0}),
        ("closure", {"forward": 1.25, "backward": 2.0, "optimizer": 0.5}),
        ("no gradient", {"forward": 1.0, "other": 0.75}),
        ("gradients asked for", {"forward": 1.25, "backward": 2.0, "other": 0.5}),
    ],
)
def test_phases_are_found_in_any_step(how: str, expected: dict[str, float]) -> None:
    hands = Hands()
    model = SlowModel(hands.turn, 1.0, 2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(hands)
    phases.watch(model, optimizer)
    trained(phases, model, optimizer, how, hands)
    assert in_phases(phases) == expected
    assert phases.known == NAMES
    phases.stop_watching()


def test_a_known_loss_ends_the_forward_pass() -> None:
    hands = Hands()
    model, criterion = SlowModel(hands.turn, 1.0, 2.0), nn.L1Loss()
    phases = Phases(hands)
    phases.watch(model, None, criterion)
    phases.step_begins()
    loss = criterion(model(torch.ones(3, 2)), torch.zeros(3, 1))
    hands.turn(0.5)
    loss.backward()
    assert in_phases(phases) == {"forward": 1.0, "backward": 2.0, "other": 0.5}
    phases.stop_watching()


def test_outside_of_a_step_nothing_is_taken_for_a_phase() -> None:
    hands = Hands()
    model = SlowModel(hands.turn, 1.0, 2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(hands)
    phases.watch(model, optimizer)
    phases.enter(HOOKS)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    assert in_phases(phases) == {"hooks": 3.0}
    phases.stop_watching()


def test_a_measured_model_can_be_copied_and_saved() -> None:
    hands = Hands()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(hands)
    phases.watch(model, optimizer)
    phases.step_begins()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert model._forward_hooks
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        other(torch.ones(2))
        hands.turn(1.0)
    assert in_phases(phases) == {"other": 2.0}
    copy.deepcopy(optimizer).step()
    phases.stop_watching()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_short_steps_are_estimated_from_sampled_ones() -> None:
    hands = Hands()
    seconds = 2**-8, 2**-7
    model = SlowModel(hands.turn, *seconds)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(hands, sparing=True)
    phases.watch(model, optimizer)
    looked_into = []
    for _ in range(12):
        phases.step_begins()
        looked_into.append(bool(model._forward_hooks))
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        phases.step_ends()
    assert looked_into == [True, False] * 6
    assert in_phases(phases) == {"forward": 12 * seconds[0], "backward": 12 * seconds[1]}
    phases.stop_watching()


def test_all_long_steps_are_measured() -> None:
    hands = Hands()
    model = SlowModel(hands.turn, 0.01, 0.01)
    phases = Phases(hands, sparing=True)
    phases.watch(model, None)
    for length in (0.01, 1.0, 0.02):
        model.slowness = hands.turn, length, length
        phases.step_begins()
        model(torch.ones(2)).sum().backward()
        phases.step_ends()
    assert in_phases(phases) == pytest.approx({"forward": 1.03, "backward": 1.03})
    phases.stop_watching()


@pytest.mark.slow
@pytest.mark.parametrize("watched", ["the model", "what compile returned"])
def test_compiled_code_stays_whole(watched: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    phases = Phases(sparing=True)
    phases.watch(model if watched == "the model" else compiled, optimizer)
    for _ in range(60):
        phases.step_begins()
        compiled(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        phases.step_ends()
    heard = {"forward", "backward"} if watched != "the model" else set()
    assert set(phases.known) == {"data", "optimizer", "hooks", "other"} | heard
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    assert not torch._dynamo.utils.counters["graph_break"]
    torch._dynamo.reset()
    phases.stop_watching()


def test_several_optimizers_are_one_phase() -> None:
    hands = Hands()

    class Slow(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            hands.turn(1.0)
            return super().step(closure)

    optimizers = {name: Slow([torch.nn.Parameter(torch.ones(1))], lr=0.1) for name in "ab"}
    phases = Phases(hands)
    phases.watch(None, optimizers)
    phases.step_begins()
    for optimizer in optimizers.values():
        optimizer.step()
        hands.turn(0.25)
    assert in_phases(phases) == {"optimizer": 2.0, "other": 0.5}
    assert phases.known == ("data", "optimizer", "hooks", "other")
    phases.stop_watching()


def test_phases_agree_with_timers_placed_by_hand() -> None:
    """Each phase, in real steps of about 20 ms, is between a timer inside of it and one around it.

    That holds however often other processes run between two readings of the clock.
    """
    inside: list[tuple[float, float]] = []

    def take(seconds: float) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        inside.append((began, time.perf_counter()))

    model = SlowModel(take, 0.006, 0.009)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: take(0.005))
    phases = Phases()
    phases.watch(model, optimizer)
    for _ in range(11):
        inside.clear()
        before = phases.seconds()
        phases.step_begins()
        times = [time.perf_counter()]
        loss = model(torch.ones(64, 2)).mean()
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        phases.step_ends()
        found = dict(zip(NAMES, (now - then for now, then in zip(phases.seconds(), before, strict=True)), strict=True))
        least = [end - began for began, end in inside]
        # The loss belongs to the forward pass, which ends when the first gradient has come.
        most = [inside[1][0] - times[0], times[2] - times[1], times[3] - times[2]]
        for name, low, high in zip(("forward", "backward", "optimizer"), least, most, strict=True):
            assert low - 1e-6 <= found[name] <= high + 1e-6, name
    phases.stop_watching()


class Event:
    """An event of a device, on a machine that has none."""

    queue: list[Event] = []
    passed = 0

    def record(self) -> None:
        self.queue.append(self)
        self.at = 10.0 * len(self.queue)

    def query(self) -> bool:
        return self in self.queue[: self.passed]

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


def test_device_times_are_read_late_and_events_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Event, "queue", [])
    made = []

    def make() -> Event:
        made.append(Event())
        return made[-1]

    times = DeviceTimes(make)
    for phase in (FORWARD, BACKWARD, OPTIMIZER, OTHER):
        times.mark(phase)
    assert times.seconds() == [0.0] * len(NAMES)
    monkeypatch.setattr(Event, "passed", 3)
    assert dict(zip(NAMES, times.seconds(), strict=True)) == dict.fromkeys(NAMES, 0.0) | {
        "forward": 0.01,
        "backward": 0.01,
    }
    monkeypatch.setattr(Event, "passed", 4)
    assert times.seconds()[OPTIMIZER] == 0.01
    times.mark(FORWARD)
    times.mark(OTHER)
    assert len(made) == 4


def test_nothing_has_no_shares() -> None:
    assert phase_shares({"data": 0.0}) == {}


def test_a_tensor_with_a_gradient_is_found_in_any_output() -> None:
    plain, wanted = torch.ones(1), torch.ones(1, requires_grad=True)
    assert first_with_gradient({"a": plain, "b": ["text", (plain, wanted)]}) is wanted
    assert first_with_gradient(plain) is None
    assert first_with_gradient("text") is None


def test_a_wait_for_gradients_of_other_ranks_is_backward() -> None:
    """As DistributedDataParallel and FSDP do: a gradient queues what waits for the others at the end."""
    hands = Hands()
    model = nn.Linear(2, 1)
    phases = Phases(hands)
    phases.watch(model, None)
    model.weight.register_hook(lambda _: call_after_backward(lambda: hands.turn(4.0)))
    phases.step_begins()
    model(torch.ones(3, 2)).mean().backward()
    hands.turn(0.5)
    phases.step_ends()
    assert in_phases(phases) == {"backward": 4.0, "other": 0.5}
    phases.stop_watching()
