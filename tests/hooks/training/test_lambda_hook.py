from __future__ import annotations

import copy
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import ConfigError, HookError, attach_hooks, build_hook
from ignite_hooks.cli.app import main
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from tests.tools import echo_trainer


def run(tmp_path: Path, hook: object, epochs: int = 2, **services: Any) -> None:
    trainer = echo_trainer()
    attach_hooks(trainer, [hook], work_dir=tmp_path, **services)
    trainer.run([0.5, 1.5], max_epochs=epochs)


def test_a_function_gets_what_its_parameters_name(tmp_path: Path) -> None:
    seen: list[Any] = []
    hook = LambdaHook(after_epoch=lambda epoch, metrics, thing: seen.append((epoch, metrics["loss"], thing)))
    run(tmp_path, hook, thing="mine")
    assert seen == [(0, 1.5, "mine"), (1, 1.5, "mine")]


def test_a_first_parameter_of_another_name_is_the_runner(tmp_path: Path) -> None:
    seen: list[Any] = []
    run(tmp_path, LambdaHook(after_run=lambda r: seen.append(r.global_step)))
    assert seen == [4]


class Counter:
    def __init__(self) -> None:
        self.steps: list[int] = []

    def note(self, global_step: int) -> None:
        self.steps.append(global_step)

    __call__ = note


@pytest.mark.parametrize("of", [lambda c: c, lambda c: c.note, lambda c: partial(c.note)])
def test_methods_partials_and_callable_objects_are_functions(tmp_path: Path, of: Any) -> None:
    counter = Counter()
    run(tmp_path, LambdaHook(after_train_iter=of(counter)))
    assert counter.steps == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"interval": 2}, [2, 4, 6]),
        ({"frequency": 3}, [3, 6]),
        ({"every": "4 iter", "start": 2}, [2, 6]),
        ({}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_words_of_the_schedule_work(tmp_path: Path, settings: dict[str, Any], steps: list[int]) -> None:
    counter = Counter()
    run(tmp_path, LambdaHook(after_train_iter=counter, **settings), epochs=3)
    assert counter.steps == steps


def test_should_trigger_decides(tmp_path: Path) -> None:
    counter = Counter()
    run(tmp_path, LambdaHook(after_train_iter=counter, should_trigger=lambda step: step in (0, 3)))
    assert counter.steps == [1, 4]


def test_each_hook_has_separate_functions_and_settings(tmp_path: Path) -> None:
    first, second = LambdaHook(before_run=print, name="a", priority=3), LambdaHook(after_run=print, name="b")
    assert (first.get_triggered_stages(), first.name, first.priority) == (["before_run"], "a", 3)
    assert (second.get_triggered_stages(), second.name, second.priority) == (["after_run"], "b", 50)
    assert [type(hook).__name__ for hook in (first, second)] == ["LambdaHook", "LambdaHook"]


def test_a_copy_does_the_same(tmp_path: Path) -> None:
    counter = Counter()
    run(tmp_path, copy.copy(LambdaHook(after_step=counter, interval=2)))
    assert counter.steps == [2, 4]


def test_any_other_name_is_a_point_of_the_scripts_own(tmp_path: Path) -> None:
    seen: list[str] = []
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [LambdaHook(lunch=lambda dish: seen.append(dish))], work_dir=tmp_path)
    runner.call_hook("lunch", dish="soup")
    assert seen == ["soup"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"after_train_itr": print}, "after_train_itr: not a point, did you mean 'after_train_iter'?"),
        ({"interva": 3}, "interva: a function is needed, not 3, did you mean 'interval'?"),
        ({"after_epoch": None}, "after_epoch: a function is needed, not None"),
        ({"when": print}, "when: a word of every hook cannot be a point"),
    ],
)
def test_slips_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        LambdaHook(**given)
    assert str(refused.value).startswith(message)


def test_a_python_configuration_can_name_it(tmp_path: Path) -> None:
    counter = Counter()
    run(tmp_path, {"type": "LambdaHook", "after_train_iter": counter, "interval": 2, "name": "count"})
    assert counter.steps == [2, 4]


def test_a_file_can_name_services(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text('hooks: [{type: LambdaHook, after_train_iter: "@count", interval: 2}]')
    assert main(["validate", str(path)]) == 0
    assert main(["explain", str(path)]) == 0
    said = capsys.readouterr().out
    assert "note: needs count from the script" in said
    assert re.search(r"after_train_iter +1 +LambdaHook +50 +every 2 iters", said)
    trainer, counter = echo_trainer(), Counter()
    attach_hooks(trainer, path, count=counter, work_dir=tmp_path / "run")
    trainer.run(range(4))
    assert counter.steps == [2, 4]


def test_a_slip_in_a_configuration_has_its_place() -> None:
    with pytest.raises(ConfigError, match=r"hook\.after_epch: not a point, did you mean 'after_epoch'"):
        build_hook({"type": "LambdaHook", "after_epch": print})


def test_a_failure_ends_the_run(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("boom")

    with pytest.raises(HookError, match="before_run failed"):
        run(tmp_path, LambdaHook(before_run=fail))
