from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, ConfigError, Runner, attach_hooks, scheduled
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.monitors.iter_timer_hook import IterTimerHook, batch_size
from ignite_hooks.measure import processor_waits
from ignite_hooks.measure.pace import eta
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.memory import MemoryWriter
from tests.ranks import run_ranks


@dataclass
class Hands:
    """A clock that advances only when a test turns it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Timed:
    """A run in which a step takes 2 s and its data 0.5 s."""

    hands: Hands
    timer: IterTimerHook
    writer: MemoryWriter
    trainer: Engine
    runner: Runner

    def run(self, iterations: int, batch: Any = 1.0, **how: Any) -> None:
        self.trainer.run(Data(self.hands, iterations, batch), **how)

    @property
    def written(self) -> dict[int, dict[str, float]]:
        return {step: scalars for scalars, step, _, _ in self.writer.lines}


@dataclass
class Data:
    hands: Hands
    length: int
    batch: Any

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.length):
            self.hands.turn(0.5)
            yield self.batch


SHARES = {"share/data": 0.2, "share/hooks": 0.0, "share/other": 0.8}
"""Of that run, whose step has neither a model nor an optimizer that can be watched."""


def timed(tmp_path: Path, *others: BaseHook, **settings: Any) -> Timed:
    hands, writer, timer = Hands(), MemoryWriter(), IterTimerHook(**settings)
    timer.clock = hands
    trainer = Engine(lambda engine, batch: hands.turn(2.0))
    runner = attach_hooks(trainer, {"hooks": [timer, *others], "writers": [writer]}, work_dir=tmp_path)
    return Timed(hands, timer, writer, trainer, runner)


def working(hands: Hands, point: str, seconds: float) -> BaseHook:
    return type("Working", (BaseHook,), {point: lambda self: hands.turn(seconds)})()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("done", "total", "seconds", "left"),
    [(10, 100, 20.0, 180.0), (100, 100, 20.0, 0.0), (1, 3, 0.5, 1.0)],
)
def test_what_is_left_takes_as_long_as_what_is_done(done: int, total: int, seconds: float, left: float) -> None:
    assert eta(done, total, seconds) == left


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(8, 3), 8),
        ((torch.zeros(4, 3), torch.zeros(4)), 4),
        ({"id": ["a", "b"], "image": torch.zeros(2, 3)}, 2),
        ([{"image": torch.zeros(5)}], 1),
        (torch.tensor(1.0), None),
        ((torch.tensor(1.0), torch.zeros(3)), 3),
        ("text", None),
        (1.0, None),
        (None, None),
        ([], None),
    ],
)
def test_the_batch_size_is_the_number_of_samples(batch: Any, size: int | None) -> None:
    assert batch_size(batch) == size


def test_times_are_means_over_the_interval(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=5)
    run.run(10)
    assert run.written == {
        5: {"time/iter": 2.5, "time/data": 0.5, "iters_per_s": 0.4, "time/eta": 12.5, **SHARES},
        10: {"time/iter": 2.5, "time/data": 0.5, "iters_per_s": 0.4, "time/eta": 0.0, **SHARES},
    }
    assert [(step, kind, epoch) for _, step, kind, epoch in run.writer.lines] == [(5, "train", 1), (10, "train", 1)]


def test_samples_are_counted_by_the_largest_batch(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=1)
    sizes = iter([4, 8, 2])
    run.trainer.add_event_handler(
        Events.GET_BATCH_COMPLETED, lambda engine: setattr(engine.state, "batch", torch.zeros(next(sizes)))
    )
    run.run(3)
    assert [line["samples_per_s"] for line in run.written.values()] == [1.6, 3.2, 3.2]


def test_log_eta_false_leaves_the_eta_out(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=5, log_eta=False)
    run.run(5)
    assert "time/eta" not in run.written[5]


def test_there_is_no_eta_where_the_end_is_unknown(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=2)
    data = Data(run.hands, 4, 1.0)
    run.trainer.run(iter(data), max_epochs=2)
    assert "time/eta" not in run.written[2]


def test_time_of_other_hooks_is_not_data_loading(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=5)
    run.runner.register_hook(working(run.hands, "after_train_iter", 1.0))
    run.run(5)
    assert run.written[5] == pytest.approx(
        {"time/iter": 3.5, "time/data": 0.5, "iters_per_s": 1 / 3.5, "time/eta": 0.0}
        | {"share/data": 0.5 / 3.5, "share/hooks": 1.0 / 3.5, "share/other": 2.0 / 3.5}
    )


@pytest.mark.parametrize("timer_comes", ["first", "last"])
@pytest.mark.parametrize("point", ["before_train_iter", "after_train_iter"])
def test_time_of_the_outermost_hook_is_not_data_loading(tmp_path: Path, point: str, timer_comes: str) -> None:
    """A checkpoint, say, is saved after everything else, whichever hook is named first."""
    hands, timer = Hands(), IterTimerHook(interval=5)
    timer.clock = hands
    other = working(hands, point, 1.0)
    other.priority = "HIGHEST"
    hooks = [timer, other] if timer_comes == "first" else [other, timer]
    attach_hooks(trainer := Engine(lambda engine, batch: hands.turn(2.0)), hooks, work_dir=tmp_path)
    trainer.run(Data(hands, 5, 1.0))
    assert timer.seconds() == {"data": 2.5, "hooks": 5.0, "other": 10.0}


def test_no_configuration_can_be_further_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-1 is not a priority"):
        timed(tmp_path, BaseHook(priority=-1))


@pytest.mark.parametrize("point", ["before_train_epoch", "after_train_epoch", "after_epoch", "before_epoch"])
def test_what_happens_between_epochs_is_in_no_iteration(tmp_path: Path, point: str) -> None:
    run = timed(tmp_path, interval=6)
    run.runner.register_hook(working(run.hands, point, 100.0))
    run.run(3, max_epochs=2)
    assert run.written[6]["time/iter"] == 2.5
    assert run.written[6]["time/data"] == 0.5


@pytest.mark.parametrize("name", ["val", "test"])
def test_an_evaluation_inside_of_an_iteration_does_not_count(tmp_path: Path, name: str) -> None:
    run = timed(tmp_path, interval=4)
    evaluator = Engine(lambda engine, batch: run.hands.turn(50.0))
    run.runner.installation.add_evaluator(name, evaluator)

    class Evaluate(BaseHook):
        interval = 2

        @scheduled
        def after_train_iter(self) -> None:
            evaluator.run([1.0, 1.0])

    run.runner.register_hook(Evaluate())
    run.run(8)
    assert run.written[8] == {"time/iter": 2.5, "time/data": 0.5, "iters_per_s": 0.4, "time/eta": 0.0, **SHARES}
    assert run.written[4]["time/eta"] == 10.0


def test_the_time_left_follows_from_the_iterations_done(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=10)
    run.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=10), run.trainer.terminate)
    run.trainer.run(FromNothing(100), max_epochs=1)
    assert run.written[10]["time/eta"] == 180.0


@dataclass
class FromNothing:
    """Data that takes no time."""

    length: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[float]:
        yield from [1.0] * self.length


def test_what_hooks_do_before_a_step_is_theirs(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=5)
    run.runner.register_hook(working(run.hands, "before_step", 1.5))
    run.run(5)
    assert run.written[5]["share/hooks"] == 1.5 / 4.0
    assert run.written[5]["share/data"] == 0.5 / 4.0


def test_forward_backward_and_optimizer_are_distinguished_in_any_step(tmp_path: Path) -> None:
    hands, writer, timer = Hands(), MemoryWriter(), IterTimerHook(interval=4)
    timer.clock = hands
    step, model, optimizer = slow_training(hands)
    trainer = Engine(step)
    attach_hooks(trainer, {"hooks": [timer], "writers": [writer]}, work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run(Data(hands, 4, torch.ones(2)))
    seconds = {"data": 0.5, "forward": 1.0, "backward": 2.0, "optimizer": 0.25, "hooks": 0.0, "other": 0.25}
    assert timer.seconds() == {name: 4 * value for name, value in seconds.items()}
    ((found, *_),) = writer.lines
    assert {name: found[f"share/{name}"] for name in seconds} == {name: v / 4 for name, v in seconds.items()}


def slow_training(hands: Hands) -> tuple[Any, torch.nn.Module, torch.optim.Optimizer]:
    """Return a step of 1 s forward, 2 s backward, 0.25 s update and 0.25 s around them."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            hands.turn(1.0)
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            hands.turn(2.0)
            return gradient

    class SlowModel(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Slow.apply(super().forward(x))  # type: ignore[no-any-return,no-untyped-call]

    class SlowOptimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            hands.turn(0.25)
            return super().step(closure)

    model = SlowModel(2, 1)
    optimizer = SlowOptimizer(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: torch.Tensor) -> float:
        hands.turn(0.125)
        loss = model(batch).sum()
        loss.backward()
        hands.turn(0.125)
        optimizer.step()
        return loss.item()

    return step, model, optimizer


def test_phases_false_leaves_model_and_optimizer_alone(tmp_path: Path) -> None:
    tiny = tiny_run()
    timer = IterTimerHook(phases=False)
    attach_hooks(tiny.trainer, [timer], work_dir=tmp_path, **tiny.services)
    tiny.trainer.add_event_handler(
        Events.ITERATION_STARTED, lambda: seen.append(bool(tiny.model._forward_hooks or tiny.model._forward_pre_hooks))
    )
    seen: list[bool] = []
    tiny.trainer.run(tiny.data)
    assert not any(seen)
    assert list(timer.seconds()) == ["data", "hooks", "other"]


@pytest.mark.usefixtures("enough_processors")
def test_a_slow_loader_is_named_in_the_report(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=2)
    run.run(4)
    assert "data loading takes 20 % of the iteration" in run.timer.findings()[0]


def test_without_a_processor_no_phase_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the time or more no processor was free, as far as the system counts."""
    monkeypatch.setattr(processor_waits.ProcessorWaits, "share", lambda self: 0.25)
    run = timed(tmp_path, interval=2)
    run.run(4)
    [found] = run.timer.findings()
    assert found.startswith(
        "threads of the training waited for a processor 25 % of the time, so no phase is judged: other programs"
    )


def test_after_a_resume_the_eta_uses_this_process_alone(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=1)
    run.trainer.state.iteration, run.trainer.state.epoch = 12, 3
    run.trainer.state.max_epochs, run.trainer.state.epoch_length = 5, 4
    run.run(4)
    assert {step: line["time/eta"] for step, line in run.written.items()}[13] == 7 * 2.5


def test_a_second_run_starts_clean(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=5)
    run.run(3)
    run.hands.turn(1000.0)
    run.run(5)
    assert run.written[5]["time/iter"] == 2.5


def test_a_schedule_by_epoch_writes_at_the_end_of_epochs(tmp_path: Path) -> None:
    run = timed(tmp_path, every="2 epoch")
    run.run(3, max_epochs=4)
    assert list(run.written) == [6, 12]


def test_the_service_includes_the_current_iteration(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=4)
    seen = []

    class Look(BaseHook):
        def after_train_iter(self, timer: IterTimerHook) -> None:
            seen.append(timer.figures()["time/iter"])

    run.runner.register_hook(Look())
    run.run(6)
    assert seen == [2.5] * 6


def test_right_after_a_writing_the_figures_are_what_was_written(tmp_path: Path) -> None:
    run = timed(tmp_path, interval=4)
    run.run(4)
    assert run.timer.figures() == run.written[4]


class ActsAlways(BaseHook):
    """A hook that may end the run in every iteration, so that the ranks vote after each."""

    def after_train_iter(self, runner: Any) -> None:
        pass


def shares_beside_a_slow_rank(folder: str) -> dict[str, float]:
    trainer = Engine(lambda engine, batch: time.sleep(0.03 * rank()))
    runner = attach_hooks(trainer, ["IterTimerHook", ActsAlways()], work_dir=folder)
    trainer.run(range(40), max_epochs=1)
    seconds = runner.hooks["IterTimerHook"].seconds()
    return {name: value / sum(seconds.values()) for name, value in seconds.items()}


@pytest.mark.slow
def test_waiting_for_a_slower_rank_is_no_loading_of_data(tmp_path: Path) -> None:
    fast, slow = run_ranks(shares_beside_a_slow_rank, str(tmp_path))
    assert fast["data"] < 0.3, fast
    assert fast["other"] > 0.5, fast
    assert slow["other"] > 0.5, slow
