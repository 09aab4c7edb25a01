"""Every way in takes every kind of hook, and each then is in the plan, runs, obeys its settings and comes off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine
from ignite.handlers import TerminateOnNan, Timer

from ignite_hooks import HOOK_REGISTRY, HOOKS, BaseHook, Hook, Runner, attach_hooks, build_hook
from ignite_hooks.hooks import settings
from ignite_hooks.hooks.registry import HookRegistry
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from tests.engine.test_installation import handlers_of
from tests.tools import echo_trainer


@dataclass
class Acts:
    """What the hook under test has done; it fails in one of its calls."""

    log: list[str] = field(default_factory=list)
    fails_in: int = 0

    def act(self) -> None:
        self.log.append("hook")
        if self.log.count("hook") == self.fails_in:
            raise ValueError("boom")


acts = Acts()


@pytest.fixture(autouse=True)
def everything_is_given_back() -> Iterator[None]:
    before = dict(HOOKS._classes)
    acts.log.clear()
    acts.fails_in = 0
    HookRegistry.register("FirstStyle")(FirstStyle)
    HOOK_REGISTRY.register()(FourthStyle)
    for style in (SecondStyle, ThirdStyle, FifthStyle):
        HOOKS.register_module()(style)
    yield
    HOOKS._classes.clear()
    HOOKS._classes.update(before)


class FirstStyle(BaseHook):
    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)

    def after_step(self, metrics: Mapping[str, float], model: Any = None) -> None:
        acts.act()


@settings
class SecondStyle(BaseHook):
    interval: int = 1

    def after_train_iter(self) -> None:
        acts.act()


class ThirdStyle:
    def after_train_iter(self, runner: Any) -> None:
        acts.act()


class FourthStyle(Hook):
    def __init__(self) -> None:
        self.bar_info: dict[str, str] = {}

    def after_train_iter(self, trainner: Any) -> None:
        acts.act()


class FifthStyle(Hook):
    def __init__(self, interval: int = 1) -> None:
        self.interval = interval

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        acts.act()


STYLES: tuple[type, ...] = (FirstStyle, SecondStyle, ThirdStyle, FourthStyle, FifthStyle)


def act(engine: Engine) -> None:
    acts.act()


def output_of(output: Any) -> Any:
    acts.act()
    return output


@dataclass(frozen=True)
class Kind:
    """One kind of hook."""

    name: str
    method: str
    make: Callable[[], Any]
    entry: Mapping[str, Any]
    in_file: Mapping[str, Any] | None = None
    carries: bool = True
    """Whether settings can be assigned to the object itself."""


NAN = "ignite.handlers.TerminateOnNan"
KINDS = (
    Kind(
        "LambdaHook",
        "after_train_iter",
        lambda: LambdaHook(after_train_iter=acts.act),
        {"type": "LambdaHook", "after_train_iter": acts.act},
        {"type": "LambdaHook", "after_train_iter": "@act"},
    ),
    *(
        Kind(
            style.__name__,
            "after_step" if style is FirstStyle else "after_train_iter",
            style,
            {"type": style.__name__},
            {"type": style.__name__},
        )
        for style in STYLES
    ),
    Kind("ThirdStyle", "after_train_iter", ThirdStyle, {"type": ThirdStyle}),
    Kind(
        "TerminateOnNan",
        "after_train_iter",
        lambda: TerminateOnNan(output_transform=output_of),
        {"type": NAN, "output_transform": output_of},
        {"type": NAN, "output_transform": "@output_of"},
        carries=False,
    ),
    Kind(
        "TerminateOnNan",
        "after_train_iter",
        lambda: TerminateOnNan(output_transform=output_of),
        {"type": TerminateOnNan, "output_transform": output_of},
        carries=False,
    ),
    Kind("act", "after_train_iter", lambda: act, {"type": act}, carries=False),
    Kind("named", "after_train_iter", lambda: act, {"type": act, "name": "named"}, carries=False),
)


def constructed(kind: Kind, given: Mapping[str, Any]) -> Any:
    """Return an object with settings as a script makes it; a handler or a function has room for none."""
    if not kind.carries and (given or kind.name == "named"):
        return build_hook({**kind.entry, **given})
    hook = kind.make()
    for word, value in given.items():
        setattr(hook, word, value)
    return hook


Way = Callable[[Engine, Kind, Mapping[str, Any], list[Any], Path], Runner]


def from_constructor(trainer: Engine, kind: Kind, given: Mapping[str, Any], others: list[Any], folder: Path) -> Runner:
    return attach_hooks(trainer, [constructed(kind, given), *others], work_dir=folder)


def from_build_hook(trainer: Engine, kind: Kind, given: Mapping[str, Any], others: list[Any], folder: Path) -> Runner:
    return attach_hooks(trainer, [build_hook({**kind.entry, **given}), *others], work_dir=folder)


def from_list(trainer: Engine, kind: Kind, given: Mapping[str, Any], others: list[Any], folder: Path) -> Runner:
    return attach_hooks(trainer, [{**kind.entry, **given}, *others], work_dir=folder)


def from_mapping(trainer: Engine, kind: Kind, given: Mapping[str, Any], others: list[Any], folder: Path) -> Runner:
    return attach_hooks(trainer, {"hooks": [{**kind.entry, **given}], "custom_hooks": others}, work_dir=folder)


def from_file(trainer: Engine, kind: Kind, given: Mapping[str, Any], others: list[Any], folder: Path) -> Runner:
    path = folder / "hooks.yaml"
    path.write_text(json.dumps({"hooks": [{**(kind.in_file or {}), **given}]}))
    runner = attach_hooks(trainer, path, work_dir=folder / "run", act=acts.act, output_of=output_of)
    for other in others:
        runner.register_hook(other)
    return runner


def from_register_hook(
    trainer: Engine, kind: Kind, given: Mapping[str, Any], others: list[Any], folder: Path
) -> Runner:
    runner = attach_hooks(trainer, [], work_dir=folder)
    runner.register_hook(constructed(kind, given))
    for other in others:
        runner.register_hook(other)
    return runner


WAYS: tuple[Way, ...] = (
    from_constructor,
    from_build_hook,
    from_list,
    from_mapping,
    from_file,
    from_register_hook,
)
CASES = [
    pytest.param(way, kind, id=f"{way.__name__}-{i}-{kind.name}")
    for way in WAYS
    for i, kind in enumerate(KINDS)
    if way is not from_file or kind.in_file is not None
]


def other_hook() -> LambdaHook:
    return LambdaHook(after_train_iter=lambda: acts.log.append("other"), name="other", priority=60)


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_a_hook_is_in_the_plan_runs_and_comes_off(way: Way, kind: Kind, tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = way(trainer, kind, {}, [], tmp_path)
    assert [(slot.hook, slot.method) for slot in runner.plan] == [(kind.name, kind.method)]
    assert kind.name in str(runner.plan)
    trainer.run([1, 2, 3, 4])
    assert acts.log == ["hook"] * 4
    assert runner.report().tallies[kind.name, kind.method].calls == 4
    runner.detach()
    assert handlers_of(trainer) == {}
    trainer.state.max_epochs = None
    trainer.run([1, 2])
    assert acts.log == ["hook"] * 4


@pytest.mark.parametrize("given", [{"every": "2 iter"}, {"interval": 2}])
@pytest.mark.parametrize(("way", "kind"), CASES)
def test_a_hook_obeys_its_schedule(way: Way, kind: Kind, given: dict[str, Any], tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = way(trainer, kind, given, [], tmp_path)
    trainer.run([1, 2, 3, 4, 5])
    assert acts.log == ["hook"] * 2
    assert [slot.how_often for slot in runner.plan] == ["every 2 iters"]


@pytest.mark.parametrize(("priority", "first"), [(70, "hook"), ("HIGH", "other"), ({"after_train_iter": 61}, "hook")])
@pytest.mark.parametrize(("way", "kind"), CASES)
def test_a_hook_obeys_its_priority(way: Way, kind: Kind, priority: Any, first: str, tmp_path: Path) -> None:
    trainer = echo_trainer()
    way(trainer, kind, {"priority": priority}, [other_hook()], tmp_path)
    trainer.run([1])
    assert acts.log == (["hook", "other"] if first == "hook" else ["other", "hook"])


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_a_hook_obeys_on_error(way: Way, kind: Kind, tmp_path: Path) -> None:
    trainer, acts.fails_in = echo_trainer(), 2
    runner = way(trainer, kind, {"on_error": "disable"}, [], tmp_path)
    trainer.run([1, 2, 3, 4])
    assert acts.log == ["hook"] * 2
    assert runner.report().failures[kind.name].off


@pytest.mark.parametrize(
    "make", [lambda: [Timer()], lambda: [{"type": "ignite.handlers.Timer"}], lambda: [{"type": Timer}]]
)
def test_a_handler_that_is_attached_is_in_the_plan_and_comes_off(make: Any, tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, make(), work_dir=tmp_path)
    assert "Timer  " in str(runner.plan)
    assert handlers_of(trainer) != {}
    trainer.run([1])
    runner.detach()
    assert handlers_of(trainer) == {}
