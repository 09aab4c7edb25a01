"""The cost of an iteration in calls and opcodes, which have no noise. Times are in ``benchmarks/``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Events

from benchmarks.meter import Cost, cost_of
from ignite_hooks import BaseHook, attach_hooks
from tests.tools import echo_trainer

MOST_CALLS_WHEN_IDLE = 2
MOST_C_CALLS_WHEN_IDLE = 1  # Ignite's own, for any handler
MOST_OPCODES_WHEN_IDLE = 60
MOST_OPCODES_PER_ACTING_HOOK = 16
MOST_CALLS_TO_GATHER = 13
"""To look up batch_idx, data_batch and outputs, however many hooks want them."""


class Acting(BaseHook):
    def after_train_iter(self, runner: Any) -> None:
        pass


class ActingLikeMMEngine(BaseHook):
    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        pass


def mixed(name: str) -> BaseHook:
    """Return two kinds of hooks in turn, so that neighbours never receive the same arguments."""
    return (Acting, ActingLikeMMEngine)[int(name.removeprefix("hook")) % 2](name=name)


class BothEnds(BaseHook):
    def before_train_iter(self, runner: Any) -> None:
        pass

    def after_train_iter(self, runner: Any) -> None:
        pass


class Elsewhere(BaseHook):
    def before_epoch(self, runner: Any) -> None:
        pass

    def after_val_iter(self, runner: Any) -> None:
        pass


@pytest.fixture
def cost(tmp_path: Path) -> Callable[..., Cost]:
    """Return what this many hooks of a class add to an iteration of the bare engine."""
    bare = cost_of(echo_trainer())

    def measure(count: int, cls: Any = Acting, **settings: Any) -> Cost:
        trainer = echo_trainer()
        attach_hooks(trainer, [cls(name=f"hook{i}", **settings) for i in range(count)], work_dir=tmp_path)
        return cost_of(trainer) - bare

    return measure


def test_any_number_of_idle_hooks_adds_at_most_two_calls(cost: Callable[..., Cost]) -> None:
    ten = cost(10, interval=50)
    assert ten.calls <= MOST_CALLS_WHEN_IDLE
    assert ten.c_calls <= MOST_C_CALLS_WHEN_IDLE
    assert ten.opcodes <= MOST_OPCODES_WHEN_IDLE
    assert cost(50, interval=50) == ten == cost(0)


@pytest.mark.parametrize(
    "settings", [{"interval": 50}, {"start": 1000}, {"every": "1000 iter"}, {"interval": 7, "start": 28}]
)
def test_it_is_the_same_however_they_are_scheduled(settings: dict[str, Any], cost: Callable[..., Cost]) -> None:
    assert cost(10, **settings) == cost(0)


def test_a_hook_without_a_method_for_an_iteration_adds_nothing(cost: Callable[..., Cost]) -> None:
    assert cost(50, Elsewhere) == cost(0)
    assert cost(51, lambda name: (Acting if name == "hook0" else Elsewhere)(name=name)) == cost(1)


@pytest.mark.parametrize("cls", [Acting, ActingLikeMMEngine, mixed])
def test_each_acting_hook_adds_one_call_and_a_few_opcodes(cls: Any, cost: Callable[..., Cost]) -> None:
    few, many = cost(10, cls), cost(50, cls)
    assert many.calls - few.calls == 40
    assert many.c_calls == few.c_calls
    assert many.opcodes - few.opcodes <= 40 * MOST_OPCODES_PER_ACTING_HOOK


def test_what_changes_is_looked_up_once_for_all_hooks(cost: Callable[..., Cost]) -> None:
    assert cost(1, ActingLikeMMEngine).calls - cost(1).calls <= MOST_CALLS_TO_GATHER
    assert cost(50, ActingLikeMMEngine).calls - cost(50).calls <= MOST_CALLS_TO_GATHER


def test_iteration_start_costs_only_hooks_that_answer_it(cost: Callable[..., Cost]) -> None:
    assert cost(1, BothEnds).calls == 2 * cost(1).calls


def test_acting_hook_costs_a_third_of_an_ignite_handler(cost: Callable[..., Cost]) -> None:
    def handled(count: int) -> Cost:
        trainer = echo_trainer()
        for _ in range(count):
            trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: None)
        return cost_of(trainer)

    assert (cost(50) - cost(10)).opcodes * 3 <= (handled(50) - handled(10)).opcodes
