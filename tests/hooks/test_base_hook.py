"""The base class of all hooks, and typed settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, Hook, attach_hooks
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import settings
from ignite_hooks.plan.methods import class_answers
from ignite_hooks.plan.points import POINTS
from ignite_hooks.plan.settings_digest import fields_of
from ignite_hooks.plan.simulate import PlanSimulation
from ignite_hooks.registry import HOOKS
from tests.tools import echo_trainer


@dataclass
class Progress:
    count: int = 0
    names: list[str] = field(default_factory=list)


@settings
class Typed(BaseHook):
    """A hook of typed fields."""

    interval: int = 10
    loud: bool = False
    state: Progress = field(init=False, default_factory=Progress)

    def after_epoch(self) -> None: ...

    def before_run(self) -> None: ...


@pytest.mark.parametrize(
    ("made", "interval", "given"),
    [
        (lambda: Typed(), 10, set()),
        (lambda: Typed(interval=3), 3, {"interval"}),
        (lambda: Typed({"interval": 3}), 3, {"interval"}),
        (lambda: Typed({"interval": 3}, loud=True), 3, {"interval", "loud"}),
        (lambda: Typed(frequency=7), 7, {"interval"}),
        (lambda: Typed(name="n", priority=3, on_error="warn"), 10, {"name", "priority", "on_error"}),
    ],
)
def test_settings_come_by_name_or_as_one_mapping(made: Any, interval: int, given: set[str]) -> None:
    hook = made()
    assert hook.interval == interval
    assert hook.given == given


def hooks_with_paths() -> list[tuple[str, str]]:
    found = []
    for name in sorted(HOOKS):
        settings = fields_of(HOOKS.get(name)) or ()
        found += [(name, setting.name) for setting in settings if setting.init and "Path" in str(setting.type)]
    return found


@pytest.mark.parametrize(("name", "setting"), hooks_with_paths())
@pytest.mark.parametrize("kind", [str, Path])
def test_the_home_directory_is_known_in_objects_too(
    name: str, setting: str, kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hook = HOOKS.get(name)(**{setting: kind("~/mine")})
    assert Path(getattr(hook, setting)) == tmp_path / "mine"


def test_an_unknown_setting_is_refused_and_positions_are_too() -> None:
    with pytest.raises(TypeError, match="intervall"):
        Typed(intervall=3)
    with pytest.raises(TypeError):
        Typed(3)  # type: ignore[arg-type]


class Plain(BaseHook):
    """Has no constructor of its own."""

    def after_epoch(self) -> None: ...


class HandsOn(Plain):
    def __init__(self, level: int = 1, **others: Any) -> None:
        super().__init__(**others)
        self.level = level


class Reads(Plain):
    def after_epoch(self) -> None:
        print(self.config["sentence"])


class Keeps(Plain):
    def __init__(self, **others: Any) -> None:
        super().__init__(**others)
        self.others = others


class Names(Plain):
    def __init__(self, **others: Any) -> None:
        super().__init__(**others)

    def after_epoch(self) -> None:
        print(getattr(self, "names"))  # noqa: B009  # read by its name


@pytest.mark.parametrize(
    ("cls", "word", "message"),
    [
        (BaseHook, "intervl", "did you mean 'interval'"),
        (Plain, "intervl", "not a setting of Plain, did you mean 'interval'"),
        (Plain, "treshold", r"nothing in the class reads it; make it a parameter of Plain.__init__\(\)"),
        (HandsOn, "levl", "did you mean 'level'"),
        (HandsOn, "sentence", "nothing in the class reads it"),
        (Reads, "intervl", "did you mean 'interval'"),
        (Keeps, "priorty", "did you mean 'priority'"),
    ],
)
def test_a_keyword_that_nothing_reads_is_refused(cls: Any, word: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        cls(**{word: 2})
    assert caught.value.setting == word


@pytest.mark.parametrize(
    ("cls", "word"), [(Plain, "interval"), (HandsOn, "level"), (Reads, "sentence"), (Keeps, "what"), (Names, "names")]
)
def test_a_keyword_that_may_be_read_is_taken(cls: Any, word: str) -> None:
    assert isinstance(cls(**{word: 2}), cls)


def test_overridden_points_are_answered_in_the_order_of_a_run() -> None:
    assert Typed().get_triggered_stages() == ["before_run", "after_epoch"]
    assert BaseHook().get_triggered_stages() == []
    assert class_answers(BaseHook) == ()
    assert Hook is BaseHook


def test_every_point_has_a_default_that_does_nothing() -> None:
    for point in POINTS:
        assert getattr(BaseHook(), point)(1, two=2) is None
        assert getattr(BaseHook, point).__doc__


@pytest.mark.parametrize(
    ("name", "default"),
    [("evaluates", None), ("evaluate", None), ("loader", None), ("out_dir", None), ("changes_training", False)],
)
def test_the_whole_protocol_has_defaults(name: str, default: object) -> None:
    assert getattr(BaseHook(), name) is default
    hook = BaseHook()
    assert (hook.weights(), hook.steady_tensors(), hook.answers(), hook.findings()) == ({}, (), {}, [])
    assert hook.leads_to("after_epoch", PlanSimulation(lambda point: (), 1, 1, 1)) == ()
    hook.load_weights({"state_dict": {}})


def test_a_setting_may_have_a_name_of_the_protocol() -> None:
    @settings
    class Loads(BaseHook):
        weights: str
        loader: Any
        evaluate: bool = True

    hook = Loads(weights="best.pth", loader=[1])
    assert (hook.weights, hook.loader, hook.evaluate) == ("best.pth", [1], True)
    with pytest.raises(TypeError, match="'weights' and 'loader'"):
        Loads()


def test_state_is_saved_and_loaded_without_code_in_the_hook() -> None:
    hook, other = Typed(), Typed()
    hook.state.count, hook.state.names = 3, ["a"]
    saved = hook.state_dict()
    assert saved == {"count": 3, "names": ["a"]}
    other.load_state_dict({**saved, "from another version": 1})
    assert other.state == hook.state
    other.state.names.append("b")
    assert hook.state.names == ["a"]
    assert BaseHook().state_dict() == {}


def test_a_hook_knows_its_runner_while_it_is_attached(tmp_path: Path) -> None:
    hook = Typed()
    with pytest.raises(RuntimeError, match="Typed is not attached"):
        hook.runner
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path, mine=5)
    assert hook.runner is runner
    assert hook.get_service("mine") == 5
    assert hook.get_service("other", "none") == "none"
    runner.detach()
    with pytest.raises(RuntimeError, match="not attached"):
        hook.runner


def test_a_hook_that_never_called_its_parents_constructor_works(tmp_path: Path) -> None:
    seen: list[int] = []

    class Own(BaseHook):
        def __init__(self, interval: int = 2) -> None:
            self.interval = interval

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            if self.every_n_train_iters(runner, self.interval):
                seen.append(outputs)

    trainer = echo_trainer()
    attach_hooks(trainer, [Own()], work_dir=tmp_path)
    trainer.run([1, 2, 3, 4])
    assert seen == [2, 4]
