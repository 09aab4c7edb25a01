from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import param_scheduler as of_ignite
from torch.optim import lr_scheduler as of_torch

from ignite_hooks import ConfigError, attach_hooks
from tests.ranks import run_ranks

LENGTH = 3
"""Iterations of an epoch."""


class Script:
    """A script that notes with which rates its steps are made."""

    def __init__(self, make: Callable[[Any], Any], scores: list[float] | None = None) -> None:
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.scheduler = make(self.optimizer)
        self.rates: list[float] = []
        self.trainer = Engine(self.step)
        self.evaluator = Engine(lambda engine, batch: None)
        self.scores = iter(scores or [])
        self.evaluator.add_event_handler(Events.EPOCH_COMPLETED, self.measure)
        self.stop_at = 0

    def step(self, engine: Engine, batch: Any) -> float:
        self.optimizer.step()
        self.rates.append(round(float(self.optimizer.param_groups[0]["lr"]), 6))
        if engine.state.iteration == self.stop_at:
            engine.terminate()
        return 1.0

    def measure(self, engine: Engine) -> None:
        engine.state.metrics["score"] = next(self.scores, 0.0)

    def run(self, tmp_path: Path, epochs: int = 3, *hooks: Any, resume: bool = False, **settings: Any) -> list[float]:
        services = {"model": self.model, "optimizer": self.optimizer}
        if "scheduler" not in settings:
            services["scheduler"] = self.scheduler
        attach_hooks(
            self.trainer,
            [{"type": "ParamSchedulerHook", **settings}, *hooks],
            evaluators=self.evaluator,
            val_loader=[1],
            work_dir=tmp_path,
            resume=resume,
            **services,
        )
        self.trainer.run(range(LENGTH), max_epochs=epochs)
        return self.rates


def halving(optimizer: Any) -> Any:
    return of_torch.StepLR(optimizer, 1, 0.5)


def chained(optimizer: Any) -> Any:
    return of_torch.ChainedScheduler([halving(optimizer), of_torch.ConstantLR(optimizer, 0.5, 1)])


def sequential(optimizer: Any) -> Any:
    parts = [of_torch.ConstantLR(optimizer, 0.1, 100), halving(optimizer)]
    return of_torch.SequentialLR(optimizer, parts, milestones=[1])


def ramp(optimizer: Any) -> Any:
    return of_ignite.LinearCyclicalScheduler(optimizer, "lr", 0.0, 8.0, cycle_size=16)


def ignite_around_torch(optimizer: Any) -> Any:
    return of_ignite.LRScheduler(halving(optimizer))


def joined(optimizer: Any) -> Any:
    parts = [of_ignite.PiecewiseLinear(optimizer, "lr", [(0, value)]) for value in (5.0, 7.0)]
    return of_ignite.ConcatScheduler(parts, durations=[2])


def groups(optimizer: Any) -> Any:
    return of_ignite.ParamGroupScheduler([ramp(optimizer)])


EPOCHS = {
    "StepLR": (halving, [1.0, 0.5, 0.25]),
    "ChainedScheduler": (chained, [0.5, 0.5, 0.25]),
    "SequentialLR": (sequential, [0.1, 1.0, 0.5]),
    "Ignite's": (ramp, [0.0, 1.0, 2.0]),
    "Ignite's around torch's": (ignite_around_torch, [1.0, 0.5, 0.25]),
    "Ignite's, joined": (joined, [5.0, 5.0, 7.0]),
    "Ignite's, of groups": (groups, [0.0, 1.0, 2.0]),
}


@pytest.mark.parametrize(("make", "expected"), EPOCHS.values(), ids=EPOCHS)
def test_schedulers_are_stepped_by_epoch(make: Any, expected: list[float], tmp_path: Path) -> None:
    assert Script(make).run(tmp_path) == [rate for rate in expected for _ in range(LENGTH)]


@pytest.mark.parametrize(("make", "expected"), EPOCHS.values(), ids=EPOCHS)
def test_schedulers_are_stepped_by_iteration(make: Any, expected: list[float], tmp_path: Path) -> None:
    assert Script(make).run(tmp_path, 1, by_epoch=False) == expected


def test_an_interval_steps_them_less_often(tmp_path: Path) -> None:
    assert Script(halving).run(tmp_path, 2, by_epoch=False, interval=2) == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_several_schedulers_are_stepped_and_settings_precede_the_service(tmp_path: Path) -> None:
    script = Script(halving)
    both = {"a": script.scheduler, "b": of_torch.MultiplicativeLR(script.optimizer, lambda _: 0.1)}
    assert script.run(tmp_path, 2, scheduler=both) == [1.0] * LENGTH + [0.05] * LENGTH


def test_without_a_scheduler_it_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Script(lambda optimizer: None).run(tmp_path)
    assert "there is no scheduler to step: pass scheduler=... to attach_hooks()" in caplog.text


# -- metrics ---------------------------------------------------------------------------------------------------


def plateau(optimizer: Any) -> Any:
    return of_torch.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


def plateau_of_ignite(optimizer: Any) -> Any:
    return of_ignite.ReduceLROnPlateauScheduler(optimizer, "score", factor=0.5, patience=0)


BY_HOOK = {"type": "EvalHook", "save_best": False}


@pytest.mark.parametrize("monitor", ["val_score", "val/score", "score"])
@pytest.mark.parametrize("make", [plateau, plateau_of_ignite])
def test_a_plateau_is_judged_after_each_evaluation(make: Any, monitor: str, tmp_path: Path) -> None:
    rates = Script(make, [3.0, 2.0, 2.0, 1.0]).run(tmp_path, 5, BY_HOOK, monitor=monitor)
    assert rates[::LENGTH] == [1.0, 1.0, 1.0, 0.5, 0.5]


def test_the_evaluation_of_a_script_counts_as_well(tmp_path: Path) -> None:
    script = Script(plateau, [3.0, 3.0, 3.0])
    script.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: script.evaluator.run([1]))
    assert script.run(tmp_path, 3, monitor="val_score")[::LENGTH] == [1.0, 1.0, 0.5]


def test_evaluations_within_an_epoch_count_each(tmp_path: Path) -> None:
    hook = BY_HOOK | {"by_epoch": False, "interval": 1}
    assert Script(plateau, [3.0] * 3).run(tmp_path, 1, hook, monitor="val_score") == [1.0, 1.0, 0.5]


@pytest.mark.parametrize("hooks", [[], [BY_HOOK | {"by_epoch": False, "interval": 1}]], ids=["alone", "evaluating"])
def test_a_plateau_of_the_training_loss_is_judged_by_epoch(hooks: list[Any], tmp_path: Path) -> None:
    """The loss is 1.0 throughout; evaluations do not measure it."""
    assert Script(plateau).run(tmp_path, 4, *hooks, monitor="loss")[::LENGTH] == [1.0, 1.0, 0.5, 0.25]


def test_a_plateau_needs_a_metric(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ParamSchedulerHook\.monitor: ReduceLROnPlateau follows a metric: name it"):
        Script(plateau).run(tmp_path)


def test_what_is_no_scheduler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"ParamSchedulerHook\.scheduler: a scheduler of PyTorch or Ignite .*, not str"
    ):
        Script(halving).run(tmp_path, scheduler="cosine")


# -- a script that steps its scheduler itself ------------------------------------------------------------------


def in_the_step(script: Script) -> None:
    step = script.trainer._process_function

    def stepping(engine: Engine, batch: Any) -> Any:
        output = step(engine, batch)
        if engine.state.iteration % LENGTH == 0:
            script.scheduler.step()
        return output

    script.trainer._process_function = stepping


def at_the_end(script: Script) -> None:
    script.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: script.scheduler.step())


def at_the_beginning(script: Script) -> None:
    script.trainer.add_event_handler(
        Events.EPOCH_STARTED, lambda engine: script.scheduler.step() if engine.state.epoch > 1 else None
    )


@pytest.mark.parametrize("steps_itself", [in_the_step, at_the_end])
def test_a_scheduler_is_never_stepped_twice(
    steps_itself: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(halving)
    steps_itself(script)
    with caplog.at_level(logging.WARNING):
        assert script.run(tmp_path)[::LENGTH] == [1.0, 0.5, 0.25]
    assert [record.message for record in caplog.records] == ["the script steps the StepLR itself: it is left alone"]


def test_script_that_steps_later_is_warned_with_our_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = Script(halving)
    at_the_beginning(script)
    with caplog.at_level(logging.WARNING):
        assert script.run(tmp_path)[::LENGTH] == [1.0, 0.25, 0.125], "once in the first epoch, then never again"
    assert "itself: it is left alone; it has been stepped here 1 times" in caplog.text


@pytest.mark.parametrize("by_epoch", [True, False])
def test_schedulers_attached_by_ignite_are_seen_before_any_step(
    by_epoch: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(ramp)
    script.trainer.add_event_handler(Events.ITERATION_STARTED, script.scheduler)
    with caplog.at_level(logging.WARNING):
        assert script.run(tmp_path, 1, by_epoch=by_epoch) == [0.0, 1.0, 2.0]
    assert "the script steps the LinearCyclicalScheduler itself" in caplog.text


# -- resuming --------------------------------------------------------------------------------------------------


WAYS = [(True, True, 4), (True, True, 3), (True, False, 4), (False, True, 4)]
RESUMED = [
    *((make, *way) for make in (halving, plateau, plateau_of_ignite) for way in WAYS),
    *((make, False, by_epoch, 4) for make in (sequential, ramp, joined, groups) for by_epoch in (True, False)),
]


@pytest.mark.parametrize(("make", "service", "by_epoch", "stop_at"), RESUMED)
def test_resumed_run_has_the_rates_of_an_uninterrupted_one(
    make: Any, service: bool, by_epoch: bool, stop_at: int, tmp_path: Path
) -> None:
    def part(folder: str, stop_at: int = 0, resume: bool = False) -> list[float]:
        script = Script(make)
        script.stop_at = stop_at
        settings = {} if service else {"scheduler": script.scheduler}
        keeps = {"type": "CheckpointHook", "save_best": False, "interval": 9}
        monitor = "loss" if make is plateau else None
        given = {"by_epoch": by_epoch, "monitor": monitor, **settings}
        return script.run(tmp_path / folder, 3, BY_HOOK, keeps, resume=resume, **given)

    whole = part("whole")
    assert part("parts", stop_at) + part("parts", resume=True) == whole
    assert len(set(whole)) > 1


def test_the_checkpoint_of_an_epoch_has_the_scheduler_stepped(tmp_path: Path) -> None:
    Script(halving).run(tmp_path, 2, {"type": "CheckpointHook", "save_best": False})
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    assert saved["scheduler"]["last_epoch"] == 1
    assert saved["optimizer"]["param_groups"][0]["lr"] == 0.5


def in_each_process() -> list[float]:
    """Measure something else on each rank: on rank 0 it gets worse, on rank 1 better."""
    rank = idist.get_rank()
    script = Script(plateau, [float(epoch if rank == 0 else -epoch) for epoch in range(4)])
    script.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: script.evaluator.run([1]))
    return script.run(Path(tempfile.mkdtemp()), 4, monitor="val_score")[::LENGTH]


@pytest.mark.slow
def test_all_ranks_follow_the_score_of_the_first() -> None:
    assert run_ranks(in_each_process) == [[1.0, 1.0, 0.5, 0.25]] * 2


def test_a_second_run_goes_on_with_the_same_scheduler() -> None:
    script = Script(halving)
    folder = Path(tempfile.mkdtemp())
    script.run(folder, 2)
    script.trainer.run(range(LENGTH), max_epochs=2)
    assert script.rates[::LENGTH] == [1.0, 0.5, 0.25, 0.125]
