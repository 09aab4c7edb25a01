"""The plan: which hook runs where, in which order and how often."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks import BaseHook, Priority, scheduled
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.priority import hook_priority
from ignite_hooks.plan.slots import problems_of, slots_of


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
        (Decides(), {"after_train_iter": "as it decides"}),
    ],
)
def test_a_schedule_governs_what_is_marked_or_else_the_points_of_its_unit(
    hook: BaseHook, expected: dict[str, str]
) -> None:
    assert words(hook) == expected


class Averaged(BaseHook):
    priority = Priority.ABOVE_NORMAL
    point_priority = {"after_train_iter": 95}

    def after_train_iter(self) -> None: ...

    def after_val(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "at_iteration", "at_validation"),
    [
        (None, 95, 40),
        ("low", 95, 70),
        (20, 95, 20),
        ({"after_train_iter": "HIGHEST"}, 0, 40),
        ({"after_step": 3}, 3, 40),
        ({"after_val": 7}, 95, 7),
    ],
)
def test_the_configuration_replaces_the_class_and_the_point_replaces_both(
    given: Any, at_iteration: int, at_validation: int
) -> None:
    hook = Averaged() if given is None else Averaged(priority=given)
    assert (hook_priority(hook, "after_train_iter"), hook_priority(hook, "after_val")) == (at_iteration, at_validation)


def test_the_table_names_each_point_once_and_what_is_next() -> None:
    plan = Plan({"a": Marked(interval=50, priority=10), "b": Iterations()}, now=lambda: (120, 2))
    assert str(plan).splitlines() == [
        "point             order  hook  priority  how often       next",
        "before_run        1      a     10        always",
        "after_train_iter  1      b     50        always",
        "                  2      a     10        every 50 iters  iter 150",
        "after_epoch       1      b     50        always",
    ]
    assert len(plan) == 4
    assert "<table>" in plan._repr_html_()
    assert plan._repr_html_().count("<tr>") == 5
    assert str(Plan({})) == "no hooks"


def test_a_hostile_name_is_only_text_in_the_html_table() -> None:
    assert "<script>" not in Plan({"<script>alert(1)</script>": Iterations()})._repr_html_()


def test_equal_plans_have_equal_digests_and_any_difference_shows() -> None:
    def digest(**hooks: BaseHook) -> str:
        return Plan(hooks).digest

    same = digest(a=Iterations(interval=2), b=Marked())
    assert same == digest(a=Iterations(interval=2), b=Marked())
    others = [
        digest(a=Iterations(interval=3), b=Marked()),
        digest(a=Iterations(interval=2, priority=3), b=Marked()),
        digest(a=Iterations(interval=2)),
        digest(b=Marked(), a=Iterations(interval=2, priority=60)),
        digest(a=Marked(), b=Iterations(interval=2)),
    ]
    assert same not in others
    assert len(set(others)) == len(others)


def test_any_method_can_be_a_point_and_follows_its_prefix() -> None:
    class Custom(BaseHook):
        def my_point(self) -> None: ...

        def after_lunch(self) -> None: ...

    plan = Plan({"a": Custom(priority=10), "b": Custom(priority=90)})
    assert [slot.hook for slot in plan.at("my_point")] == ["a", "b"]
    assert [slot.hook for slot in plan.at("after_lunch")] == ["b", "a"]
    assert plan.at("nothing") == ()


def test_what_is_wrong_with_a_hook_is_found_when_it_is_registered() -> None:
    class Slips(BaseHook):
        def after_train_itr(self) -> None: ...

        def before_my_epoch(self) -> None: ...

    found = problems_of(Slips(priority={"after_lunch": 5, "after_epoch": 101}, interval=0))
    assert [setting for setting, _ in found] == ["after_train_itr", "priority", "priority", "interval"]
    assert "did you mean 'after_train_iter'?" in found[0][1]
    assert "no point 'after_lunch'" in found[1][1]
    assert "101" in found[2][1]
