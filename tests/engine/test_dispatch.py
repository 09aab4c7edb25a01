"""Hooks are called when due, counted, and fail as ``on_error`` says."""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, ConfigError, HookError, attach_hooks, scheduled
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.testing import RecordingHook, failing_at, tiny_run
from tests import warm
from tests.tools import Log, echo_trainer

ITERATIONS = 6


def run_with(hook: BaseHook, log: Log, work_dir: Path) -> tuple[Any, BaseException | None]:
    """Run two epochs of three iterations, with a recorder before and one after the hook; return the result."""
    trainer = echo_trainer()
    first, last = RecordingHook(log=log, name="first", priority=51), RecordingHook(log=log, name="last", priority=49)
    runner = attach_hooks(trainer, [first, hook, last], work_dir=work_dir)
    try:
        trainer.run([1, 2, 3], max_epochs=2)
    except BaseException as error:
        return runner, error
    return runner, None


@pytest.mark.parametrize("point", ["before_train_iter", "after_train_iter"])
def test_raising_hook_ends_the_run_with_place_and_cause(point: str, tmp_path: Path) -> None:
    log: Log = []
    _runner, error = run_with(failing_at(point, call=3, name="Bad"), log, tmp_path)
    assert isinstance(error, HookError)
    assert (error.hook, error.point, error.epoch, error.iteration) == ("Bad", point, 1, 3)
    assert str(error) == f"Bad.{point} failed at epoch 1, iteration 3: ValueError: boom"
    assert isinstance(error.__cause__, ValueError)
    assert 'raise ValueError("boom")' in "".join(traceback.format_exception(error))
    points = [(name, at) for name, at, *_ in log]
    assert points.count(("first", "cleanup")) == points.count(("last", "on_exception")) == 1
    assert ("first", "after_run") not in points


@pytest.mark.parametrize("point", ["after_train_iter", "before_train_iter"])
@pytest.mark.parametrize(
    ("on_error", "always", "calls", "off"),
    [
        ("warn", False, ITERATIONS, False),  # one failure: it goes on
        ("warn", True, 3 + 2, True),  # fails from the third call on: three in a row
        ("disable", False, 3, True),
        ("disable", True, 3, True),
    ],
)
def test_failing_hook_is_logged_or_disabled_and_others_go_on(
    point: str, on_error: str, always: bool, calls: int, off: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[str] = []

    def method(self: BaseHook) -> None:
        made.append(point)
        if len(made) == 3 or (always and len(made) > 3):
            raise ValueError("boom")

    log: Log = []
    hook = type("Bad", (BaseHook,), {point: method})(on_error=on_error)
    with caplog.at_level(logging.INFO, "ignite_hooks"):
        runner, error = run_with(hook, log, tmp_path)
    assert error is None
    assert len(made) == calls
    for name in ("first", "last"):
        assert [at for who, at, *_ in log if who == name].count(point) == ITERATIONS
    assert runner.report().failures["Bad"].off is off
    text = caplog.text
    assert text.count("Traceback") == 1
    assert text.count("is switched off for the rest of the run") == off
    assert caplog.messages[-1].startswith("run ended after 2 epochs, 6 iterations; Bad failed")


def test_failures_not_in_a_row_do_not_disable_a_hook(tmp_path: Path) -> None:
    class Flaky(BaseHook):
        on_error = "warn"

        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step % 3:
                raise ValueError("boom")

    trainer = echo_trainer()
    runner = attach_hooks(trainer, [Flaky()], work_dir=tmp_path)
    trainer.run(range(30))
    failures = runner.report().failures["Flaky"]
    assert (failures.count, failures.off) == (20, False)


def test_disabled_hook_is_cleaned_up_and_enabled_in_next_run(tmp_path: Path) -> None:
    calls: Log = []

    class Once(BaseHook):
        on_error = "disable"

        def after_train_iter(self, runner: Any) -> None:
            calls.append(("iter", runner.global_step))
            if runner.global_step == 1:
                raise ValueError("boom")

        def cleanup(self) -> None:
            calls.append(("cleanup",))

    trainer = echo_trainer()
    attach_hooks(trainer, [Once()], work_dir=tmp_path)
    trainer.run([1, 2], max_epochs=1)
    trainer.run([1, 2], max_epochs=2)
    assert calls == [("iter", 1), ("cleanup",), ("iter", 3), ("iter", 4), ("cleanup",)]


# -- exceptions of the step -------------------------------------------------------------------------------------


class Unusual(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("error", [ValueError("step"), KeyboardInterrupt(), SystemExit(3), Unusual()])
def test_exception_of_the_step_reaches_the_caller_unchanged(error: BaseException, tmp_path: Path) -> None:
    log: Log = []

    def step(engine: Engine, batch: int) -> None:
        if batch == 3:
            raise error

    trainer = Engine(step)
    seen: list[BaseException] = []

    class Watcher(BaseHook):
        def on_exception(self, exception: BaseException) -> None:
            seen.append(exception)

    attach_hooks(trainer, [RecordingHook(log=log, name="recorder"), Watcher()], work_dir=tmp_path)
    with pytest.raises(type(error)) as caught:
        trainer.run([1, 2, 3, 4])
    assert caught.value is error
    assert caught.traceback[-1].name == "step"
    assert seen == [error]
    points = [at for _, at, *_ in log]
    assert points[-2:] == ["on_exception", "cleanup"]
    assert points.count("cleanup") == 1


@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.parametrize("where", ["step", "epoch handler", "hook"])
def test_listeners_of_the_script_swallow_exceptions_with_hooks_as_without(
    where: str, reraise: bool, tmp_path: Path
) -> None:
    def run(hooks: Any) -> tuple[list[str], Log, BaseException | None]:
        events: list[str] = []
        log: Log = []

        def step(engine: Engine, batch: int) -> None:
            if where == "step" and engine.state.iteration == 2:
                raise ValueError("boom")

        trainer = Engine(step)

        @trainer.on(Events.EXCEPTION_RAISED)
        def listen(error: Exception) -> None:
            events.append("listener")
            if reraise:
                raise error

        @trainer.on(Events.EPOCH_COMPLETED)
        def epoch(engine: Engine) -> None:
            events.append("epoch")
            if where == "epoch handler" and engine.state.epoch == 1:
                raise ValueError("boom")

        trainer.add_event_handler(Events.COMPLETED, lambda: events.append("completed"))
        if where == "hook":
            if hooks:
                attach_hooks(
                    trainer,
                    [RecordingHook(log=log, name="recorder"), failing_at("after_train_iter", call=2)],
                    work_dir=tmp_path,
                )
            else:
                handler = failing_at("after_train_iter", call=2).after_train_iter
                trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: handler())
        elif hooks:
            attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
        try:
            trainer.run([1, 2, 3], max_epochs=2)
        except Exception as error:
            return events, log, error
        return events, log, None

    alone, _, error_alone = run(hooks=False)
    hooked, log, error_hooked = run(hooks=True)
    assert hooked == alone
    assert (error_hooked is None) == (error_alone is None) == (not reraise)
    points = [at for _, at, *_ in log]
    assert points.count("on_exception") == points.count("cleanup") == 1


def test_a_run_after_a_failed_one_works(tmp_path: Path) -> None:
    fails = {2}

    def step(engine: Engine, batch: int) -> int:
        if batch in fails:
            raise ValueError("boom")
        return batch

    trainer = Engine(step)
    log: Log = []
    attach_hooks(
        trainer,
        [RecordingHook(log=log, name="recorder", points=["before_run", "after_epoch", "cleanup"])],
        work_dir=tmp_path,
    )
    with pytest.raises(ValueError, match="boom"):
        trainer.run([1, 2, 3], max_epochs=1)
    fails.clear()
    trainer.state.max_epochs = None
    assert trainer.run([1, 2, 3], max_epochs=1).iteration == 3
    assert [at for _, at, *_ in log] == ["before_run", "cleanup", "before_run", "after_epoch", "cleanup"]


def test_failed_evaluation_is_closed_and_can_run_again(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, val_data = tiny.trainer, tiny.evaluator, tiny.val_data
    log: Log = []
    runner = attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], evaluators=evaluator, work_dir=tmp_path)
    with pytest.raises(RuntimeError, match="shapes"):
        evaluator.run([(torch.zeros(2, 5), torch.zeros(2).long())])
    assert [at for _, at, *_ in log] == ["before_val", "before_val_epoch", "before_val_iter", "after_val"]
    assert runner.state.evaluating is None
    evaluator.run(val_data)
    assert runner.metrics["val_accuracy"] == evaluator.state.metrics["accuracy"]


def test_failure_in_cleanup_is_raised_after_all_have_cleaned_up(tmp_path: Path) -> None:
    log: Log = []
    _runner, error = run_with(failing_at("cleanup", name="Bad"), log, tmp_path)
    assert isinstance(error, HookError)
    assert [name for name, at, *_ in log if at == "cleanup"] == ["first", "last"]


def test_failure_in_cleanup_does_not_hide_the_first_exception(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: 1 / 0)
    attach_hooks(trainer, [failing_at("cleanup"), failing_at("on_exception", name="x")], work_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        trainer.run([1])
    assert caplog.text.count("ValueError: boom") >= 2


# -- parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("model", "Needy.after_epoch needs the service 'model': pass model=... to attach_hooks()"),
        ("metrcs", "Needy.after_epoch has a parameter 'metrcs' that nobody can supply, did you mean 'metrics'?"),
    ],
)
def test_a_parameter_without_supplier_fails_before_any_call(parameter: str, message: str, tmp_path: Path) -> None:
    log: Log = []
    scope: dict[str, Any] = {}
    exec(f"def after_epoch(self, epoch, {parameter}): ...", scope)
    needy = type("Needy", (BaseHook,), {"after_epoch": scope["after_epoch"]})()
    trainer = echo_trainer()
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder"), needy], work_dir=tmp_path)
    with pytest.raises(ConfigError) as caught:
        trainer.run([1])
    assert str(caught.value) == message
    assert log == []


def test_custom_points_called_by_hand_receive_their_parameters(tmp_path: Path) -> None:
    seen: Log = []

    class Mine(BaseHook):
        def my_point(self, colour: str, runner: Any, size: int = 3) -> None:
            seen.append((colour, runner.epoch, size))

    class Other:
        def my_point(self, trainer_: Any, **payload: Any) -> None:
            seen.append((type(trainer_).__name__, payload))

        def after_run(self) -> None: ...

    trainer = echo_trainer()
    runner = attach_hooks(trainer, [Mine(priority=60), Other()], work_dir=tmp_path)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: runner.call_hook("my_point", colour="red"))
    trainer.run([1])
    runner.call_hook("my_point", colour="blue", size=5)
    assert seen == [
        ("Runner", {"colour": "red"}),
        ("red", 0, 3),
        ("Runner", {"colour": "blue", "size": 5}),
        ("blue", 1, 5),
    ]


# -- how often --------------------------------------------------------------------------------------------------


def test_marked_methods_obey_the_schedule_and_the_others_do_not(tmp_path: Path) -> None:
    log: Log = []

    class Mixed(BaseHook):
        @scheduled
        def after_train_iter(self, runner: Any) -> None:
            log.append(("iter", runner.global_step))

        @scheduled
        def after_train_epoch(self, epoch: int) -> None:
            log.append(("epoch", epoch))

        @scheduled
        def after_val_epoch(self, epoch: int) -> None:
            log.append(("val", epoch))

        def before_train_iter(self, runner: Any) -> None:
            log.append(("always", runner.global_step))

    for by_epoch, expected in [
        (False, [("iter", 2), ("val", 1), ("iter", 4)]),
        (True, [("epoch", 1), ("val", 1), ("epoch", 3)]),
    ]:
        log.clear()
        tiny = tiny_run()
        evaluator, val_data = tiny.evaluator, tiny.val_data
        step = Engine(lambda engine, batch: batch)
        hooks = [Mixed(interval=2, by_epoch=by_epoch)]
        attach_hooks(step, hooks, evaluators=evaluator, work_dir=tmp_path / str(by_epoch))
        step.add_event_handler(Events.EPOCH_COMPLETED, lambda e, ev=evaluator, d=val_data: ev.run(d))
        step.run([1], max_epochs=4)
        found = [entry for entry in log if entry[0] != "always"]
        assert [entry for entry in found if entry[0] != "val"] == [entry for entry in expected if entry[0] != "val"]
        assert [entry for entry in found if entry[0] == "val"] == [("val", 1), ("val", 3)]
        assert len(log) - len(found) == 4


def test_should_trigger_decides_alone_and_sees_steps_from_zero(tmp_path: Path) -> None:
    asked: list[int] = []
    fired: list[int] = []

    class Early(BaseHook):
        def should_trigger(self, step: int) -> bool:
            asked.append(step)
            return step < 3 or step % 5 == 0

        def after_step(self, step: int) -> None:
            fired.append(step)

    trainer = echo_trainer()
    runner = attach_hooks(trainer, [Early({"frequency": 1000})], work_dir=tmp_path)
    trainer.run(range(12))
    assert asked == list(range(12))
    assert fired == [0, 1, 2, 5, 10]
    assert runner.report().tallies["Early", "after_step"].calls == 5


def test_schedules_in_seconds_fire_by_the_clock(tmp_path: Path) -> None:
    from ignite_hooks.engine.dispatch import Dispatcher

    hand = [0.0]
    fired: list[int] = []

    class Slow(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            fired.append(runner.global_step)

    def step(engine: Engine, batch: int) -> None:
        hand[0] += 0.25

    trainer = Engine(step)
    runner = attach_hooks(trainer, [Slow(every="10 s")], work_dir=tmp_path)
    host = runner.installation
    host.dispatcher = Dispatcher(lambda mask, pause: (mask, pause), now=lambda: hand[0])
    trainer.run(range(200))
    seconds = [n * 0.25 for n in fired]
    gaps = [b - a for a, b in zip([0.0, *seconds], seconds, strict=False)]
    assert len(fired) == 4
    assert all(10.0 <= gap <= 11.5 for gap in gaps)


def test_calls_are_counted_and_evaluation_time_is_separate(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data, model = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data, tiny.model
    log: Log = []
    hooks = [RecordingHook(log=log, name="recorder"), {"type": "EvalHook"}]
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path, val_loader=val_data, model=model)
    trainer.run(data * 50, max_epochs=2)
    report = runner.report()
    for point in {at for _, at, *_ in log}:
        assert report.tallies["recorder", point].calls == [at for _, at, *_ in log].count(point), point
    assert report.tallies["recorder", "after_train_iter"].timed < 20
    assert sum(tally.total for tally in report.tallies.values()) <= report.seconds * 1.05


@pytest.mark.parametrize(("on_error", "asked"), [("raise", 3), ("warn", 5), ("disable", 3)])
def test_a_decision_that_fails_is_a_failure_of_the_hook(on_error: str, asked: int, tmp_path: Path) -> None:
    steps: list[int] = []

    class Undecided(BaseHook):
        def should_trigger(self, step: int) -> bool:
            steps.append(step)
            if step >= 2:
                raise ValueError("boom")
            return False

        def after_train_iter(self) -> None: ...

    log: Log = []
    _, error = run_with(Undecided(on_error=on_error), log, tmp_path)
    assert len(steps) == asked
    assert isinstance(error, HookError) is (on_error == "raise")
    if error is None:
        assert [name for name, at, *_ in log if at == "after_train_iter"] == ["first", "last"] * ITERATIONS


def test_failing_evaluation_does_not_hide_an_earlier_exception(tmp_path: Path) -> None:
    class LastLook(BaseHook):
        def on_exception(self, runner: Any) -> None:
            runner.validate()

    trainer = Engine(lambda engine, batch: 1 / 0)
    tiny = tiny_run()
    evaluator, val_data = tiny.evaluator, tiny.val_data
    hooks = [LastLook(), failing_at("after_val_iter")]
    attach_hooks(trainer, hooks, evaluators=evaluator, val_loader=val_data, work_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        trainer.run([1])


def test_a_warning_is_shown_without_logging_setup(tmp_path: Path) -> None:
    code = (
        "import sys; from ignite_hooks import BaseHook, attach_hooks; from ignite.engine import Engine\n"
        "class Bad(BaseHook):\n"
        "    on_error = 'warn'\n"
        "    def after_train_iter(self): raise ValueError('boom')\n"
        "trainer = Engine(lambda engine, batch: batch)\n"
        "attach_hooks(trainer, [Bad()], work_dir=sys.argv[1])\n"
        "trainer.run([1])\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    done = warm.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "Bad.after_train_iter failed at epoch 1, iteration 1: ValueError: boom\nTraceback" in done.stderr


def test_hook_that_cannot_join_is_refused_and_the_run_continues(tmp_path: Path) -> None:
    class Needy(BaseHook):
        def after_train_iter(self, model: Any) -> None: ...

    log: Log = []
    refused: list[str] = []

    class Adder(BaseHook):
        def before_epoch(self, runner: Any) -> None:
            try:
                runner.register_hook(Needy())
            except ConfigError as error:
                refused.append(str(error))

    trainer = echo_trainer()
    runner = attach_hooks(trainer, [Adder(), RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
    trainer.run([1, 2], max_epochs=2)
    assert len(refused) == 2
    assert "needs the service 'model'" in refused[0]
    assert list(runner.hooks) == ["Adder", "recorder"]
    assert [at for _, at, *_ in log].count("after_train_iter") == 4


class FailsLate(BaseHook):
    """Fails at one point and answers the others."""

    def __init__(self, point: str, at: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.point, self.at, self.log = point, at, list[tuple[str, int]]()

    def answers(self) -> dict[str, Any]:
        points = ("before_train_iter", "after_train_iter", "after_train_epoch", "after_epoch", "after_run", "cleanup")
        return {point: functools.partial(self.note, point) for point in (*points, "mine")}

    def note(self, point: str, runner: Any) -> None:
        self.log.append((point, runner.global_step))
        if point == self.point and runner.global_step >= self.at:
            raise ValueError("boom")


@pytest.mark.parametrize("on_error", ["disable", "warn"])
@pytest.mark.parametrize("interval", [1, 2])
@pytest.mark.parametrize("point", ["before_train_iter", "after_train_iter", "after_train_epoch", "mine"])
def test_a_hook_that_is_switched_off_is_only_cleaned_up(
    point: str, interval: int, on_error: str, tmp_path: Path
) -> None:
    trainer, hook = Engine(lambda engine, batch: batch), FailsLate(point, 6, on_error=on_error, interval=interval)
    others = FailsLate("", 0, name="others")
    runner = attach_hooks(trainer, [others, hook], work_dir=tmp_path)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: runner.call_hook("mine"))
    trainer.run(range(6), max_epochs=6)
    failed = [i for i, (name, step) in enumerate(hook.log) if name == point and step >= 6]
    assert len(failed) == (1 if on_error == "disable" else 3)
    assert hook.log[failed[-1] + 1 :] == [("cleanup", 36)]
    assert len(others.log) == 36 * 3 + 6 * 2 + 2


@pytest.mark.parametrize("caller", ["before", "after"])
def test_a_hook_switched_off_by_another_is_left_out_of_the_same_iteration(caller: str, tmp_path: Path) -> None:
    trainer, log = Engine(lambda engine, batch: batch), list[int]()

    class Failing(BaseHook):
        on_error = "disable"

        def mine(self) -> None:
            raise ValueError("boom")

        def after_train_iter(self, runner: Any) -> None:
            log.append(runner.global_step)

    def call(runner: Any) -> None:
        if runner.global_step == 3:
            runner.call_hook("mine")

    other = LambdaHook(after_train_iter=call, priority="LOW" if caller == "before" else "HIGH")
    attach_hooks(trainer, [Failing(), other], work_dir=tmp_path)
    trainer.run(range(5))
    assert log == ([1, 2] if caller == "before" else [1, 2, 3])


class Swapping(BaseHook):
    on_error = "disable"

    def before_val(self, model: Any) -> None:
        self.raw, model.weight = model.weight, "swapped"

    def after_val_iter(self) -> None:
        raise ValueError("boom")

    def switched_off(self) -> None:
        self.runner.model.weight = self.raw


def test_weights_are_swapped_back_when_a_hook_is_switched_off(tmp_path: Path) -> None:
    trainer, model, seen = Engine(lambda engine, batch: batch), torch.nn.Module(), list[str]()
    model.weight = "raw"
    evaluator = Engine(lambda engine, batch: seen.append(model.weight))
    attach_hooks(trainer, [Swapping()], evaluators=evaluator, model=model, work_dir=tmp_path)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1, 2]) and None)
    trainer.run([1], max_epochs=2)
    assert (seen, model.weight) == (["swapped", "raw", "raw", "raw"], "raw")
