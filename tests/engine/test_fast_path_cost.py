"""The cost of an iteration in calls and opcodes, which have no noise. Times are in ``benchmarks/``."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Events
from ignite.metrics import Average

from benchmarks.meter import Cost, cost_of
from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.testing import tiny_run
from tests.tools import echo_trainer

NOTHING = Cost(0, 0, 0)
MOST_WHEN_IDLE = Cost(1, 1, 50)
"""A call of ours, and one of Ignite for any handler."""
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


EVENTS = {event.name: event for event in Events}


def is_in_dictionary(thing: Any) -> bool:
    """Return whether the attributes of an object have been put into a dictionary; CPython 3.13 needs none."""
    held = gc.get_referents(thing)
    return len(held) == 2 and type(held[0]) is dict


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


SCHEDULES = [{"interval": 50}, {"start": 1000}, {"every": "1000 iter"}, {"interval": 7, "start": 28}]


@pytest.mark.parametrize("settings", SCHEDULES)
def test_idle_hooks_add_one_call_however_many_they_are(settings: dict[str, Any], cost: Callable[..., Cost]) -> None:
    ten = cost(10, **settings)
    assert all(it <= most for it, most in zip(ten, MOST_WHEN_IDLE, strict=True))
    assert cost(50, **settings) == ten


@pytest.mark.parametrize("count", [0, 1, 50])
def test_hooks_at_no_point_of_an_iteration_add_nothing_to_it(count: int, cost: Callable[..., Cost]) -> None:
    assert cost(count, Elsewhere) == NOTHING


@pytest.mark.parametrize("hooks", [[], ["CheckpointHook", {"type": "EvalHook", "metric": "loss"}, "RuntimeInfoHook"]])
def test_the_attributes_of_engines_stay_beside_them(hooks: list[Any], tmp_path: Path) -> None:
    # Reading them takes longer once they are in a dictionary, which counts of calls do not show.
    tiny = tiny_run()
    data, engines = tiny.data, {"trainer": tiny.trainer, "evaluator": tiny.evaluator}
    Average(output_transform=lambda output: 0.5).attach(tiny.evaluator, "loss")
    attach_hooks(tiny.trainer, hooks, evaluators=tiny.evaluator, val_loader=tiny.val_data, work_dir=tmp_path)
    seen: set[str] = set()

    def look() -> None:
        of_engines = {name: thing for name, engine in engines.items() for thing in (engine, engine.state)}
        things = [*of_engines.items(), *((name, engine.state) for name, engine in engines.items()), *EVENTS.items()]
        seen.update(f"{name}: {type(thing).__name__}" for name, thing in things if is_in_dictionary(thing))

    tiny.trainer.add_event_handler(Events.ITERATION_COMPLETED, look)
    tiny.trainer.run(data, max_epochs=3)
    assert not seen


def test_a_hook_without_a_method_adds_nothing_beside_one_that_acts(cost: Callable[..., Cost]) -> None:
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
