"""``check_hook``, and the promises that it checks: one function each."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ignite_hooks.checkpoint.capture import hook_state
from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.errors import CheckpointError, ConfigError, HookError
from ignite_hooks.hooks.base_hook import SPELLINGS, BaseHook
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.plan.hook_settings import give, when_of, without_effect
from ignite_hooks.plan.methods import answers_of
from ignite_hooks.plan.points import ITERATION_POINTS, POINTS
from ignite_hooks.plan.priority import Priority
from ignite_hooks.store.plain import to_plain
from ignite_hooks.testing.observations import (
    compare,
    describe_hook,
    process_resources,
    record_events,
    settings_of,
    traces,
)
from ignite_hooks.testing.recording import RecordingHook
from ignite_hooks.testing.subject import Enough, Script, Subject, end_early
from ignite_hooks.testing.tiny import build_tiny_run


def check_hook(make: Callable[..., Any], services: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
    """Check that a hook keeps what every hook promises; an AssertionError names the first broken promise.

    The promises, each checked in real runs of a tiny trainer:

    - it is built from its settings, and again from what it made of them;
    - a run does not change its settings, and it never fails where nothing is wrong;
    - attached and detached again it leaves engines, model and optimizer as they were;
    - weights, events and global random state are the same with it as without;
    - its state is plain and comes back as it was;
    - a second run goes as the first;
    - however a run ends, it is cleaned up once and leaves no thread, file, logging or signal handler behind;
    - iterations in which it is not due never wait for the device;
    - a failure of a hook that only observes does not end the training.

    A hook that changes training on purpose says so by ``changes_training = True`` in its class.

    Args:
        make: The class of the hook, or a function that makes one.
        services: What the hook asks for besides model, optimizer, criterion, device, train_loader and val_loader.
        **settings: The settings to check it with.

    Example:
        >>> from ignite.engine import Events
        >>> class LossPrinter(BaseHook):
        ...     interval = 100
        ...
        ...     def after_train_iter(self, runner, outputs):
        ...         print(runner.global_step, outputs)
        >>> check_hook(LossPrinter)
        >>> class LeavesSomething(BaseHook):
        ...     def before_run(self, trainer):
        ...         trainer.add_event_handler(Events.COMPLETED, lambda: None)
        >>> check_hook(LeavesSomething)
        Traceback (most recent call last):
        ...
        AssertionError: LeavesSomething leaves something behind: a handler of COMPLETED on the trainer
    """
    subject = Subject(make, dict(services or {}), settings)
    before, threads = random_state(), torch.get_num_threads()
    # Tensors this small gain nothing from several threads.
    torch.set_num_threads(1)
    try:
        # Without logging set up, the failures that are provoked here would go to stderr.
        with contextlib.redirect_stderr(io.StringIO()):
            for check in CHECKS:
                check(subject)
    finally:
        torch.set_num_threads(threads)
        set_random_state(before)


def builds_again_from_its_settings(subject: Subject) -> None:
    """Build the hook again from its settings as a file would have them: through JSON, where JSON can say them."""
    hook = subject.build(subject.settings)
    if not isinstance(subject.make, type):
        return  # No file can name a function, and its arguments are not the settings of the hook.
    values, given = settings_of(hook), subject.settings
    said_otherwise = {SPELLINGS.get(word) for word in given} | (
        {"interval", "frequency"} if "every" in given else set()
    )
    kept = {name: value for name, value in values.items() if value is not None and name not in said_otherwise}
    again = settings_of(subject.build({**given, **{name: _through_json(value) for name, value in kept.items()}}))
    if difference := compare(values, again):
        subject.breaks(f"is another when built from its own settings: {difference}")


def keeps_its_settings_in_a_run(subject: Subject) -> None:
    """Compare the settings before and after a run, also one without any metrics, in which the hook may fail."""
    for measures in (True, False):
        script = Script(build_tiny_run(measures=measures))
        with subject.attached(script) as scene:
            hook = scene.hook
            before = settings_of(hook)
            if measures:
                scene.train()
            else:
                with contextlib.suppress(HookError, ConfigError):
                    script.train()
            if difference := compare(before, settings_of(hook)):
                subject.breaks(f"changes its settings during a run: {difference}")


def leaves_engines_and_model_as_they_were(subject: Subject) -> None:
    """Look for traces after detaching at once, and after detaching at the end of a run."""
    script = Script()
    # A first run leaves traces even without the hook.
    script.train()
    for runs in (False, True):
        before = traces(script.run)
        with subject.attached(script) as scene:
            if runs:
                scene.train()
        after = traces(script.run)
        left = [what for what, count in after.items() if count > before.get(what, 0)]
        if left:
            subject.breaks(f"leaves something behind: {', '.join(left)}")
        if gone := [what for what, count in before.items() if count > after.get(what, 0)]:
            subject.breaks(f"takes something away: {', '.join(gone)}")


def does_not_change_training(subject: Subject) -> None:
    """Compare events, losses, weights and random state of a run with the hook and one without it."""
    alone, accompanied = Script(), Script()
    expected, seen = record_events(alone.run.trainer), record_events(accompanied.run.trainer)
    alone.train()
    with subject.attached(accompanied) as scene:
        if getattr(scene.hook, "changes_training", False):
            return
        before = random_state()
        scene.train()
        after = random_state()
    if difference := compare(expected, seen, "events") or compare(alone.weights(), accompanied.weights()):
        subject.breaks(f"changes training: {difference}")
    for generator in before:
        if compare(before[generator], after[generator]):
            subject.breaks(f"changes the global random state of {generator}: use a separate generator")


def has_plain_state_that_comes_back(subject: Subject) -> None:
    """Load the state of a run into a new hook, at the point where a resume does, and compare."""
    with subject.attached(Script()) as scene:
        scene.train()
        state = saved_state_of(subject, scene.hook)
    back: list[Any] = []
    script = Script()

    def load() -> None:
        if state:
            loading.hook.load_state_dict(copy.deepcopy(state))
        back.append(saved_state_of(subject, loading.hook))

    with subject.attached(script, call_last_at("before_run", load)) as loading:
        loading.train()
    if state and (difference := compare(state, back[0])):
        subject.breaks(f"does not take up its own state: {difference}")


def makes_a_second_run_as_the_first(subject: Subject) -> None:
    """Restore the weights, run again, and compare the state at the start, the calls and the final weights."""
    calls: list[tuple[str, str, int, int]] = []
    states: list[Any] = []
    script = Script()
    watch = call_last_at("before_train", lambda: states.append(saved_state_of(subject, scene.hook)))
    # A background save ends at no fixed point.
    points = [point for point in POINTS if point != "after_save_checkpoint"]
    recorder = RecordingHook(name="check_hook's recorder", log=calls, points=points)
    with subject.attached(script, recorder, watch) as scene:
        changes = getattr(scene.hook, "changes_training", False)
        begin = script.weights()
        scene.train()
        first, end = list(calls), script.weights()
        calls.clear()
        script.restore(begin)
        # Otherwise a run that was stopped early would continue.
        script.run.trainer.state.max_epochs = None
        scene.train()
    if difference := compare(states[0], states[1]):
        subject.breaks(f"begins a second run with the state of the first: {difference}")
    if difference := "" if changes else compare(first, calls, "calls") or compare(end, script.weights()):
        subject.breaks(f"makes a second run go otherwise than the first: {difference}")


def is_cleaned_up_however_a_run_ends(subject: Subject) -> None:
    """End runs by the last epoch, ``terminate``, an exception and Ctrl-C, and look for what is left."""
    for ending, error in _endings().items():
        script = Script()
        if ending != "completion":
            end_early(script.run.trainer, error)
        before = process_resources()
        with subject.attached(script) as scene:
            points = {answer.point.name for answer in answers_of(scene.hook)}
            try:
                script.train()
            except HookError as failed:
                subject.breaks(f"fails when a run ends by {ending}: {failed}", failed)
            except (RuntimeError, KeyboardInterrupt) as raised:
                if raised is not error:
                    raise
            else:
                if error is not None:
                    subject.breaks(f"keeps {ending} of the step from leaving trainer.run")
            left = process_resources() - before
            report = scene.runner.report()
            if failures := report.failures.get(scene.called):
                subject.breaks(f"fails when a run ends by {ending}: {failures.last}")
            cleanups = report.tallies.get((scene.called, "cleanup"))
            times = cleanups.calls if cleanups else 0
            if "cleanup" in points and times != 1:
                subject.breaks(f"is cleaned up {times} times, not once, when a run ends by {ending}")
            if left:
                subject.breaks(f"leaves something behind when a run ends by {ending}: {', '.join(sorted(left))}")


def _endings() -> dict[str, BaseException | None]:
    return {
        "completion": None,
        "terminate": None,
        "an exception": RuntimeError("the step fails on purpose"),
        "Ctrl-C": KeyboardInterrupt("on purpose"),
    }


def never_waits_for_the_device_when_not_due(subject: Subject) -> None:
    """Run on fake tensors, which have no values: whatever needs one raises. ``.to("cpu")`` alone is not seen."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

    waited: list[tuple[str, Exception]] = []

    def watched(point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def watching(*arguments: Any, **named: Any) -> Any:
            try:
                return method(*arguments, **named)
            except Exception as error:
                waited.append((point, error))
                raise

        return watching

    with FakeTensorMode():
        script = Script(build_tiny_run(batches=6, output=lambda *parts: parts[-1]))
        end_early(script.run.trainer, Enough())
        with subject.attached(script, settings={**_almost_never(subject), "on_error": "warn"}) as scene:
            # Waiting at other points is allowed: a failure there must not end the run.
            hook = scene.hook
            for point in ITERATION_POINTS:
                for slot in scene.runner.plan.at(point):
                    if slot.owner is hook and (slot.decides or slot.acts_always):
                        name = "should_trigger" if slot.decides else slot.method
                        setattr(hook, name, watched(name, getattr(hook, name)))
            try:
                script.train()
            except Exception as error:
                if not waited and not isinstance(error, Enough):
                    raise
    for name, reason in waited:
        if isinstance(reason, (DataDependentOutputException, DynamicOutputShapeException)):
            subject.breaks(f"waits for the device in {name} in iterations where it is not due: {reason}", reason)
        subject.breaks(f"fails in {name} on tensors without values: {type(reason).__name__}: {reason}", reason)


def does_not_end_training_by_failing_if_it_only_observes(subject: Subject) -> None:
    """Let a hook with ``on_error`` warn or disable fail at every point."""

    def fail() -> None:
        raise ValueError("on purpose")

    script = Script()
    with subject.attached(script) as scene:
        hook = scene.hook
        if getattr(hook, "on_error", "raise") == "raise":
            return
        for slot in scene.runner.plan:
            if slot.owner is hook:
                setattr(hook, slot.method, fail)
        try:
            script.train()
        except Exception as error:
            subject.breaks(f"ends the training by a failure, though its on_error is {hook.on_error}: {error}", error)


CHECKS: tuple[Callable[[Subject], None], ...] = (
    builds_again_from_its_settings,
    keeps_its_settings_in_a_run,
    leaves_engines_and_model_as_they_were,
    does_not_change_training,
    has_plain_state_that_comes_back,
    makes_a_second_run_as_the_first,
    is_cleaned_up_however_a_run_ends,
    never_waits_for_the_device_when_not_due,
    does_not_end_training_by_failing_if_it_only_observes,
)
"""The promises of every hook, in the order of the checks."""


def _through_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return value


def _almost_never(subject: Subject) -> dict[str, Any]:
    """Return the settings with an interval that no run reaches, if an interval has an effect."""
    others = {name: value for name, value in subject.settings.items() if name not in ("every", "frequency")}
    hook = subject.build(others)
    known = describe_hook(hook)
    if not any(setting.name == "interval" for setting in (*known.settings, *known.common)):
        return dict(subject.settings)
    give(hook, "interval", 10**6)
    return dict(subject.settings) if without_effect(hook, when_of(hook)) else {**others, "interval": 10**6}


def saved_state_of(subject: Subject, hook: Any) -> Any:
    try:
        return to_plain(dict(hook_state(hook)), clone=True)
    except CheckpointError as error:
        subject.breaks(f"has a state that cannot be saved: {error}", error)


def call_last_at(point: str, call: Callable[[], None]) -> BaseHook:
    """Return a hook that makes a call after all others, at a point whose name begins with ``before_``."""
    return LambdaHook(**{point: call}, name="check_hook's watch", priority=Priority.LOWEST)
