"""Settings are read once, and a hook's own attributes are not taken for settings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, ConfigError, attach_hooks, build_hook, scheduled
from ignite_hooks.hooks.base_hook import settings
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.plan.hook_settings import give, read_settings, without_effect
from ignite_hooks.plan.methods import at
from tests.tools import echo_trainer


class Counting(BaseHook):
    """Counts its calls; the subclasses use words of the schedule for themselves."""

    calls = 0

    def after_train_iter(self) -> None:
        self.calls += 1


class Timing(Counting):
    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.clock = clock
        self.start = clock()
        self.every = None


class TimingEachRun(Timing):
    def before_run(self) -> None:
        self.start = self.clock()
        self.interval = 1 << 40


class Declared(Counting):
    """Its own settings, which a run then overwrites."""

    def __init__(self, interval: int = 2, start: int = 0) -> None:
        super().__init__()
        self.interval, self.start = interval, start

    def before_run(self) -> None:
        self.interval, self.start = 1 << 40, time.monotonic_ns()  # type: ignore[assignment]
        self.priority, self.on_error = "none", "anything"  # type: ignore[assignment]


@pytest.mark.parametrize("clock", [time.time, time.monotonic_ns])
@pytest.mark.parametrize("cls", [Timing, TimingEachRun])
def test_a_time_that_a_hook_keeps_is_no_setting(cls: type[Timing], clock: Callable[[], float], tmp_path: Path) -> None:
    trainer, hook = echo_trainer(), cls(clock)
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([1, 2, 3], max_epochs=1)
    trainer.state.max_epochs = None
    trainer.run([1, 2, 3], max_epochs=1)
    runner.register_hook(LambdaHook(after_epoch=print))
    assert hook.calls == 6


def test_settings_are_read_when_the_hook_is_registered(tmp_path: Path) -> None:
    trainer, hook = echo_trainer(), Declared()
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    for _ in range(2):
        trainer.state.max_epochs = None
        trainer.run([1, 2, 3, 4], max_epochs=1)
        runner.register_service("more", 1)
    assert hook.calls == 4
    assert runner.plan.at("after_train_iter")[0].how_often == "every 2 iters"


class FromConfig(BaseHook):
    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        self.frequency = (config or {}).get("frequency", 5)

    def after_train_iter(self) -> None: ...


class FromKeywords(BaseHook):
    def __init__(self, **given: Any) -> None:
        super().__init__()
        vars(self).update(given)

    def after_train_iter(self) -> None: ...


class OfClass:
    interval = 4

    def after_train_iter(self) -> None: ...


@dataclasses.dataclass(slots=True)
class Slotted:
    interval: int = 3

    def after_train_iter(self) -> None: ...


@settings
class Typed(BaseHook):
    interval: int = 6

    def after_train_iter(self) -> None: ...


class WithMethods:
    """Has methods with the names of settings."""

    def start(self) -> None: ...

    def every(self) -> None: ...

    def after_train_iter(self) -> None: ...


def assigned(hook: Any, **values: Any) -> Any:
    vars(hook).update(values)
    return hook


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (Counting(interval=5), "every 5 iters"),
        (Counting({"frequency": 5, "start": 3}), "every 5 iters from 3"),
        (Declared(interval=7), "every 7 iters"),
        (FromConfig(), "every 5 iters"),
        (FromConfig({"frequency": 8}), "every 8 iters"),
        (FromKeywords(interval=9), "every 9 iters"),
        (OfClass(), "every 4 iters"),
        (Slotted(), "every 3 iters"),
        (Typed(), "every 6 iters"),
        (Typed(frequency=2), "every 2 iters"),
        (assigned(Counting(), interval=3), "every 3 iters"),
        (WithMethods(), "every iter"),
        (build_hook({"type": WithMethods}), "every iter"),
        (build_hook({"type": Slotted, "interval": 8}), "every 8 iters"),
        (build_hook({"type": OfClass, "every": "3 iter"}), "every 3 iters"),
    ],
    ids=lambda case: case if isinstance(case, str) else type(case).__name__,
)
def test_words_of_constructor_class_and_configuration_are_settings(hook: Any, expected: str) -> None:
    assert str(read_settings(hook).when) == expected


class AtEvaluation(BaseHook):
    def after_val_epoch(self) -> None: ...


class AtEpochs(BaseHook):
    def before_run(self) -> None: ...

    def after_epoch(self) -> None: ...


class MarkedIteration(BaseHook):
    @scheduled
    def after_train_iter(self) -> None: ...

    def after_epoch(self) -> None: ...


class MarkedBoth(BaseHook):
    def after_train_iter(self) -> None: ...

    @at("after_train_iter", scheduled=True)
    def write(self) -> None: ...

    @at("after_epoch", scheduled=True)
    def summarise(self) -> None: ...


class MarkedEvaluation(BaseHook):
    @scheduled
    def after_val_epoch(self) -> None: ...


class ReadsItself(BaseHook):
    def after_val_iter(self, runner: Any, batch_idx: int) -> None:
        if self.every_n_inner_iters(batch_idx, self.interval):
            raise NotImplementedError


class AsksItself(BaseHook):
    def after_val_epoch(self, runner: Any) -> None:
        if self.when.due(runner.global_step):
            raise NotImplementedError


class DecidesItself(BaseHook):
    def should_trigger(self, step: int) -> bool:
        return step > 3

    def after_train_iter(self) -> None: ...


@pytest.mark.parametrize(
    ("cls", "given", "word"),
    [
        (AtEvaluation, {"interval": 5}, "interval"),
        (AtEvaluation, {"frequency": 5}, "frequency"),
        (AtEvaluation, {"start": 5}, "start"),
        (AtEvaluation, {"begin": 5}, "begin"),
        (AtEvaluation, {"every": "10 min"}, "every"),
        (AtEvaluation, {"by_epoch": True}, "by_epoch"),
        (AtEvaluation, {"interval": 1}, None),
        (AtEvaluation, {}, None),
        (Counting, {"every": "2 epoch"}, "every"),
        (Counting, {"interval": 5, "by_epoch": True}, "by_epoch"),
        (Counting, {"every": "10 min"}, None),
        (Declared, {"every": "2 epoch"}, "every"),
        (Declared, {"interval": 5}, None),
        (AtEpochs, {"interval": 5}, None),
        (AtEpochs, {"every": "10 min"}, None),
        (AtEpochs, {"every": "5 iter"}, "every"),
        (AtEpochs, {"interval": 5, "by_epoch": False}, "by_epoch"),
        (MarkedIteration, {"interval": 5}, None),
        (MarkedIteration, {"every": "2 epoch"}, "every"),
        (MarkedBoth, {"every": "2 epoch"}, None),
        (MarkedBoth, {"interval": 3}, None),
        (MarkedEvaluation, {"every": "2 epoch"}, None),
        (ReadsItself, {"interval": 5}, None),
        (ReadsItself, {"every": "2 epoch"}, "every"),
        (AsksItself, {"every": "2 epoch"}, None),
        (DecidesItself, {"every": "2 epoch"}, None),
    ],
)
def test_a_schedule_that_nothing_obeys_is_an_error(cls: type, given: dict[str, Any], word: str | None) -> None:
    hook = cls()
    for name, value in given.items():
        give(hook, name, value)
    assert [setting for setting, _ in without_effect(hook, read_settings(hook).when)] == ([word] if word else [])


def test_the_error_says_what_the_hook_answers_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        attach_hooks(echo_trainer(), [{"type": Counting, "every": "2 epoch"}], work_dir=tmp_path)
    assert str(caught.value) == (
        "hooks[0].every: 'every 2 epochs' has no effect: Counting answers after_train_iter, and nothing that counts "
        "epochs; count iterations, or mark the method that is meant with @scheduled"
    )
