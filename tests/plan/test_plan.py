"""The plan: which hook runs where, in which order and how often."""

from __future__ import annotations

from ignite_hooks import BaseHook, scheduled
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
