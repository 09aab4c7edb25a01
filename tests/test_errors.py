"""Errors say where, what and what would have worked, in few lines, and survive the way between processes."""

from __future__ import annotations

import pickle

import pytest

from ignite_hooks.errors import (
    ConfigError,
    HookError,
    Problem,
    SettingError,
    below,
    did_you_mean,
    nearest,
    one_line,
    shown,
)


def test_one_problem_is_one_line() -> None:
    error = ConfigError([Problem("hooks[0].interval", "a whole number is needed, not 'x'")], "run.yaml")
    assert str(error) == "run.yaml: hooks[0].interval: a whole number is needed, not 'x'"
    assert error.source == "run.yaml"


def test_several_problems_are_counted_and_indented() -> None:
    error = ConfigError([Problem("a", "wrong"), Problem("", "no place")], "run.yaml")
    assert str(error) == "2 problems in run.yaml:\n  a: wrong\n  no place"
    assert str(ConfigError([Problem("a", "x"), Problem("b", "y")])) == "2 problems:\n  a: x\n  b: y"


def test_a_problem_has_one_line_however_long_what_the_user_wrote() -> None:
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


def test_a_setting_error_reads_as_the_value_error_it_is_and_names_its_setting() -> None:
    error = SettingError("size", "3 is odd")
    assert isinstance(error, ValueError)
    assert (str(error), one_line(error)) == ("size: 3 is odd", "size: 3 is odd")
    assert (error.setting, error.message) == ("size", "3 is odd")
    named = SettingError("size", "size is even", text="size is even")
    assert (str(named), named.setting, named.message) == ("size is even", "size", "size is even")


def test_a_hook_error_says_hook_point_epoch_and_iteration() -> None:
    error = HookError("ema", "after_train_iter", 2, 17, ZeroDivisionError("division by zero"))
    assert str(error) == "ema.after_train_iter failed at epoch 2, iteration 17: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("monitr", "monitor"),
        ("MONITOR", "monitor"),
        ("patiance", "patience"),
        ("xyz", None),
        ("", None),
        (3, None),
        (None, None),
        pytest.param("monitor" * 100_000, None, id="long"),
    ],
)
def test_nearest(word: object, found: str | None) -> None:
    assert nearest(word, ["monitor", "patience", 3]) == found
    assert did_you_mean(word, ["monitor", "patience", 3]) == (f", did you mean {found!r}?" if found else "")


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "'a\\nb'"),
        pytest.param(10**5000, "<int>", id="huge"),
        (Rude(), "<Rude>"),
        (None, "None"),
        ("x" * 100, "'" + "x" * 56 + "..."),
    ],
)
def test_a_value_is_shown_on_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("interval", "hooks[0].interval"),
        ("work-dir", "hooks[0].work-dir"),
        ("", "hooks[0]['']"),
        ("a.b", "hooks[0]['a.b']"),
        ("a\nb", "hooks[0]['a\\nb']"),
        (3, "hooks[0][3]"),
        (None, "hooks[0][None]"),
        pytest.param("k" * 1000, "hooks[0]['" + "k" * 56 + "...]", id="long"),
    ],
)
def test_a_place_names_any_key(key: object, place: str) -> None:
    assert below("hooks[0]", key) == place


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad\n  value"), "bad value"),
        (KeyError("model"), "KeyError: model"),
        (AttributeError("no"), "AttributeError: no"),
        (ValueError(), "ValueError"),
        pytest.param(ValueError("x" * 500), "x" * 197 + "...", id="long"),
        (ModuleNotFoundError("No module named 'tqdm'"), "No module named 'tqdm'"),
    ],
)
def test_the_error_of_someone_else_is_one_line(error: Exception, text: str) -> None:
    assert one_line(error) == text
