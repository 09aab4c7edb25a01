"""The methods with which a hook answers points."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
from ignite.metrics import Loss

from ignite_hooks import BaseHook, attach_hooks, scheduled
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.plan.methods import (
    Answer,
    answers_of,
    at,
    class_answers,
    default_name,
    method_of,
    own_method,
    own_methods,
)
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.points import POINTS
from ignite_hooks.plan.priority import Priority
from tests.tools import echo_trainer


class Twice(BaseHook):
    def after_train_iter(self) -> None: ...

    @at("after_train_iter", order=3, scheduled=True)
    def write(self) -> None: ...

    @scheduled
    def after_epoch(self) -> None: ...


def test_a_hook_answers_a_point_with_several_methods() -> None:
    assert class_answers(Twice) == (
        Answer("after_train_iter", POINTS["after_train_iter"]),
        Answer("after_epoch", POINTS["after_epoch"], None, True),
        Answer("write", POINTS["after_train_iter"], 3, True),
    )
    assert Twice().get_triggered_stages() == ["after_train_iter", "after_epoch"]
    assert list(Twice().answers()) == ["after_train_iter", "after_epoch", "write"]


def test_an_alias_is_a_name_of_its_point() -> None:
    class Aliased(BaseHook):
        def after_step(self) -> None: ...

    assert class_answers(Aliased) == (Answer("after_step", POINTS["after_train_iter"]),)


def test_a_method_that_overrides_a_placed_one_keeps_its_place() -> None:
    class Further(Twice):
        def write(self) -> None: ...

    class Without(Twice):
        write = None  # type: ignore[assignment]

    assert class_answers(Further) == class_answers(Twice)
    assert [answer.method for answer in class_answers(Without)] == ["after_train_iter", "after_epoch"]


def test_a_placed_method_is_called_at_its_point(tmp_path: Path) -> None:
    seen: list[str] = []

    class Around(BaseHook):
        @at("after_train_iter", order=0)
        def last(self) -> None:
            seen.append("last")

        @at("after_train_iter", order=90, scheduled=True)
        def first(self) -> None:
            seen.append("first")

        def after_train_iter(self) -> None:
            seen.append("between")

    trainer = echo_trainer()
    attach_hooks(trainer, [Around(interval=2)], work_dir=tmp_path)
    trainer.run([1, 2])
    assert seen == ["between", "last", "first", "between", "last"]


class Given(BaseHook):
    """Answers other points from object to object."""

    def __init__(self, point: str) -> None:
        super().__init__()
        self.point, self.calls = point, 0

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return {self.point: self.note}

    def note(self) -> None:
        self.calls += 1


@pytest.mark.parametrize(("point", "calls"), [("after_epoch", 1), ("after_step", 2), ("lunch", 0)])
def test_an_object_can_say_which_points_it_answers(point: str, calls: int, tmp_path: Path) -> None:
    trainer, hook = echo_trainer(), Given(point)
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([1, 2])
    assert hook.calls == calls
    runner.call_hook(point)
    assert hook.calls == calls + 1
    assert class_answers(Given) == ()
    assert [slot.method for slot in Plan({"given": hook}).at(point)] == [point]


def test_answers_of_another_make_are_no_answers() -> None:
    class Quiz:
        def answers(self, question: str) -> str:
            return question

        def after_epoch(self) -> None: ...

    assert [answer.method for answer in answers_of(Quiz())] == ["after_epoch"]


def test_hooks_of_functions_can_be_pickled_and_copied() -> None:
    hook = LambdaHook(after_epoch=print, name="printed", interval=3)
    for again in (pickle.loads(pickle.dumps(hook)), copy.deepcopy(hook)):
        assert type(again) is type(hook) is LambdaHook
        assert (again.name, again.interval, dict(again.answers())) == ("printed", 3, {"after_epoch": print})


def test_defaults_are_no_methods_of_a_hook() -> None:
    assert own_method(BaseHook, "after_epoch") is None
    assert own_method(BaseHook, "weights") is None
    assert own_method(Twice, "after_epoch") is not None
    assert own_method(Twice, "no such method") is None


def test_the_default_name_of_a_hook_is_its_class() -> None:
    hook = Twice()
    assert default_name(hook) == "Twice"
    hook.default_name = "Other"
    assert default_name(hook) == "Other"
    assert default_name(Loss(numpy.mean)) == "Loss"


def test_methods_are_found_on_the_class_only() -> None:
    metric = Loss(numpy.mean)
    assert hasattr(metric, "how_often")
    assert method_of(metric, "how_often") is None
    assert method_of(metric, "attach") is Loss.attach
    assert method_of(Priority.HIGH, "name") is None


def test_a_method_that_a_class_gets_later_answers_too() -> None:
    class Base(BaseHook):
        def after_epoch(self) -> None: ...

    class Later(Base): ...

    def answered() -> list[tuple[str, bool]]:
        assert own_methods(Later) >= {answer.method for answer in class_answers(Later)}
        return [(answer.method, answer.scheduled) for answer in class_answers(Later)]

    assert answered() == [("after_epoch", False)]
    Later.after_train_iter = lambda self: None  # type: ignore[method-assign]
    assert answered() == [("after_train_iter", False), ("after_epoch", False)]
    Base.after_epoch = scheduled(lambda self: None)  # type: ignore[method-assign]
    assert answered() == [("after_train_iter", False), ("after_epoch", True)]
    del Later.after_train_iter
    assert answered() == [("after_epoch", True)]
    assert "after_train_iter" not in own_methods(Later)
