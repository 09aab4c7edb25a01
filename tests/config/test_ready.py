"""Every object that can be a hook is one, whichever way it comes, and any other is refused in words."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping, TerminateOnNan, TimeLimit, Timer

from ignite_hooks import BaseHook, ConfigError, attach_hooks, build_hook
from ignite_hooks.config.ready import NEEDED, is_handler_class, needs_mmengine, ready, takes_engine
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from tests.engine.test_installation import handlers_of
from tests.tools import echo_trainer


class Own:
    custom_points = ("lunch",)

    def lunch(self) -> None: ...


@pytest.mark.parametrize("thing", [LambdaHook(after_epoch=print), Own()])
def test_a_hook_is_taken_as_it_is(thing: Any) -> None:
    assert ready(thing) is thing


@pytest.mark.parametrize(
    ("thing", "name"),
    [(TerminateOnNan(), "TerminateOnNan"), (print, "print"), (functools.partial(print, "x"), "print")],
)
def test_a_handler_and_a_function_become_hooks_with_their_name(thing: Any, name: str) -> None:
    assert ready(thing).default_name == name


async def later(engine: Engine) -> None: ...


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (object(), f"not a hook: object can neither be attached to an engine nor called with one; {NEEDED}"),
        (5, f"not a hook: int can neither be attached to an engine nor called with one; {NEEDED}"),
        (TimeLimit, "a class: write {'type': 'TimeLimit'} or TimeLimit() for a hook"),
        ("LoggerHook", "a hook is needed, not 'LoggerHook': pass it to build_hook() first"),
        (later, f"not a hook: later: 'async def' never runs, as nothing awaits it: write 'def'; {NEEDED}"),
    ],
)
def test_anything_else_is_a_type_error_that_says_what_is_needed(thing: Any, message: str, tmp_path: Path) -> None:
    runner = attach_hooks(echo_trainer(), [], work_dir=tmp_path)
    with pytest.raises(TypeError) as caught:
        runner.register_hook(thing)
    assert (str(caught.value), len(runner.hooks)) == (message, 0)


def test_a_registered_hook_is_judged_like_one_of_a_configuration(tmp_path: Path) -> None:
    runner, hook = attach_hooks(echo_trainer(), [], work_dir=tmp_path), LambdaHook(after_epoch=print)
    hook.on_error = "shout"  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"LambdaHook\.on_error: 'raise', 'warn' or 'disable' is needed, not 'shout'"):
        runner.register_hook(hook)


@pytest.mark.parametrize("register", [True, False], ids=["register_hook", "a list"])
def test_a_handler_registered_acts_and_goes_at_detach(register: bool, tmp_path: Path) -> None:
    trainer, calls = echo_trainer(), list[int]()
    thing = functools.partial(lambda calls, engine: calls.append(engine.state.iteration), calls)
    timer = Timer(average=True)
    runner = attach_hooks(trainer, [] if register else [thing, timer], work_dir=tmp_path)
    if register:
        runner.register_hook(thing)
        runner.register_hook(timer)
    trainer.run([1, 2, 3])
    assert (calls, timer.value() > 0) == ([1, 2, 3], True)
    runner.detach()
    assert handlers_of(trainer) == {}


# -- around a handler ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["priority", "on_error", "interval", "every", "start"])
def test_a_setting_beside_a_handler_that_is_attached_is_an_error(word: str) -> None:
    value = {"priority": 5, "on_error": "warn", "interval": 2, "every": "2 epoch", "start": 3}[word]
    with pytest.raises(ConfigError) as caught:
        build_hook({"type": "ignite.handlers.Timer", word: value})
    assert str(caught.value) == f"hook.{word}: no effect: Timer chooses its events itself, leave it out"


def test_a_schedule_that_no_event_of_a_handler_obeys_is_an_error() -> None:
    entry = {"type": "ignite.handlers.TerminateOnNan", "event": "COMPLETED", "interval": 5}
    with pytest.raises(ConfigError, match=r"hook.interval: 'every 5 iters' has no effect"):
        build_hook(entry)


def note(engine: Engine) -> None: ...


def make(level: int = 0) -> BaseHook:
    return LambdaHook(after_epoch=print)


@pytest.mark.parametrize(
    ("type_", "handler", "function"),
    [
        (TerminateOnNan, True, False),
        (Timer, True, False),
        (EarlyStopping, True, False),
        (LambdaHook, False, False),
        (Own, False, False),
        (note, False, True),
        (make, False, False),
        (print, False, False),
    ],
)
def test_what_a_type_makes(type_: Any, handler: bool, function: bool) -> None:
    assert (is_handler_class(type_), takes_engine(type_, {})) == (handler, function)


@pytest.mark.parametrize(
    ("entry", "name", "points"),
    [
        ({"type": TerminateOnNan}, "TerminateOnNan", ["after_train_iter"]),
        ({"type": TerminateOnNan, "event": "EPOCH_COMPLETED", "name": "nan"}, "nan", ["after_epoch"]),
        ({"type": note, "name": "first", "event": Events.STARTED}, "first", ["before_run"]),
        ({"type": note}, "note", ["after_train_iter"]),
        ({"type": make}, "LambdaHook", ["after_epoch"]),
        ({"type": Timer, "average": True}, "Timer", []),
    ],
)
def test_classes_of_handlers_and_functions_are_types(
    entry: dict[str, Any], name: str, points: list[str], tmp_path: Path
) -> None:
    runner = attach_hooks(echo_trainer(), [entry], work_dir=tmp_path)
    assert [(n, hook.get_triggered_stages()) for n, hook in runner.hooks.items()] == [(name, points)]


def test_two_functions_have_their_own_names(tmp_path: Path) -> None:
    runner = attach_hooks(echo_trainer(), [note, {"type": note, "name": "again"}, print], work_dir=tmp_path)
    assert list(runner.hooks) == ["note", "again", "print"]


def test_two_functions_of_one_name_say_how_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        attach_hooks(echo_trainer(), [note, note], work_dir=tmp_path)
    assert str(caught.value) == (
        "hooks[1]: hooks[0] is called 'note' too: give one of them another 'name', "
        "as in {'type': note, 'name': 'another'}"
    )


def test_an_unknown_setting_around_a_function_is_named() -> None:
    with pytest.raises(ConfigError, match=r"hook\.evnt: not a setting around a handler, did you mean 'event'"):
        build_hook({"type": note, "evnt": "STARTED"})


# -- hooks of MMEngine -----------------------------------------------------------------------------------------------


def theirs(name: str, method: Callable[..., None], module: str = "mmengine.hooks.some_hook") -> Any:
    """Return a hook of a class that looks like one of MMEngine's."""
    return type(name, (), {"after_train_iter": method, "__module__": module})()


def tells_hub(self: Any, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
    runner.message_hub.update_info("iter", batch_idx)


def logs(self: Any, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
    runner.logger.info("%d of %s", runner.iter, runner.max_iters)


def replaces_the_model(self: Any, runner: Any, **_: Any) -> None:
    runner.model = "another"


NEEDS = "needs MMEngine's Runner (runner.message_hub)"


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (
            theirs("CheckpointHook", tells_hub),
            f"mmengine.CheckpointHook {NEEDS}: write {{'type': 'CheckpointHook'}}, its counterpart here",
        ),
        (
            theirs("TextLoggerHook", tells_hub, "mmcv.runner.hooks"),
            f"mmcv.TextLoggerHook {NEEDS}: it is much like LoggerHook here",
        ),
        (
            theirs("OddHook", tells_hub, "mmdet.engine.hooks"),
            f"mmdet.OddHook {NEEDS}: write it anew as a subclass of BaseHook, for the runner that is here",
        ),
        (
            theirs("PrepareTTAHook", replaces_the_model),
            "mmengine.PrepareTTAHook needs MMEngine's Runner (runner.model): "
            "write {'type': 'PrepareTTAHook'}, its counterpart here",
        ),
        (theirs("EmptyCacheHook", logs), None),
        (theirs("CheckpointHook", tells_hub, "my.hooks"), None),
        (LambdaHook(after_epoch=print), None),
    ],
)
def test_a_hook_that_needs_the_runner_of_mmengine_is_refused(hook: Any, message: str | None, tmp_path: Path) -> None:
    assert needs_mmengine(hook) == message
    if message is not None:
        with pytest.raises(ConfigError) as caught:
            attach_hooks(echo_trainer(), [hook], work_dir=tmp_path)
        assert str(caught.value) == f"hooks[0]: {message}"
        with pytest.raises(ConfigError, match=r"hooks\[0\]\.type: .* needs MMEngine's Runner"):
            attach_hooks(echo_trainer(), [{"type": type(hook)}], work_dir=tmp_path)


def test_a_script_s_own_class_on_a_base_of_mmengine_may_run() -> None:
    base = type("Hook", (), {"__module__": "mmengine.hooks.hook", "after_train_iter": logs})
    assert needs_mmengine(type("Mine", (base,), {"__module__": "__main__"})()) is None
