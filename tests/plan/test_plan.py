"""The plan: which hook runs where, in which order and how often."""

from __future__ import annotations

import pytest
from ignite.handlers import Timer

from ignite_hooks import BaseHook, scheduled
from ignite_hooks.config.ignite_handlers import as_hook
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.plan import Plan


class Iterations(BaseHook):
    def after_train_iter(self) -> None: ...

    def after_epoch(self) -> None: ...


class Marked(BaseHook):
    @scheduled
    def after_train_iter(self) -> None: ...

    @scheduled
    def after_train_epoch(self) -> None: ...

    def before_run(self) -> None: ...


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


class TwoAtOnce(BaseHook):
    def after_epoch(self) -> None: ...

    @at("after_epoch", order=0)
    def finish(self) -> None: ...

    @at("after_train_iter")
    def write(self) -> None: ...


def test_two_methods_of_a_hook_at_one_point_have_their_names() -> None:
    rows = [(row["point"], row["hook"]) for row in Plan({"two": TwoAtOnce()}).rows()]
    assert rows == [("after_train_iter", "two"), ("after_epoch", "two"), ("", "two.finish")]


class Attaching(BaseHook):
    def attached(self) -> None: ...


class OnDemand(BaseHook):
    def lunch(self) -> None: ...


def test_hooks_without_a_known_point_are_in_the_plan_too() -> None:
    hooks = {"timer": as_hook(Timer()), "val": as_hook(Timer(), engine="val"), "a": Attaching(), "lunch": OnDemand()}
    assert [(row["point"], row["hook"], row["how often"]) for row in Plan(hooks).rows()] == [
        ("apart", "timer", "at events of its own of the trainer"),
        ("", "val", "at events of its own of the evaluator 'val'"),
        ("", "a", "as its attached() arranges"),
        ("", "lunch", "when runner.call_hook() names it"),
    ]
    assert "at events of its own" in str(Plan(hooks))
    assert Plan(hooks).digest != Plan({"timer": hooks["timer"]}).digest


@pytest.mark.parametrize("columns", [60, 80, 110])
def test_a_plan_shows_itself_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    plan = Plan({"a_hook_with_a_long_name" * 2: Marked(), "b": Marked()})
    assert repr(plan) == str(plan)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert max(map(len, repr(plan).splitlines())) <= columns
    assert "after_train_iter" in repr(plan)
