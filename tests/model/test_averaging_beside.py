"""Updates beside the training: when they are tried, when they go on, and what ends them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ignite_hooks.model import averaging_beside
from ignite_hooks.model.averages import Averages
from ignite_hooks.model.averaging_beside import (
    LOOK_AGAIN,
    LOOKS,
    MEASURED,
    MOST,
    Beside,
    Trial,
    Weights,
    why_not_by_itself,
)
from ignite_hooks.model.optimizers import StepHooks


class Waiting:
    """A worker that makes an update when it is waited for, or when told to."""

    def __init__(self) -> None:
        self.pending: Callable[[], bool] | None = None
        self.made: bool | None = None
        self.closed = False

    def submit(self, update: Callable[[float], bool], momentum: float) -> None:
        assert self.pending is None
        self.pending = lambda: update(momentum)

    def wait(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            self.made = pending()

    def result(self) -> bool | None:
        self.wait()
        made, self.made = self.made, None
        return made

    def close(self) -> None:
        self.closed = True


class Run:
    """A training by hand: updates, steps, and a clock that ticks differently beside the training."""

    def __init__(self, *, in_line: float = 10.0, beside: float = 5.0, trial: bool = True) -> None:
        self.model = nn.ParameterList([torch.ones(3, 3), torch.ones(4)])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.averages, self.expected = Averages(self.model), Averages(self.model)
        self.now, self.times = 0.0, (in_line, beside)
        self.worker, self.hooks = Waiting(), StepHooks()
        self.hooks.optimizer = self.optimizer
        self.readers: list[Callable[[], object]] = []
        self.beside: Beside | None = Beside(
            self.worker, Trial(lambda: self.now) if trial else None, logging.getLogger("ignite_hooks.test")
        )
        self.beside.attach(self.hooks, self.readers, self.catch_up)
        self.where: list[str] = []

    def catch_up(self) -> None:
        self.worker.result()

    def iterate(self, count: int = 1, *, at_end: bool = False, step: bool = True, change: Any = None) -> None:
        """Make iterations: a change by the script, a step, an update of the averages."""
        for _ in range(count):
            if change is not None:
                change(self.model)
            for parameter in self.model:
                parameter.grad = torch.ones_like(parameter)
            if step:
                self.optimizer.step()
            self.catch_up()
            if self.beside is not None:
                self.beside = self.beside.looked()
            self.expected.weights.update(0.9)
            if self.beside is None:
                made: bool | None = self.averages.weights.update(0.9)
            else:
                made = self.beside.update(self.averages.weights, 0.9, at_end=at_end)
            self.where.append("B" if made is None else "-")
            self.now += self.times[made is None] / 1000

    def modes(self) -> str:
        where, self.where = "".join(self.where), []
        return where

    def equal(self) -> bool:
        self.catch_up()
        mine, others = self.averages.weights.values, self.expected.weights.values
        return all(torch.equal(mine[name], others[name]) for name in mine)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO")
    return caplog


def settled(**times: float) -> Run:
    """Return a run whose trial is over."""
    run = Run(**times)
    run.iterate(LOOKS + MEASURED + 2)
    run.modes()
    return run


@pytest.mark.parametrize(("beside", "then"), [(5.0, "BBB"), (9.89, "BBB"), (9.91, "---"), (15.0, "---")])
def test_updates_go_on_where_they_were_faster(beside: float, then: str, log: Any) -> None:
    run = Run(in_line=10.0, beside=beside)
    run.iterate(LOOKS + 1)
    assert run.modes() == "-" * (LOOKS + 1), "nothing is tried before the weights have been looked at"
    run.iterate(MEASURED - 1)
    modes = run.modes()
    assert abs(modes.count("B") - MEASURED / 2) <= 1
    run.iterate(4)
    assert run.modes()[1:] == then
    assert run.equal()
    (said,) = log.messages
    assert said.startswith(f"the average is updated {'beside the training' if then == 'BBB' else 'in line'}: ")
    assert said.endswith(f": an iteration took {beside:.1f} ms with updates beside it, 10.0 with those in line")
    assert (run.beside is None, run.worker.closed) == (then == "---",) * 2
    assert len(run.readers) == (then == "BBB")
    assert len(run.optimizer._optimizer_step_pre_hooks) == (then == "BBB")


def test_asked_for_they_need_no_trial() -> None:
    run = Run(trial=False)
    run.iterate(3)
    run.iterate(at_end=True)
    assert run.modes() == "BBBB"
    assert run.equal()


def test_the_last_update_of_an_epoch_is_in_line() -> None:
    run = settled()
    run.iterate()
    run.iterate(at_end=True)
    run.iterate()
    assert run.modes() == "B-B"
    assert run.equal()


def test_an_iteration_between_two_epochs_is_not_timed() -> None:
    run = Run(in_line=10.0, beside=5.0)
    while not run.where or run.where[-1] == "-" or len(run.where) < LOOKS + 2:
        run.iterate()
    for _ in range(3 * MEASURED):
        run.now += 1000.0
        run.iterate(at_end=True)
        run.now += 1000.0
        run.iterate(4)
    assert run.where[-1] == "B"


def through_data(model: nn.ParameterList) -> None:
    model[0].data.mul_(0.5)


def in_place(model: nn.ParameterList) -> None:
    with torch.no_grad():
        model[1].mul_(0.5)


@pytest.mark.parametrize("change", [through_data, in_place])
@pytest.mark.parametrize("step", [True, False])
def test_weights_that_a_script_changes_are_averaged_in_line(change: Any, step: bool, log: Any) -> None:
    run = Run()
    run.iterate(2)
    run.iterate(MEASURED, change=change, step=step)
    assert set(run.modes()) == {"-"}
    assert run.equal()
    assert log.messages == ["the average is updated in line: not only steps of the optimizer change weights"]
    assert run.worker.closed


@pytest.mark.parametrize("finished", [True, False])
def test_a_change_that_comes_late_ends_it(finished: bool, log: Any) -> None:
    run = settled()
    run.iterate(2)
    log.clear()
    run.iterate(change=lambda model: (run.worker.wait() if finished else None, in_place(model)))
    run.iterate(2)
    assert run.modes() == "BB---"
    assert run.equal() is finished, "an update that had finished has read no change"
    (record,) = log.records
    assert record.levelname == ("INFO" if finished else "WARNING")
    assert ("it may hold some of both" in record.message) is not finished


def test_what_no_counter_shows_is_found_later() -> None:
    run = settled()
    run.iterate(LOOK_AGAIN - LOOKS - MEASURED - 3)
    assert set(run.modes()) == {"B"}
    run.iterate()
    assert run.modes() == "-", "one update is made in line to look at the weights again"
    run.iterate(2)
    assert run.modes() == "BB"
    run.iterate(LOOK_AGAIN - 2)
    run.iterate(3, change=through_data)
    assert run.modes()[-4:] == "----"


def test_a_change_that_is_announced_waits_and_is_none_of_a_script() -> None:
    run = settled()
    run.iterate()
    assert run.worker.pending is not None
    (before_change,) = run.readers
    before_change()
    assert run.worker.pending is None
    in_place(run.model)
    run.iterate(2)
    assert run.modes() == "BBB"
    assert run.equal()


def test_without_steps_it_ends_after_a_while() -> None:
    run = Run()
    run.iterate(MOST + 1, step=False)
    assert set(run.modes()) == {"-"}
    assert run.worker.closed


def strided() -> Tensor:
    return torch.ones(6)[::2]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(5),
        torch.ones(5, dtype=torch.float64),
        torch.ones(7, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float16),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(9)[1:],
        torch.tensor(1.0),
        strided(),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}".replace("torch.", ""),
)
def test_every_bit_of_the_weights_is_looked_at(tensor: Tensor) -> None:
    for index in range(tensor.numel()):
        weights, counted = Weights([tensor], exactly=True), Weights([tensor], exactly=False)
        assert not weights.have_changed()
        flat = tensor.data.flatten()
        flat[index] = flat[index] * (1 + torch.finfo(tensor.dtype).eps)
        tensor.data.copy_(flat.view(tensor.shape))
        assert weights.have_changed()
        assert not counted.have_changed(), "this write is counted nowhere"
    with torch.no_grad():
        tensor.add_(0)
    assert counted.have_changed()


def test_empty_weights_never_change() -> None:
    assert not Weights([torch.ones(0)], exactly=True).have_changed()


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging_beside, "usable_cores", lambda: 2)
    monkeypatch.setattr(averaging_beside, "LEAST", 10)


def of_all(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def of_weights(model: nn.Linear) -> Any:
    return torch.optim.SGD([model.weight], lr=0.1)


def frozen(model: nn.Linear) -> Any:
    model.bias.requires_grad_(False)
    return of_all(model)


class Foreign:
    def __init__(self, model: nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters())}]


@pytest.mark.parametrize(
    ("model", "optimizer", "reason"),
    [
        (nn.Linear(3, 3), of_all, None),
        (nn.Linear(3, 3), lambda model: {"a": of_all(model), "b": of_all(model)}, None),
        (nn.Linear(3, 3), Foreign, "the optimizer is none of torch's"),
        (nn.Linear(3, 3), of_weights, "the optimizer does not train all of the model"),
        (nn.Linear(3, 3), frozen, "the optimizer does not train all of the model"),
        (nn.Linear(2, 2), of_all, "the model is small"),
        (nn.Linear(3, 3, device="meta"), of_all, "it has not been tested on a GPU"),
        (nn.LazyLinear(3), of_all, "the weights of the model do not exist yet"),
    ],
    ids=["all", "parts", "foreign", "weights", "frozen", "small", "no CPU", "lazy"],
)
@pytest.mark.usefixtures("two_cores")
def test_it_is_tried_where_bits_cannot_depend_on_it(
    model: nn.Module, optimizer: Callable[[nn.Module], Any], reason: str | None
) -> None:
    assert why_not_by_itself(model, optimizer(model)) == reason


def test_it_is_not_tried_on_one_core(two_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging_beside, "usable_cores", lambda: 1)
    model = nn.Linear(3, 3)
    assert why_not_by_itself(model, of_all(model)) == "there is one core"
