"""Observing hooks that are over the overhead budget are slowed down."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
from ignite.engine import Engine

from ignite_hooks import BaseHook, ConfigError, Runner, attach_hooks
from ignite_hooks.engine.budget import Budget, Spent
from ignite_hooks.hooks.base_hook import OnError, settings
from ignite_hooks.plan.schedule import scheduled
from tests.ranks import run_ranks
from tests.tools import echo_trainer


@settings
class Watcher(BaseHook):
    """Only observes, and takes a millisecond."""

    interval: int = 1
    on_error: OnError = "warn"

    def __post_init__(self) -> None:
        self.steps: list[int] = []

    @scheduled
    def after_train_iter(self, runner: Any) -> None:
        self.steps.append(runner.global_step)
        time.sleep(0.001)


@dataclass
class Count:
    calls: int = 0


@settings
class Keeper(Watcher):
    """Holds a state."""

    state: Count = field(init=False, default_factory=Count)


class Decides(BaseHook):
    """Decides for itself."""

    on_error = "warn"

    def should_trigger(self, step: int) -> bool:
        return step % 4 == 0

    def after_train_iter(self) -> None:
        time.sleep(0.001)


class Acts(Watcher):
    """Is not said to observe only."""

    on_error: OnError = "raise"


def run(
    hook: BaseHook, folder: Path, budget: float | None, iterations: int = 350, step: float = 0.0
) -> tuple[Engine, Runner]:
    trainer = Engine(lambda engine, batch: time.sleep(step)) if step else echo_trainer()
    runner = attach_hooks(trainer, {"hooks": [hook], "overhead_budget": budget}, work_dir=folder)
    trainer.run(range(iterations))
    return trainer, runner


def test_the_interval_of_a_slow_observing_hook_is_doubled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = Watcher()
    trainer, runner = run(hook, tmp_path, 0.02)
    assert hook.steps == [*range(1, 201), *range(202, 301, 2), *range(304, 351, 4)]
    assert hook.interval == 1
    assert trainer.state.iteration == 350
    assert "every 4 iters, slowed from 1" in str(runner.plan)
    said = runner.report().slowed["Watcher"]
    assert said.endswith("more than the overhead_budget of 2.0%: now every 4 iters, slowed from 1")
    assert caplog.text.count("more than the overhead_budget") == 2


def test_the_next_run_begins_with_the_intervals_of_the_settings(tmp_path: Path) -> None:
    hook = Watcher()
    trainer, _ = run(hook, tmp_path, 0.02, iterations=250)
    hook.steps.clear()
    trainer.state.max_epochs = None
    trainer.run(range(50))
    assert hook.steps == list(range(1, 51))


@pytest.mark.parametrize(
    ("cls", "budget"), [(Keeper, 0.02), (Acts, 0.02), (Decides, 0.02), (Watcher, None), (Watcher, 1.0)]
)
def test_no_other_hook_is_ever_slowed_down(cls: type[BaseHook], budget: float | None, tmp_path: Path) -> None:
    trainer, runner = run(cls(), tmp_path, budget, iterations=210)
    assert trainer.state.iteration == 210
    assert runner.report().slowed == {}
    assert "slowed" not in str(runner.plan)


@pytest.mark.parametrize("budget", [0, -1, 2, "2 %", True, [0.1]])
def test_a_budget_is_a_share(budget: Any) -> None:
    with pytest.raises(ConfigError, match="overhead_budget: the share of the time that a hook may take is needed"):
        attach_hooks(echo_trainer(), {"hooks": [], "overhead_budget": budget})


def test_a_hook_is_judged_by_its_time_since_the_slowdown() -> None:
    budget = Budget(0.1)
    budget.begin(0.0)
    assert budget.over({"a": Spent(100, 1, 1.0)}, 5.0) == {}, "one is too few"
    assert budget.over({"a": Spent(4, 2, 0.5)}, 5.0) == {"a": 0.2}
    budget.slow(["a"], {"a": Spent(4, 2, 0.5)}, 5.0)
    assert budget.over({"a": Spent(5, 3, 2.5)}, 6.0) == {}
    assert budget.over({"a": Spent(6, 4, 1.0)}, 15.0) == {}
    assert budget.over({"a": Spent(6, 4, 2.5)}, 15.0) == {"a": 0.2}
    assert budget.factors == {"a": 2}
    budget.begin(20.0)
    assert budget.factors == {}


class DearOnOneRank(Watcher):
    """Takes its time on one rank only."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.sleeps = idist.get_rank() == rank

    @scheduled
    def after_train_iter(self, runner: Any) -> None:
        self.steps.append(runner.global_step)
        if self.sleeps:
            time.sleep(0.004)


def steps_of_ranks(folder: str) -> list[list[int]]:
    """Return when a hook that is slow on rank 0 acts on this rank, and when one that is slow on rank 1 does."""
    found = []
    for dear in (0, 1):
        hook = DearOnOneRank(dear)
        place = Path(folder) / f"dear on {dear}, seen by {idist.get_rank()}"
        # Beside a step of a millisecond, a hook that does nothing stays cheap on the busiest machine.
        trainer, _ = run(hook, place, 0.3, iterations=230, step=0.001)
        found.append(hook.steps)
        assert trainer.state.iteration == 230
    return found


@pytest.mark.slow
def test_rank_0_decides_for_all_ranks_at_the_same_iteration(tmp_path: Path) -> None:
    first, second = run_ranks(steps_of_ranks, str(tmp_path))
    assert first == second
    slowed, left_alone = first
    assert slowed == [*range(1, 201), *range(202, 231, 2)]
    assert left_alone == list(range(1, 231))
