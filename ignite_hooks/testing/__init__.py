"""For tests of hooks: a tiny trainer, a writer and a store in memory, hooks that record or fail, and ``check_hook``."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss

from ignite_hooks.attach import attach_hooks
from ignite_hooks.checkpoint.capture import hook_state
from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.config.build import build_hook
from ignite_hooks.config.describe import Description, describe
from ignite_hooks.config.files import plain
from ignite_hooks.errors import CheckpointError, ConfigError, HookError
from ignite_hooks.hooks.base_hook import SPELLINGS, BaseHook
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.plan.methods import answers_of
from ignite_hooks.plan.points import ITERATION_POINTS, POINTS
from ignite_hooks.plan.priority import Priority
from ignite_hooks.run.runner import Runner
from ignite_hooks.store.memory import MemoryStore
from ignite_hooks.store.plain import to_plain
from ignite_hooks.writers.memory import MemoryWriter

__all__ = [
    "MemoryStore",
    "MemoryWriter",
    "RecordingHook",
    "TinyRun",
    "check_hook",
    "failing_at",
    "tiny_run",
    "tiny_trainer",
]

# -- a tiny trainer --------------------------------------------------------------------------------------------


@dataclass
class TinyRun:
    """All that a small training script has. The same seed gives the same run, to the bit."""

    trainer: Engine
    data: list[tuple[torch.Tensor, torch.Tensor]]
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    criterion: torch.nn.Module
    evaluator: Engine
    val_data: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def services(self) -> dict[str, Any]:
        """What ``attach_hooks`` takes by name."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "criterion": self.criterion,
            "train_loader": self.data,
            "val_loader": self.val_data,
            "device": torch.device("cpu"),
        }


def tiny_trainer(*, batches: int = 3, seed: int = 0) -> tuple[Engine, list[tuple[torch.Tensor, torch.Tensor]]]:
    """A real Ignite trainer of a linear classifier, and its data; the global random state is left alone.

    Example:
        >>> trainer, data = tiny_trainer()
        >>> trainer.run(data, max_epochs=2).iteration
        6
    """
    run = tiny_run(batches=batches, seed=seed)
    return run.trainer, run.data


def tiny_run(*, batches: int = 3, val_batches: int = 2, seed: int = 0) -> TinyRun:
    """A tiny trainer with its model, an evaluator that measures ``accuracy`` and ``loss``, and validation data.

    Example:
        >>> run = tiny_run()
        >>> state = run.trainer.run(run.data, max_epochs=20)
        >>> sorted(run.evaluator.run(run.val_data).metrics)
        ['accuracy', 'loss']
    """
    return _tiny_run(batches, val_batches, seed)


def _tiny_run(
    batches: int = 3,
    val_batches: int = 2,
    seed: int = 0,
    *,
    measures: bool = True,
    output: Callable[..., Any] = lambda *parts: parts[-1].item(),
) -> TinyRun:
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which seeds every GPU too.
        torch.default_generator.manual_seed(seed)
        model = torch.nn.Linear(4, 3)
    generator = torch.Generator().manual_seed(seed)

    def some(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        inputs = [torch.randn(8, 4, generator=generator) for _ in range(count)]
        return [(x, x[:, :3].argmax(dim=1)) for x in inputs]

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion, output_transform=output)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)} if measures else {}
    evaluator = create_supervised_evaluator(model, metrics)
    return TinyRun(trainer, some(batches), model, optimizer, criterion, evaluator, some(val_batches))


# -- hooks that record or fail ---------------------------------------------------------------------------------


class RecordingHook(BaseHook):
    """Write down every call: the point, and the epoch and iteration of the trainer, both counted from 1.

    Args:
        points: The points it answers, any method name among them; all known points by default.
        log: A list that several recorders share; each call is added to it with the name of the hook in front.
        **settings: The settings every hook has: name, priority, on_error, interval, by_epoch, start, every.

    Example:
        >>> from ignite_hooks import attach_hooks
        >>> trainer, data = tiny_trainer(batches=2)
        >>> recorder = RecordingHook(points=["after_train_iter", "after_epoch"])
        >>> runner = attach_hooks(trainer, [recorder], work_dir=tempfile.mkdtemp())
        >>> state = trainer.run(data, max_epochs=1)
        >>> recorder.calls
        [('after_train_iter', 1, 1), ('after_train_iter', 1, 2), ('after_epoch', 1, 2)]
    """

    def __init__(
        self,
        *,
        points: Iterable[str] | None = None,
        log: list[tuple[str, str, int, int]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(settings)
        self.calls: list[tuple[str, int, int]] = []
        self._points = tuple(POINTS if points is None else points)
        self._log = log

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return {
            point: getattr(self, point) if point in POINTS else functools.partial(self._record, point)
            for point in self._points
        }

    def _record(self, point: str, runner: Runner) -> None:
        place = int(runner.trainer.state.epoch), runner.global_step
        self.calls.append((point, *place))
        if self._log is not None:
            name = next((name for name, hook in runner.hooks.items() if hook is self), type(self).__name__)
            self._log.append((name, point, *place))


def _recording(point: str) -> Callable[[RecordingHook, Runner], None]:
    def answer(self: RecordingHook, runner: Runner) -> None:
        self._record(point, runner)

    answer.__name__ = point
    return answer


for _point in POINTS:
    setattr(RecordingHook, _point, _recording(_point))


def failing_at(point: str, *, call: int = 1, error: BaseException | None = None, **settings: Any) -> BaseHook:
    """A hook that raises at one call of a point and does nothing else.

    Args:
        point: The point it answers.
        call: At which call it raises, counted from 1.
        error: What it raises; ``ValueError("boom")`` by default.
        **settings: The settings every hook has.

    Example:
        >>> from ignite_hooks import attach_hooks
        >>> trainer, data = tiny_trainer()
        >>> hook = failing_at("after_train_iter", call=2)
        >>> runner = attach_hooks(trainer, [hook], work_dir=tempfile.mkdtemp())
        >>> try:
        ...     trainer.run(data)
        ... except HookError as failure:
        ...     print(failure)
        FailingHook.after_train_iter failed at epoch 1, iteration 2: ValueError: boom
    """
    calls = 0

    def answer() -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise ValueError("boom") if error is None else error

    hook = LambdaHook(**{point: answer}, **settings)
    hook.default_name = "FailingHook"
    return hook


# -- what every hook promises ----------------------------------------------------------------------------------


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
    subject = _Subject(make, dict(services or {}), settings)
    before, threads = random_state(), torch.get_num_threads()
    # On tensors this small threads only wait for each other.
    torch.set_num_threads(1)
    try:
        # Where nobody has set up logging, the failures that are provoked here would go to stderr.
        with contextlib.redirect_stderr(io.StringIO()):
            for check in CHECKS:
                check(subject)
    finally:
        torch.set_num_threads(threads)
        set_random_state(before)


class _Script:
    """A training script as it stands before hooks are attached: it trains, and evaluates after every epoch."""

    def __init__(self, run: TinyRun | None = None) -> None:
        self.run = run or _tiny_run()
        trainer, evaluator, val_data = self.run.trainer, self.run.evaluator, self.run.val_data
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))

    def train(self) -> None:
        self.run.trainer.run(self.run.data, max_epochs=2)

    def weights(self) -> dict[str, Any]:
        """Copies of what training changes."""
        return copy.deepcopy({"model": self.run.model.state_dict(), "optimizer": self.run.optimizer.state_dict()})

    def put_back(self, weights: Mapping[str, Any]) -> None:
        self.run.model.load_state_dict(weights["model"])
        self.run.optimizer.load_state_dict(weights["optimizer"])


@dataclass(frozen=True)
class _Subject:
    """The hook to be checked, as it is asked for."""

    make: Callable[..., Any]
    services: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return getattr(self.make, "__name__", type(self.make).__name__)

    def breaks(self, promise: str, cause: BaseException | None = None) -> NoReturn:
        raise AssertionError(f"{self.name} {promise}") from cause

    def build(self, settings: Mapping[str, Any]) -> Any:
        try:
            return build_hook({"type": self.make, **settings}, {**_tiny_run().services, **self.services})
        except ConfigError as error:
            self.breaks(f"cannot be built: {error}", error)

    @contextlib.contextmanager
    def attached(
        self, script: _Script, *company: BaseHook, settings: Mapping[str, Any] | None = None
    ) -> Iterator[_Scene]:
        """The hook on a script, in the company of others, for as long as the context lasts."""
        entry = {"type": self.make, **(self.settings if settings is None else settings)}
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                runner = attach_hooks(
                    script.run.trainer,
                    {"hooks": [entry, *company], "writers": [MemoryWriter()]},
                    evaluators=script.run.evaluator,
                    work_dir=folder,
                    **{**script.run.services, **self.services},
                )
            except ConfigError as error:
                self.breaks(f"cannot be attached: {error}", error)
            try:
                yield _Scene(self, script, runner, *next(iter(runner.hooks.items())))
            finally:
                runner.detach()


@dataclass(frozen=True)
class _Scene:
    """The hook, attached to a script."""

    subject: _Subject
    script: _Script
    runner: Runner
    called: str
    hook: Any

    def train(self) -> None:
        """A run in which nothing is wrong."""
        try:
            self.script.train()
        except HookError as error:
            self.subject.breaks(f"fails where nothing is wrong: {error}", error)
        except ConfigError as error:
            self.subject.breaks(f"cannot run: {error}", error)
        self.must_not_have_failed()

    def must_not_have_failed(self) -> None:
        """Failures that were only logged count too."""
        if failures := self.runner.report().failures.get(self.called):
            self.subject.breaks(f"fails where nothing is wrong: {failures.last}")


def builds_again_from_its_settings(subject: _Subject) -> None:
    """As a file would have them: what JSON can say goes through JSON."""
    hook = subject.build(subject.settings)
    if not isinstance(subject.make, type):
        return  # No file can name a function, and its arguments are not the settings of the hook.
    values, given = _settings_of(hook), subject.settings
    said_otherwise = {SPELLINGS.get(word) for word in given} | (
        {"interval", "frequency"} if "every" in given else set()
    )
    kept = {name: value for name, value in values.items() if value is not None and name not in said_otherwise}
    again = _settings_of(subject.build({**given, **{name: _through_json(value) for name, value in kept.items()}}))
    if difference := _difference(values, again):
        subject.breaks(f"is another when built from its own settings: {difference}")


def keeps_its_settings_in_a_run(subject: _Subject) -> None:
    """Also in a run that has none of the metrics it could watch, in which it may fail."""
    for measures in (True, False):
        script = _Script(_tiny_run(measures=measures))
        with subject.attached(script) as scene:
            hook = scene.hook
            before = _settings_of(hook)
            if measures:
                scene.train()
            else:
                with contextlib.suppress(HookError, ConfigError):
                    script.train()
            if difference := _difference(before, _settings_of(hook)):
                subject.breaks(f"changes its settings during a run: {difference}")


def leaves_engines_and_model_as_they_were(subject: _Subject) -> None:
    """Detached at once, and detached after a run."""
    script = _Script()
    # Once without: a first run leaves traces of its own.
    script.train()
    for runs in (False, True):
        before = _traces(script.run)
        with subject.attached(script) as scene:
            if runs:
                scene.train()
        after = _traces(script.run)
        left = [what for what, count in after.items() if count > before.get(what, 0)]
        if left:
            subject.breaks(f"leaves something behind: {', '.join(left)}")
        if gone := [what for what, count in before.items() if count > after.get(what, 0)]:
            subject.breaks(f"takes something away: {', '.join(gone)}")


def does_not_change_training(subject: _Subject) -> None:
    """Same events in the same order with the same losses, same weights to the bit, nothing drawn at random."""
    alone, accompanied = _Script(), _Script()
    expected, seen = _events(alone.run.trainer), _events(accompanied.run.trainer)
    alone.train()
    with subject.attached(accompanied) as scene:
        if getattr(scene.hook, "changes_training", False):
            return
        before = random_state()
        scene.train()
        after = random_state()
    if difference := _difference(expected, seen, "events") or _difference(alone.weights(), accompanied.weights()):
        subject.breaks(f"changes training: {difference}")
    for generator in before:
        if _difference(before[generator], after[generator]):
            subject.breaks(f"changes the global random state of {generator}: use a generator of its own")


def has_plain_state_that_comes_back(subject: _Subject) -> None:
    """The state of a run, loaded into a new hook where a resume loads it, is the state that hook has."""
    with subject.attached(_Script()) as scene:
        scene.train()
        state = _state(subject, scene.hook)
    back: list[Any] = []
    script = _Script()

    def load() -> None:
        if state:
            loading.hook.load_state_dict(copy.deepcopy(state))
        back.append(_state(subject, loading.hook))

    with subject.attached(script, _last_at("before_run", load)) as loading:
        loading.train()
    if state and (difference := _difference(state, back[0])):
        subject.breaks(f"does not take up its own state: {difference}")


def makes_a_second_run_as_the_first(subject: _Subject) -> None:
    """With the weights put back, the same state at the start leads to the same calls and the same weights."""
    calls: list[tuple[str, str, int, int]] = []
    states: list[Any] = []
    script = _Script()
    watch = _last_at("before_train", lambda: states.append(_state(subject, scene.hook)))
    # A file that is written beside the training is there sooner or later.
    points = [point for point in POINTS if point != "after_save_checkpoint"]
    recorder = RecordingHook(name="check_hook's recorder", log=calls, points=points)
    with subject.attached(script, recorder, watch) as scene:
        changes = getattr(scene.hook, "changes_training", False)
        begin = script.weights()
        scene.train()
        first, end = list(calls), script.weights()
        calls.clear()
        script.put_back(begin)
        # A run that was stopped early would go on otherwise.
        script.run.trainer.state.max_epochs = None
        scene.train()
    if difference := _difference(states[0], states[1]):
        subject.breaks(f"begins a second run with the state of the first: {difference}")
    if difference := "" if changes else _difference(first, calls, "calls") or _difference(end, script.weights()):
        subject.breaks(f"makes a second run go otherwise than the first: {difference}")


def is_cleaned_up_however_a_run_ends(subject: _Subject) -> None:
    """After the last epoch, ``terminate``, an exception and Ctrl-C in the middle of an epoch."""
    for ending, error in _endings().items():
        script = _Script()
        if ending != "completion":
            _end_early(script.run.trainer, error)
        before = _around()
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
            left = _around() - before
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


def never_waits_for_the_device_when_not_due(subject: _Subject) -> None:
    """On fake tensors, which have no values, whatever needs a value raises; ``.to("cpu")`` alone is not seen."""
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
        script = _Script(_tiny_run(batches=6, output=lambda *parts: parts[-1]))
        _end_early(script.run.trainer, _Enough())
        with subject.attached(script, settings=_almost_never(subject)) as scene:
            hook = scene.hook
            # What waits at other points may do so: its failure there must not end the run.
            hook.on_error = "warn"
            for point in ITERATION_POINTS:
                for slot in scene.runner.plan.at(point):
                    if slot.owner is hook and (slot.decides or slot.acts_always):
                        name = "should_trigger" if slot.decides else slot.method
                        setattr(hook, name, watched(name, getattr(hook, name)))
            try:
                script.train()
            except Exception as error:
                if not waited and not isinstance(error, _Enough):
                    raise
    for name, reason in waited:
        if isinstance(reason, (DataDependentOutputException, DynamicOutputShapeException)):
            subject.breaks(f"waits for the device in {name} in iterations where it is not due: {reason}", reason)
        subject.breaks(f"fails in {name} on tensors without values: {type(reason).__name__}: {reason}", reason)


def does_not_end_training_by_failing_if_it_only_observes(subject: _Subject) -> None:
    """A hook with ``on_error`` warn or disable fails at every point."""

    def fail() -> None:
        raise ValueError("on purpose")

    script = _Script()
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


CHECKS: tuple[Callable[[_Subject], None], ...] = (
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
"""The promises of every hook, in the order in which they are checked."""


# -- looking at things -----------------------------------------------------------------------------------------


class _Enough(Exception):
    """Ends a run that has been seen for long enough."""


def _settings_of(hook: Any) -> dict[str, Any]:
    """The settings of a hook by name; containers are copied, other objects stay the same."""
    config = vars(hook).get("config")
    names = [setting.name for setting in _described(hook).settings]
    names += [name for name in ("name", "priority", "on_error") if name not in names]
    values = {name: getattr(hook, name) for name in names if hasattr(hook, name)}
    found: dict[str, Any] = plain({**(config if isinstance(config, Mapping) else {}), **values})
    return found


def _described(hook: object) -> Description:
    cls: Any = type(hook)
    return describe(cls)


def _through_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return value


def _almost_never(subject: _Subject) -> dict[str, Any]:
    """The settings with an interval that no run reaches, where the hook has one."""
    described = _described(subject.build(subject.settings))
    names = {setting.name for setting in (*described.settings, *described.common)}
    if "interval" not in names:
        return dict(subject.settings)
    others = {name: value for name, value in subject.settings.items() if name not in ("every", "frequency")}
    return {**others, "interval": 10**6}


def _state(subject: _Subject, hook: Any) -> Any:
    try:
        return to_plain(dict(hook_state(hook)), clone=True)
    except CheckpointError as error:
        subject.breaks(f"has a state that cannot be saved: {error}", error)


def _difference(one: Any, other: Any, place: str = "") -> str:
    """Where two values differ first, in words; nothing where they are the same."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return "" if _same_tensor(one, other) else f"{place or 'a tensor'} has other values"
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        below = ((one[key], other[key], f"{place}.{key}" if place else str(key)) for key in one)
        return next((found for parts in below if (found := _difference(*parts))), "")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        parts = ((a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True)))
        return next((found for part in parts if (found := _difference(*part))), "")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = enumerate(zip(one, other, strict=False))
        at = next((i for i, (a, b) in pairs if _difference(a, b)), min(len(one), len(other)))
        was, is_ = (repr(values[at]) if at < len(values) else "nothing" for values in (one, other))
        return f"{place}[{at}] was {was} and is {is_}"
    # A NaN is itself here.
    same = one is other or (one != one and other != other) or bool(one == other)
    return "" if same else f"{place or 'it'} was {one!r} and is {other!r}"


def _same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and bool(torch.equal(one.nan_to_num(), other.nan_to_num()))


def _traces(run: TinyRun) -> dict[str, int]:
    """What can be left on engines, model and optimizer, in words, with how often it is there."""
    found: list[str] = []
    for name, engine in (("trainer", run.trainer), ("evaluator", run.evaluator)):
        found += [f"the attribute {attribute!r} of the {name}" for attribute in vars(engine)]
        found += [f"the event {_event_name(event)} of the {name}" for event in engine._allowed_events]
        for event, handlers in engine._event_handlers.items():
            found += [f"a handler of {_event_name(event)} on the {name}" for _ in handlers]
        if Events.EXCEPTION_RAISED in engine._event_handlers:
            # Even an empty list makes Ignite swallow exceptions.
            found.append(f"a list of handlers of EXCEPTION_RAISED on the {name}")
        found += [f"the step {engine._process_function!r} of the {name}"]
    for name, module in run.model.named_modules():
        where = f"the model's {name}" if name else "the model"
        found += [f"the attribute {attribute!r} of {where}" for attribute in vars(module)]
        found += [f"the mode training={module.training} of {where}"]
        found += [
            f"an entry of {key} of {where}" for key, v in vars(module).items() if key.endswith("_hooks") for _ in v
        ]
    found += [f"the attribute {attribute!r} of the optimizer" for attribute in vars(run.optimizer)]
    return {what: found.count(what) for what in found}


def _event_name(event: Any) -> str:
    return str(getattr(event, "name", event))


def _events(trainer: Engine) -> list[str]:
    """A list that fills with every event a script can see, where it happens, and the loss."""
    seen: list[str] = []

    def note(engine: Engine, event: str) -> None:
        state, last = engine.state, _event_name(engine.last_event_name)
        place = f"epoch {state.epoch}, iteration {state.iteration}"
        seen.append(f"{event} at {place}, output {state.output!r}, last event {last}")

    for event in Events:
        # Ignite swallows exceptions as soon as anything listens to them.
        if event is not Events.EXCEPTION_RAISED:
            trainer.add_event_handler(event, note, event.name)
    return seen


def _last_at(point: str, call: Callable[[], None]) -> BaseHook:
    """A hook that makes a call after all others at a point that begins with before."""
    return LambdaHook(**{point: call}, name="check_hook's watch", priority=Priority.LOWEST)


def _end_early(trainer: Engine, error: BaseException | None) -> None:
    """Let the fifth step, in the middle of an epoch, raise an error, or terminate the run where there is none."""
    step = trainer._process_function

    def ending_step(engine: Engine, batch: Any) -> Any:
        if engine.state.iteration == 5:
            if error is not None:
                raise error
            engine.terminate()
        return step(engine, batch)

    trainer._process_function = ending_step


def _around() -> set[str]:
    """The threads, open files, logging and signal handlers of this process, in words."""
    found = {f"the thread {thread.name!r} ({thread.ident})" for thread in threading.enumerate()}
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            found |= {
                f"the handler {handler!r} ({id(handler)}) of logger {logger.name!r}" for handler in logger.handlers
            }
    for number in (signal.SIGINT, signal.SIGTERM):
        found.add(f"the handler {signal.getsignal(number)!r} of {number.name}")
    folder = Path("/proc/self/fd")
    if folder.exists():
        for descriptor in os.listdir(folder):
            # The descriptor of the listing itself is gone by now.
            with contextlib.suppress(OSError):
                found.add(f"the open file {os.readlink(folder / descriptor)} ({descriptor})")
    return found
