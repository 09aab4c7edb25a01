"""Errors name the place, the problem and the remedy in few lines, and can be pickled."""

from __future__ import annotations

import pickle

import pytest

from ignite_hooks.errors import ConfigError, HookError, Problem, SettingError
from ignite_hooks.text import one_line


def test_one_problem_is_one_line() -> None:
    error = ConfigError([Problem("hooks[0].interval", "a whole number is needed, not 'x'")], "run.yaml")
    assert str(error) == "run.yaml: hooks[0].interval: a whole number is needed, not 'x'"
    assert error.source == "run.yaml"


def test_several_problems_are_counted_and_indented() -> None:
    error = ConfigError([Problem("a", "wrong"), Problem("", "no place")], "run.yaml")
    assert str(error) == "2 problems in run.yaml:\n  a: wrong\n  no place"
    assert str(ConfigError([Problem("a", "x"), Problem("b", "y")])) == "2 problems:\n  a: x\n  b: y"


def test_a_problem_has_one_line_whatever_the_user_wrote() -> None:
    [problem] = ConfigError([Problem("a", "there is no service 'x\n\ny'" + "z" * 500)]).problems
    assert problem.message.startswith("there is no service 'x y'zzz")
    assert len(problem.message) == 300


def test_a_plain_message_is_a_problem_without_a_place() -> None:
    assert ConfigError("nothing fits").problems == (Problem("", "nothing fits"),)
    assert isinstance(ConfigError("x"), ValueError)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError([Problem("a", "wrong"), Problem("b", "wrong too")], "run.yaml"),
        HookError("ema", "after_train_iter", 2, 17, ZeroDivisionError("division by zero")),
        SettingError("size", "3 is odd"),
        SettingError("size", "size is even", text="size is even"),
    ],
)
def test_errors_can_be_pickled(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_setting_error_names_its_setting() -> None:
    error = SettingError("size", "3 is odd")
    assert isinstance(error, ValueError)
    assert (str(error), one_line(error)) == ("size: 3 is odd", "size: 3 is odd")
    assert (error.setting, error.message) == ("size", "3 is odd")
    named = SettingError("size", "size is even", text="size is even")
    assert (str(named), named.setting, named.message) == ("size is even", "size", "size is even")


def test_a_hook_error_says_hook_point_epoch_and_iteration() -> None:
    error = HookError("ema", "after_train_iter", 2, 17, ZeroDivisionError("division by zero"))
    assert str(error) == "ema.after_train_iter failed at epoch 2, iteration 17: ZeroDivisionError: division by zero"
