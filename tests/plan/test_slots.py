"""Which slots a hook takes, and when they fire."""

from __future__ import annotations

import pytest

from ignite_hooks import BaseHook, scheduled
from ignite_hooks.plan.points import point_named
from ignite_hooks.plan.schedule import When
from ignite_hooks.plan.slots import Slot, slots_of


class Iterations(BaseHook):
    def after_train_iter(self) -> None: ...

    def after_epoch(self) -> None: ...


class EpochsOnly(BaseHook):
    def before_epoch(self) -> None: ...

    def after_train_epoch(self) -> None: ...

    def after_val_epoch(self) -> None: ...


class Marked(BaseHook):
    @scheduled
    def after_train_iter(self) -> None: ...

    @scheduled
    def after_train_epoch(self) -> None: ...

    def before_run(self) -> None: ...


class Aliases(BaseHook):
    def before_training(self) -> None: ...

    def after_step(self) -> None: ...


class Decides(BaseHook):
    def should_trigger(self, step: int) -> bool:
        return step == 1

    def after_train_iter(self) -> None: ...


def words(hook: BaseHook) -> dict[str, str]:
    return {slot.method: slot.how_often for slot in slots_of("hook", hook)}


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (Iterations(), {"after_train_iter": "always", "after_epoch": "always"}),
        (Iterations(interval=50), {"after_train_iter": "every 50 iters", "after_epoch": "always"}),
        (Iterations(frequency=50), {"after_train_iter": "every 50 iters", "after_epoch": "always"}),
        (Iterations(interval=2, by_epoch=True), {"after_train_iter": "always", "after_epoch": "every 2 epochs"}),
        (Iterations(every="10 min"), {"after_train_iter": "every 600 s", "after_epoch": "always"}),
        (
            EpochsOnly(interval=3),
            {"before_epoch": "every 3 epochs", "after_train_epoch": "every 3 epochs", "after_val_epoch": "always"},
        ),
        (
            EpochsOnly(every="1 h"),
            {"before_epoch": "every 3600 s", "after_train_epoch": "every 3600 s", "after_val_epoch": "always"},
        ),
        (
            EpochsOnly(interval=5, by_epoch=False),
            dict.fromkeys(("before_epoch", "after_train_epoch", "after_val_epoch"), "always"),
        ),
        (Marked(interval=4), {"after_train_iter": "every 4 iters", "before_run": "always"}),
        (Marked(interval=4, by_epoch=True), {"after_train_epoch": "every 4 epochs", "before_run": "always"}),
        (Marked(every="5 s"), {"after_train_iter": "every 5 s", "before_run": "always"}),
        (Aliases(frequency=5), {"before_training": "always", "after_step": "every 5 iters"}),
        (Decides(), {"after_train_iter": "as should_trigger decides"}),
    ],
)
def test_schedule_governs_marked_methods_or_else_points_of_its_unit(hook: BaseHook, expected: dict[str, str]) -> None:
    assert words(hook) == expected


def slot(point: str, when: When | None = None, owner: object = None, decides: bool = False) -> Slot:
    return Slot(point_named(point), "hook", owner, point, print, 50, when, decides)


@pytest.mark.parametrize(
    ("made", "fires"),
    [
        (slot("after_train_iter"), [1, 2, 3, 4, 5, 6]),
        (slot("after_train_iter", When(1)), [1, 2, 3, 4, 5, 6]),
        (slot("after_train_iter", When(3)), [3, 6]),
        (slot("after_train_iter", When(3, start=2)), [2, 5]),
        (slot("after_epoch", When(2, "epoch")), [2, 4, 6]),
        (slot("after_train_iter", When(10, "second")), []),
        (slot("after_train_iter", When(3), Decides(), decides=True), [2]),
    ],
)
def test_one_rule_says_whether_a_slot_is_due(made: Slot, fires: list[int]) -> None:
    assert [n for n in range(1, 7) if made.is_due(n)] == fires


def test_a_schedule_in_seconds_fires_by_its_clock_alone() -> None:
    timed, other = slot("after_train_iter", When(10, "second")), slot("before_train_iter", When(10, "second"))
    assert timed.by_clock
    assert timed.is_due(1, {timed.key})
    assert not timed.is_due(1, {other.key})


@pytest.mark.parametrize(
    ("made", "counts_epochs"),
    [
        (slot("after_train_iter", When(2)), False),
        (slot("after_epoch", When(2, "epoch")), True),
        (slot("after_epoch", When(5, "second")), True),
        (slot("after_val_epoch"), False),
    ],
)
def test_a_slot_is_due_by_epochs_or_iterations(made: Slot, counts_epochs: bool) -> None:
    assert made.counts_epochs is counts_epochs
