"""Settings become hooks: every style of class, services for references, sorting, and what is wrong together."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks import HOOKS, BaseHook, ConfigError, Hook, LoggerHook, Priority
from ignite_hooks.config.build import build_all
from ignite_hooks.config.read import HookEntry
from ignite_hooks.config.ready import NEEDED
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks import HOOK_REGISTRY, HookRegistry, build_hook, build_hooks, get_default_hooks, settings
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.plan.hook_settings import when_of
from ignite_hooks.plan.schedule import When


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Restore the registry after a test."""
    modules, classes = dict(HOOKS._modules), dict(HOOKS._classes)
    yield
    HOOKS._modules, HOOKS._classes = modules, classes


def problems(config: Any, services: Any = None) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        build_hook(config, services)
    return [tuple(problem) for problem in caught.value.problems]


# -- the styles of the specifications -----------------------------------------------------------------------------


def test_a_problem_is_where_its_message_begins() -> None:
    with pytest.raises(ConfigError) as refused:
        build_hook({"type": "LRFinderHook", "start_lr": 1.0, "end_lr": 0.1})
    assert str(refused.value).strip() == "hook.end_lr: 0.1 is not above start_lr, which is 1"


def test_a_class_with_a_config_parameter() -> None:
    @HookRegistry.register("MyCustomHook")
    class Anything(BaseHook):
        def __init__(self, config: dict[str, Any] | None = None) -> None:
            super().__init__(config)
            self.path = self.config.get("log_path", "none")

        def after_epoch(self, epoch: int) -> None: ...

    hook = build_hook({"type": "MyCustomHook", "frequency": 5, "log_path": "x", "name": "mine", "priority": "high"})
    assert (hook.path, hook.when.interval, hook.name, hook.priority) == ("x", 5, "mine", "high")
    assert Anything().path == "none"


def test_a_class_whose_constructor_does_not_call_super() -> None:
    @HOOKS.register_module()
    class CheckInvalidLossHook(Hook):
        def __init__(self, interval: int = 50) -> None:
            self.interval = interval

        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
        ) -> None: ...

    assert build_hook("CheckInvalidLossHook").when.interval == 50
    hook = build_hook({"type": "CheckInvalidLossHook", "interval": 7, "priority": 3, "name": "c", "on_error": "warn"})
    assert (hook.interval, hook.when.interval, hook.priority, hook.name, hook.on_error) == (7, 7, 3, "c", "warn")
    assert problems({"type": "CheckInvalidLossHook", "intreval": 3}) == [
        ("hook.intreval", "not a setting of CheckInvalidLossHook, did you mean 'interval'?")
    ]


def test_the_other_spelling_reaches_the_constructor() -> None:
    @HOOKS.register_module()
    class Own(Hook):
        def __init__(self, interval: int = 50, begin: int = 0) -> None:
            self.interval, self.begin = interval, begin

        def after_train_iter(self, runner: Any) -> None: ...

    hook = build_hook({"type": "Own", "frequency": 7, "start": 3})
    assert (hook.interval, hook.begin) == (7, 3)
    assert str(hook.when) == "every 7 iters from 3"


def test_a_hook_without_a_constructor() -> None:
    @HOOK_REGISTRY.register()
    class LogHook2(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            print(self.config["anything"])

    hook = build_hook({"type": "LogHook2", "every": "10 iter", "anything": 3})
    assert hook.config == {"every": "10 iter", "anything": 3}
    assert str(hook.when) == "every 10 iters"


def test_a_plain_class_without_a_base() -> None:
    @HOOKS.register_module
    class PlainHook:
        def __init__(self, size: int = 3) -> None:
            self.size = size

        def after_train_iter(self, trainer: Any) -> None: ...

    hook = build_hook({"type": "PlainHook", "size": 5, "interval": 4, "name": "p", "priority": 10})
    assert (hook.size, hook.interval, hook.name, hook.priority) == (5, 4, "p", 10)
    assert problems({"type": "PlainHook", "sise": 5}) == [
        ("hook.sise", "not a setting of PlainHook, did you mean 'size'?")
    ]


def test_a_plain_dataclass() -> None:
    @HOOKS.register_module()
    @dataclass
    class DataHook(BaseHook):
        count: int = 1

        def after_epoch(self) -> None: ...

    hook = build_hook({"type": "DataHook", "count": 2, "name": "d", "priority": "LOW", "interval": 2})
    assert (hook.count, hook.name, hook.priority, str(hook.when)) == (2, "d", "LOW", "every 2 epochs")


def test_a_function_and_a_class_itself_can_be_the_type() -> None:
    class Mine(BaseHook):
        def after_epoch(self) -> None: ...

    @HOOKS.register_module()
    def make(frequency: int = 2) -> Mine:
        return Mine(frequency=frequency)

    assert build_hook({"type": Mine, "frequency": 3}).when.interval == 3
    assert build_hook({"type": "make", "frequency": 4}).when.interval == 4


def test_a_call_with_module_and_a_list_of_names() -> None:
    class Mine(BaseHook):
        def after_epoch(self) -> None: ...

    HOOKS.register_module(module=Mine)
    HOOKS.register_module(["MineToo", "MineAsWell"], module=Mine)
    assert {type(build_hook(name)) for name in ("Mine", "MineToo", "MineAsWell")} == {Mine}


def test_a_name_is_taken_over_with_force_only() -> None:
    class CheckpointHook(BaseHook):
        def after_epoch(self) -> None: ...

    with pytest.raises(KeyError, match="force=True"):
        HOOKS.register_module()(CheckpointHook)
    HOOKS.register_module(force=True)(CheckpointHook)
    assert type(build_hook("CheckpointHook")) is CheckpointHook


def test_built_in_hooks_take_keywords_or_one_mapping() -> None:
    for name in ("CheckpointHook", "EvalHook", "IterTimerHook"):
        cls: Any = HOOKS.get(name)
        for hook in (
            cls({"frequency": 7}),
            cls(interval=7),
            cls(frequency=7),
            build_hook({"type": name, "interval": 7}),
        ):
            assert (hook.interval, hook.when.interval) == (7, 7)
    checkpoint = HOOKS.get("CheckpointHook")
    assert checkpoint({"begin": 3}).when.start == checkpoint(start=3).when.start == 3


# -- building -----------------------------------------------------------------------------------------------------


def test_hooks_are_sorted_by_priority_and_ties_keep_their_order() -> None:
    wanted = ["EvalHook", {"type": "LoggerHook", "name": "a"}, "CheckpointHook", {"type": "LoggerHook", "name": "b"}]
    names = [hook.name or type(hook).__name__ for hook in build_hooks(wanted)]
    assert names == ["a", "b", "CheckpointHook", "EvalHook"]
    assert build_hooks([]) == []
    last = {"type": "LoggerHook", "priority": "lowest"}
    assert [type(hook).__name__ for hook in build_hooks([last, "EvalHook"])] == ["EvalHook", "LoggerHook"]


def test_the_default_hooks_are_built_by_name() -> None:
    assert list(get_default_hooks()) == ["runtime_info", "timer", "logger", "checkpoint", "eval"]
    assert list(get_default_hooks(evaluates=False)) == ["runtime_info", "timer", "logger", "checkpoint"]
    assert list(get_default_hooks(evaluates=False, distributed=True))[4:] == ["sampler_seed", "sync_buffers"]


def test_the_default_priorities_are_those_of_the_specification() -> None:
    wanted = {"LoggerHook": 50, "CheckpointHook": 60, "EvalHook": 70, "EarlyStoppingHook": 90}
    assert {name: int(build_hook(name).priority) for name in wanted} == wanted


def test_a_hook_object_is_returned_as_it_is() -> None:
    hook = HOOKS.get("CheckpointHook")(interval=3)
    assert build_hook(hook) is hook
    assert build_hooks([hook]) == [hook]


def test_the_mapping_given_is_not_changed() -> None:
    given = {"type": "EvalHook", "interval": 3, "metrics": {"a": {"type": "Accuracy"}}}
    before = copy.deepcopy(given)
    hook = build_hook(given)
    assert given == before
    hook.metrics["b"] = 1
    assert given == before


def test_a_list_becomes_a_tuple_where_one_is_wanted() -> None:
    @HOOKS.register_module()
    @settings
    class Sized(BaseHook):
        size: tuple[int, int] = (1, 1)

        def after_epoch(self) -> None: ...

    assert build_hook({"type": "Sized", "size": [3, 4]}).size == (3, 4)


@pytest.mark.parametrize(
    ("config", "place", "message"),
    [
        ({}, "hook", "needs 'type', the name of a hook"),
        ({"type": None}, "hook", "needs 'type', the name of a hook"),
        (None, "hook", "not a hook: NoneType can neither be attached to an engine nor called with one; " + NEEDED),
        (3, "hook", "not a hook: int can neither be attached to an engine nor called with one; " + NEEDED),
        ({"type": 3}, "hook.type", "the name of a hook is needed, not 3"),
        (BaseHook, "hook", "a class: write {'type': 'BaseHook'} or BaseHook() for a hook"),
        ({"type": dict}, "hook.type", "dict does not make a hook: dict has no method that is a point"),
        (
            {"type": dict, "name": "a"},
            "hook.name",
            "dict is frozen or has slots: make 'name' a parameter of its constructor",
        ),
        ({"type": print}, "hook.type", "print does not make a hook: NoneType has no method that is a point"),
        ("EvalHok", "hook.type", "no hook is called 'EvalHok', did you mean 'EvalHook'?"),
        ("zzz", "hook.type", "no hook is called 'zzz'; 'ignite-hooks list' shows all"),
        (
            "os.system",
            "hook.type",
            "no hook is called 'os.system': only what is in ignite.handlers is named by its path",
        ),
        ({"type": "EvalHook", "interval": True}, "hook.interval", "a whole number of at least 1 is needed, not True"),
    ],
)
def test_what_cannot_be_built(config: Any, place: str, message: str) -> None:
    assert problems(config) == [(place, message)]


@pytest.mark.parametrize("configs", [{"type": "EvalHook"}, "EvalHook", None, 3])
def test_build_hooks_wants_a_list(configs: Any) -> None:
    with pytest.raises(ConfigError, match="hooks: a list of hooks is needed, not"):
        build_hooks(configs)


def test_build_hooks_reports_every_entry() -> None:
    with pytest.raises(ConfigError) as caught:
        build_hooks(["EvalHok", {"type": "EvalHook", "interval": 0}, {"type": "LoggerHook", "priority": -1}])
    assert [problem.place for problem in caught.value.problems] == [
        "hooks[0].type",
        "hooks[1].interval",
        "hooks[2].priority",
    ]


def test_a_module_with_a_missing_dependency_is_a_problem() -> None:
    HOOKS._modules["FarHook"] = "no_such_package"
    assert problems("FarHook") == [("hook.type", "FarHook cannot be loaded: No module named 'no_such_package'")]


@pytest.mark.parametrize(
    ("error", "place", "message"),
    [
        (ValueError("size: 3 is odd"), "hook.size", "3 is odd"),
        (ValueError("the size may not be odd"), "hook.size", "the size may not be odd"),
        (ValueError("oversized"), "hook", "oversized"),
        (SettingError("size", "3 is more than width"), "hook.size", "3 is more than width"),
        (SettingError("width", "less than size"), "hook.width", "less than size"),
        (KeyError("size"), "hook.size", "KeyError: size"),
        (
            AttributeError("'int' object has\nno attribute 'x'"),
            "hook",
            "AttributeError: 'int' object has no attribute 'x'",
        ),
        (ValueError(), "hook", "ValueError"),
    ],
)
def test_what_a_constructor_refuses_names_its_setting(error: Exception, place: str, message: str) -> None:
    class Refuses(BaseHook):
        def __init__(self, size: int = 3) -> None:
            raise error

    assert problems({"type": Refuses, "size": 3}) == [(place, message)]


@pytest.mark.parametrize(
    ("error", "place", "message"),
    [
        (SettingError("interval", "too short"), "hook.interval", "too short"),
        (ValueError("interval: too short"), "hook", "interval: too short"),
    ],
)
def test_what_a_schedule_refuses_names_its_setting_or_the_entry(error: Exception, place: str, message: str) -> None:
    class Refuses(BaseHook):
        @property
        def when(self) -> Any:
            raise error

        def after_train_iter(self) -> None: ...

    assert problems({"type": Refuses}) == [(place, message)]


# -- references ---------------------------------------------------------------------------------------------------


def test_references_are_replaced_however_deep() -> None:
    class Takes(BaseHook):
        def __init__(self, a: Any = None, b: Any = None, c: Any = None) -> None:
            self.a, self.b, self.c = a, b, c

        def after_epoch(self) -> None: ...

    model = torch.nn.Linear(1, 1)
    given = {"type": Takes, "a": "@model", "b": {"x": ["@model", {"y": "@model"}]}, "c": "plain @model"}
    hook = build_hook(given, {"model": model})
    assert hook.a is hook.b["x"][0] is hook.b["x"][1]["y"] is model
    assert hook.c == "plain @model"
    assert given["a"] == "@model"
    assert problems(given) == [
        ("hook.a", "there is no service 'model': pass model=... to attach_hooks()"),
        ("hook.b.x[0]", "there is no service 'model': pass model=... to attach_hooks()"),
        ("hook.b.x[1].y", "there is no service 'model': pass model=... to attach_hooks()"),
    ]


def test_a_service_has_to_fit_the_type_of_its_setting() -> None:
    services = {"many": 7, "model": torch.nn.Linear(1, 1), "nothing": None}
    assert build_hook({"type": "EvalHook", "interval": "@many"}, services).interval == 7
    shown = "Linear(in_features=1, out_features=1, bias=True)"
    assert problems({"type": "EvalHook", "interval": "@model"}, services) == [
        ("hook.interval", f"a whole number of at least 1 is needed, not {shown} (@model)")
    ]
    assert problems({"type": "EvalHook", "interval": "@nothing"}, services) == [
        ("hook.interval", "there is no service 'nothing': pass nothing=... to attach_hooks()")
    ]


# -- hooks together -----------------------------------------------------------------------------------------------


def together(*wanted: Any, services: Any = None, evaluators: Any = ("val",), **situation: Any) -> list[tuple[str, str]]:
    entries = [HookEntry(f"hooks[{i}]", {"type": w} if isinstance(w, str) else w) for i, w in enumerate(wanted)]
    services = {"val_loader": [], "model": torch.nn.Linear(1, 1)} if services is None else services
    _, found = build_all(entries, services, Situation(frozenset(evaluators), frozenset(services), **situation))
    return [tuple(problem) for problem in found]


class Watch(BaseHook):
    def __init__(self, metric: str, rule: str) -> None:
        self.metric, self.rule = metric, rule

    def after_epoch(self) -> None: ...

    def monitors(self) -> dict[str, str]:
        return {self.metric: self.rule}


same = BaseHook()
NOTHING_EVALUATES = "nothing evaluates"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["CheckpointHook", {"type": "CheckpointHook", "name": "second"}, "EvalHook"], []),
        (
            ["EvalHook", "EvalHook"],
            [("hooks[1]", "hooks[0] is called 'EvalHook' too: give one of them another 'name'")],
        ),
        (
            [{"type": "CheckpointHook", "name": "a"}, {"type": "LoggerHook", "name": "a"}],
            [("hooks[1]", "hooks[0] is called 'a' too: give one of them another 'name'")],
        ),
        ([same, same], [("hooks[1]", "the same object as hooks[0]: make one for each")]),
        ([BaseHook(name=3)], [("hooks[0].name", "a string or null is needed, not 3")]),
        (
            [BaseHook(priority=None)],
            [
                (
                    "hooks[0].priority",
                    "None is not a priority: give a name such as HIGH, or a whole number from 0 to 100",
                )
            ],
        ),
        ([BaseHook(on_error="wran")], [("hooks[0].on_error", "'raise', 'warn' or 'disable' is needed, not 'wran'")]),
        (
            [BaseHook(every="5 moons")],
            [("hooks[0].every", "'5 moons' does not say how often: write '50 iter', '2 epoch' or '10 min'")],
        ),
        (
            [{"type": "EarlyStoppingHook", "monitor": "accuracy", "mode": "min"}, "CheckpointHook"],
            [
                (
                    "hooks[1]",
                    "'accuracy' counts as better when higher here, but when lower in hooks[0]: use one rule in both",
                )
            ],
        ),
        (
            [Watch("a/b", "max"), {"type": Watch, "metric": "a_b", "rule": "less", "name": "w"}],
            [("hooks[1]", "'a_b' counts as better when lower here, but when higher in hooks[0]: use one rule in both")],
        ),
        ([Watch("loss", "auto"), {"type": Watch, "metric": "loss", "rule": "min", "name": "w"}], []),
        (
            [Watch("blub", "auto")],
            [("hooks[0]", "cannot tell whether a higher or lower 'blub' is better: set mode to 'max' or 'min'")],
        ),
        (
            [{"type": "EarlyStoppingHook", "monitor": "blub"}],
            [("hooks[0].mode", "cannot tell whether a higher or lower 'blub' is better: set mode to 'max' or 'min'")],
        ),
        (
            [{"type": "CheckpointHook", "max_keep_ckpts": 0}],
            [("hooks[0].max_keep_ckpts", "0 would keep nothing: give 1 or more, or -1 to keep all")],
        ),
    ],
)
def test_what_is_wrong_with_hooks_together(wanted: list[Any], expected: list[tuple[str, str]]) -> None:
    assert together(*wanted) == expected


def test_all_kinds_of_problems_are_found_in_one_pass() -> None:
    found = together(
        {"type": "CheckpointHook", "save_best": True, "name": "a"},
        {"type": "CheckpointHook", "intervall": 1, "name": "b"},
        {"type": "LoggerHook", "priority": "HIHG"},
        {"type": "EarlyStoppingHook", "monitor": "accuracy", "mode": "min"},
        "LoggerHook",
        "LoggerHook",
        evaluators=(),
    )
    assert [place for place, _ in found] == [
        "hooks[1].intervall",
        "hooks[2].priority",
        "hooks[5]",
        "hooks[0].save_best",
        "hooks[3].monitor",
        "hooks[3]",
    ]


@pytest.mark.parametrize(
    "broken",
    [{"type": "EvalHook", "intervall": 2}, {"type": "EvalHok"}, {"type": "EvalHook", "name": "a b"}],
)
def test_an_unbuilt_hook_is_not_reported_as_missing(broken: Any) -> None:
    found = together({"type": "CheckpointHook", "save_best": True}, "EarlyStoppingHook", broken, evaluators=())
    assert [place.split(".")[0] for place, _ in found] == ["hooks[2]"]


def test_a_broken_hook_that_does_not_evaluate_hides_nothing() -> None:
    found = together("EarlyStoppingHook", {"type": "CheckpointHook", "intervall": 1}, evaluators=())
    assert [place for place, _ in found] == ["hooks[1].intervall", "hooks[0].monitor"]
    found = together("EarlyStoppingHook", {"type": "ignite.handlers.TimeLimit", "limit_sek": 1}, evaluators=())
    assert [place for place, _ in found] == ["hooks[1].limit_sek", "hooks[0].monitor"]


def test_what_a_script_may_still_supply_is_no_problem() -> None:
    wanted = [{"type": "CheckpointHook", "save_best": True}, "EarlyStoppingHook", "EvalHook"]
    assert together(*wanted, evaluators=(), services={}) != []
    assert together(*wanted, evaluators=(), services={}, complete=False) == []
    scheduler = {"type": "ignite.handlers.CosineAnnealingScheduler", "optimizer": "@optimizer", "param_name": "lr"}
    scheduler |= {"start_value": 0.1, "end_value": 0.0, "cycle_size": 10}
    assert together(scheduler, services={}, complete=False) == []
    assert together(scheduler | {"cycle_siz": 3}, services={}, complete=False) == [
        ("hooks[0].cycle_siz", "not a setting of CosineAnnealingScheduler, did you mean 'cycle_size'?")
    ]


def test_priority_constants_are_accepted() -> None:
    assert build_hook({"type": "LoggerHook", "priority": Priority.HIGH}).priority == 30


PACED = ("LoggerHook", "ReportHook", "TensorBoardHook", "CheckpointHook")


@pytest.mark.parametrize("type_", PACED)
@pytest.mark.parametrize(
    ("every", "when"),
    [("3 iter", When(3)), ("2 epoch", When(2, "epoch")), ("30 s", When(30, "second"))],
)
def test_every_is_understood_by_every_hook_that_has_an_interval(type_: str, every: str, when: When) -> None:
    hook = build_hook({"type": type_, "every": every})
    assert when_of(hook) == when


@pytest.mark.parametrize("type_", ["LoggerHook", "ReportHook", "TensorBoardHook", "SWAHook"])
def test_every_beside_an_interval_is_refused(type_: str) -> None:
    with pytest.raises(ConfigError, match=r"hook\.every: says the same as 'interval': give one of them"):
        build_hook({"type": type_, "every": "2 epoch", "interval": 3})


def test_every_of_an_average_counts_epochs() -> None:
    assert build_hook({"type": "SWAHook", "every": "2 epochs"}).interval == 2
    with pytest.raises(ConfigError, match=r"hook\.every: weights are taken at the ends of epochs: write '2 epoch'"):
        build_hook({"type": "SWAHook", "every": "10 min"})


class Plain:
    interval = 1

    def __init__(self, interval: int = 3) -> None:
        self.interval = interval

    def after_train_iter(self, runner: Any) -> None: ...


class OfSettings(BaseHook):
    def after_train_iter(self, runner: Any) -> None: ...


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {"type": "LoggerHook", "interval": n},
        lambda n: {"type": Plain, "interval": n},
        lambda n: LoggerHook(interval=n),
        lambda n: LoggerHook({"interval": n}),
        lambda n: OfSettings(interval=n),
        lambda n: Plain(n),
    ],
)
def test_a_number_of_numpy_is_a_number(make: Any) -> None:
    assert when_of(build_hook(make(numpy.int64(5)))) == When(5)
