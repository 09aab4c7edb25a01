"""A hook is checked, named and attached before it is called for the first time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, ConfigError, attach_hooks
from tests.tools import echo_trainer


class Quiet(BaseHook):
    def after_epoch(self) -> None: ...


def test_a_refused_hook_keeps_its_own_priority(tmp_path: Path) -> None:
    runner, hook = attach_hooks(echo_trainer(), [], work_dir=tmp_path), Quiet(priority="LOW")
    with pytest.raises(ConfigError, match="500 is not a priority"):
        runner.register_hook(hook, priority=500)
    assert (hook.priority, list(runner.hooks)) == ("LOW", [])


SEEN: list[Any] = []


@dataclasses.dataclass(frozen=True)
class Frozen:
    interval: int = 1

    def after_epoch(self, runner: Any) -> None:
        SEEN.append(runner.epoch)


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    interval: int = 1

    def after_epoch(self, runner: Any) -> None:
        SEEN.append(runner.epoch)


class Slots:
    __slots__ = ("interval",)

    def __init__(self) -> None:
        self.interval = 1

    def after_epoch(self, runner: Any) -> None:
        SEEN.append(runner.epoch)


@dataclasses.dataclass(frozen=True)
class FrozenHook(BaseHook):
    interval: int = 1

    def after_epoch(self) -> None:
        SEEN.append(self.runner.epoch)


@pytest.mark.parametrize("cls", [Frozen, FrozenSlots, Slots, FrozenHook])
def test_a_frozen_or_slotted_hook_runs_and_refuses_in_words(cls: type, tmp_path: Path) -> None:
    trainer, hook = echo_trainer(), cls()
    SEEN.clear()
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([1], max_epochs=2)
    assert SEEN == [0, 1]
    runner.detach()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    sentence = f"{cls.__name__} is frozen or has slots: make 'priority' a parameter of its constructor"
    with pytest.raises(ConfigError, match=sentence):
        runner.register_hook(cls(), priority=20)
    with pytest.raises(ConfigError, match=rf"hooks\[0\].priority: {sentence}"):
        attach_hooks(echo_trainer(), [{"type": cls, "priority": 20}], work_dir=tmp_path)
    runner.register_hook(cls())
    assert len(runner.hooks) == 1
