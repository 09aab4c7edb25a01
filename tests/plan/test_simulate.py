"""A simulated run: which calls a plan leads to. ``tests/test_all_hooks.py`` compares it with real runs."""

from __future__ import annotations

from typing import Any

from ignite_hooks import BaseHook
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.simulate import PlanSimulation, Step


class Evaluates(BaseHook):
    def after_epoch(self) -> None: ...

    def leads_to(self, method: str, simulation: PlanSimulation) -> tuple[str, ...]:
        return ("val",) if simulation.epoch == 2 else ()


class Sees(BaseHook):
    def after_train_iter(self) -> None: ...

    def after_val_iter(self) -> None: ...


def test_a_call_leads_to_what_its_hook_says() -> None:
    plan = Plan({"evaluates": Evaluates(), "sees": Sees(interval=2)})
    assert list(plan.timeline(2, 3, 2)) == [
        Step("after_train_iter", "sees", 1, 2),
        Step("after_epoch", "evaluates", 1, 3),
        Step("after_train_iter", "sees", 2, 4),
        Step("after_train_iter", "sees", 2, 6),
        Step("after_epoch", "evaluates", 2, 6),
        Step("after_val_iter", "sees", 2, 6),
        Step("after_val_iter", "sees", 2, 6),
    ]


def test_a_hook_that_is_no_base_hook_leads_to_nothing() -> None:
    class Plain:
        def after_epoch(self, runner: Any) -> None: ...

    assert list(Plan({"plain": Plain()}).timeline(1, 1)) == [Step("after_epoch", "plain", 1, 1)]


def test_a_clock_never_fires() -> None:
    assert list(Plan({"sees": Sees(every="1 s")}).timeline(1, 2)) == []
