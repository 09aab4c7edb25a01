"""A configuration is read, merged and checked as a whole, before anything of the script is touched."""

from __future__ import annotations

import copy
import json
import logging
import random
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
import yaml
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, ConfigError, HookError, Priority, Runner, attach_hooks
from ignite_hooks.config.read import OURS, default_set, read_config
from ignite_hooks.hooks.checkpoint_hook import CheckpointHook
from ignite_hooks.testing import tiny_run
from ignite_hooks.text import shown
from ignite_hooks.writers.jsonl import JsonlWriter, read_jsonl
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import echo_trainer

WHERE = Path(__file__).parents[1]
DEFAULTS = ["runtime_info", "timer", "logger", "checkpoint"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def attach(cfg: Any = None, *, evaluating: bool = False, trainer: Engine | None = None, **given: Any) -> Runner:
    tiny = tiny_run()
    made, val_data, model = tiny.trainer, tiny.val_data, tiny.model
    services = {"val_loader": val_data, "model": model} if evaluating else {}
    runner = attach_hooks(trainer or made, cfg, **{**services, **given})
    runner._kept_alive = trainer or made  # type: ignore[attr-defined]
    return runner


def problems(cfg: Any, **given: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        attach(cfg, **given)
    assert all("\n" not in message for _, message in caught.value.problems)
    return [tuple(problem) for problem in caught.value.problems]


def state_of(engine: Engine) -> dict[str, Any]:
    """Everything of an engine that attaching hooks may touch."""
    return {
        "handlers": {event: list(entries) for event, entries in engine._event_handlers.items()},
        "run": vars(engine).get("run"),
        "events": list(engine._allowed_events),
        "attributes": sorted(vars(engine)),
        "state": sorted(vars(engine.state)),
    }


# -- what is wrong, where, and what would have worked -------------------------------------------------------------

NEAR = "A key of your own needs a name that looks less like it"


@pytest.mark.parametrize(
    ("cfg", "expected"),
    [
        # the outer form
        (3, [("cfg", "a path, a mapping, a list of hooks or None is needed, not 3")]),
        (b"x", [("cfg", "a path, a mapping, a list of hooks or None is needed, not b'x'")]),
        ({"EvalHook"}, [("cfg", "a path, a mapping, a list of hooks or None is needed, not {'EvalHook'}")]),
        ({"hoks": []}, [("hoks", f"did you mean 'hooks'? {NEAR}")]),
        ({"Hooks": []}, [("Hooks", f"did you mean 'hooks'? {NEAR}")]),
        ({"custom_hook": []}, [("custom_hook", f"did you mean 'custom_hooks'? {NEAR}")]),
        ({"work-dir": "a"}, [("work-dir", f"did you mean 'work_dir'? {NEAR}")]),
        ({"hooks": {}}, [("hooks", "a list of hooks is needed, not a mapping")]),
        ({"hooks": "EvalHook"}, [("hooks", "a list of hooks is needed, not the text 'EvalHook'")]),
        ({"hooks": True}, [("hooks", "a list of hooks is needed, not True")]),
        ({"hooks": [], "custom_hooks": 3}, [("custom_hooks", "a list of hooks is needed, not 3")]),
        (
            {"hooks": [], "default_hooks": {}},
            [("default_hooks", "give either 'hooks' (exactly these) or 'default_hooks', not both")],
        ),
        ({"default_hooks": []}, [("default_hooks", "a mapping of names to hooks is needed, not a list")]),
        # entries
        ([None], [("hooks[0]", "a mapping with 'type' or a hook object is needed, not null")]),
        ([["EvalHook"]], [("hooks[0]", "a mapping with 'type' or a hook object is needed, not a list")]),
        ([3], [("hooks[0]", "a mapping with 'type' or a hook object is needed, not 3")]),
        ([{}], [("hooks[0]", "needs 'type', the name of a hook")]),
        ([{"typ": "LoggerHook"}], [("hooks[0]", "needs 'type', the name of a hook: it has 'typ'")]),
        ([{"Type": "LoggerHook"}], [("hooks[0]", "needs 'type', the name of a hook: it has 'Type'")]),
        ([{"type": None}], [("hooks[0].type", "the name of a hook is needed, not null")]),
        ([{"type": ["LoggerHook"]}], [("hooks[0].type", "the name of a hook is needed, not a list")]),
        ([{"type": "LogerHook"}], [("hooks[0].type", "no hook is called 'LogerHook', did you mean 'LoggerHook'?")]),
        ([{"type": ""}], [("hooks[0].type", "no hook is called ''; 'ignite-hooks list' shows all")]),
        (
            [CheckpointHook],
            [("hooks[0]", "a class: write {'type': 'CheckpointHook'} or CheckpointHook() for a hook")],
        ),
        # settings
        (
            [{"type": "CheckpointHook", "max_keep_ckpts": 0}],
            [("hooks[0].max_keep_ckpts", "0 would keep nothing: give 1 or more, or -1 to keep all")],
        ),
        (
            [{"type": "CheckpointHook", "max_keep_ckpts": -2}],
            [("hooks[0].max_keep_ckpts", "a whole number of at least -1 is needed, not -2")],
        ),
        (
            [{"type": "CheckpointHook", "filename_tmpl": "../{}.pth"}],
            [("hooks[0].filename_tmpl", "'../{}.pth' is no file name: it may not contain / or begin with a dot")],
        ),
        (
            [{"type": "CheckpointHook", "out_dir": "../elsewhere"}],
            [("hooks[0].out_dir", "'../elsewhere' leaves the work directory")],
        ),
        (
            [{"type": "CheckpointHook", "best_metric": "blub"}],
            [
                (
                    "hooks[0].rule",
                    "cannot tell whether more or less 'blub' is better: set rule to 'greater' or 'less'",
                )
            ],
        ),
        (
            [{"type": "CheckpointHook", "rule": "bigger"}],
            [("hooks[0].rule", "'greater', 'less', 'max', 'min' or 'auto' is needed, not 'bigger'")],
        ),
        (
            [{"type": "CheckpointHook", "begin": -1, "frequency": 1.0}],
            [
                ("hooks[0].begin", "a whole number of at least 0 is needed, not -1"),
                ("hooks[0].frequency", "a whole number of at least 1 is needed, not 1.0"),
            ],
        ),
        (
            {"custom_hooks": [{"type": "LoggerHook", "name": "b", "priority": "NORMALL", "on_error": "skip"}]},
            [
                ("custom_hooks[0].priority", "'NORMALL' is not a priority, did you mean NORMAL?"),
                ("custom_hooks[0].on_error", "'raise', 'warn' or 'disable' is needed, not 'skip'"),
            ],
        ),
        # defaults
        (
            {"default_hooks": {"loger": None}},
            [("default_hooks.loger", "no default hook has this name, so it cannot be removed, did you mean 'logger'?")],
        ),
        (
            {"default_hooks": {"logr": {"interval": 3}}},
            [("default_hooks.logr", "no default hook has this name, so it needs 'type', did you mean 'logger'?")],
        ),
        (
            {"default_hooks": {"zzz": {}}},
            [
                (
                    "default_hooks.zzz",
                    "no default hook has this name, so it needs 'type'; there are runtime_info, timer, logger, "
                    "checkpoint, eval, sampler_seed, sync_buffers, param_scheduler",
                )
            ],
        ),
        (
            {"default_hooks": {"logger": "LoggerHook"}},
            [("default_hooks.logger", "a mapping with 'type' or a hook object is needed, not the text 'LoggerHook'")],
        ),
        ({"default_hooks": {3: None}}, [("default_hooks[3]", "the name of a hook is text: put it in quotes")]),
        (
            {"default_hooks": {"logger": {"intervall": 3}}},
            [("default_hooks.logger.intervall", "not a setting of LoggerHook, did you mean 'interval'?")],
        ),
        (
            {"custom_hooks": [{"type": "LambdaHook", "name": "logger"}]},
            [("custom_hooks[0]", "default_hooks.logger is called 'logger' too: give one of them another 'name'")],
        ),
        # what needs an evaluation
        (
            {"default_hooks": {"eval": {"interval": 2}}},
            [("default_hooks.eval.dataloader", "there is no service 'val_loader': give attach_hooks val_loader=...")],
        ),
        # the rest
        ({"hooks": [], "seed": -1}, [("seed", "a whole number from 0 to 4294967295 is needed, not -1")]),
        ({"hooks": [], "seed": 2**32}, [("seed", "a whole number from 0 to 4294967295 is needed, not 4294967296")]),
        ({"hooks": [], "seed": True}, [("seed", "a whole number from 0 to 4294967295 is needed, not True")]),
        *(
            (
                {"hooks": [], "rank_timeout": wrong},
                [
                    (
                        "rank_timeout",
                        f"seconds are needed, or 0 where ranks do not watch each other, not {wrong!r}",
                    )
                ],
            )
            for wrong in (-1, True, "30", float("inf"))
        ),
        ({"hooks": [], "seed": 1.0}, [("seed", "a whole number from 0 to 4294967295 is needed, not 1.0")]),
        ({"hooks": [], "resume": 3}, [("resume", "true, false, 'auto' or the path of a checkpoint is needed, not 3")]),
        (
            {"hooks": [], "resume": " "},
            [("resume", "true, false, 'auto' or the path of a checkpoint is needed, not ' '")],
        ),
        ({"hooks": [], "work_dir": 3}, [("work_dir", "the path of a folder is needed, not 3")]),
        ({"hooks": [], "work_dir": ""}, [("work_dir", "the path of a folder is needed, not ''")]),
        ({"hooks": [], "experiment_dir": "a\0"}, [("experiment_dir", "the path of a folder is needed, not 'a\\x00'")]),
        (
            {"hooks": [], "work_dir": "a", "experiment_dir": "b"},
            [("experiment_dir", "another name for 'work_dir', which says something else: give one")],
        ),
        # writers
        ({"hooks": [], "writers": 3}, [("writers[0]", "a mapping with 'type' or a writer object is needed, not 3")]),
        ({"hooks": [], "writers": [{}]}, [("writers[0]", "needs 'type', the name of a writer")]),
        ({"hooks": [], "writers": [{"type": 3}]}, [("writers[0].type", "the name of a writer is needed, not 3")]),
        (
            {"hooks": [], "writers": ["JsnlWriter"]},
            [("writers[0].type", "no writer is called 'JsnlWriter', did you mean 'JsonlWriter'?")],
        ),
        ({"hooks": [], "writers": ["JsonlWriter"]}, [("writers[0].path", "missing: JsonlWriter needs it")]),
        (
            {"hooks": [], "writers": [{"type": "JsonlWriter", "path": 3, "pth": 3}]},
            [
                ("writers[0].path", "a text or a path is needed, not 3"),
                ("writers[0].pth", "not a setting of JsonlWriter, did you mean 'path'?"),
            ],
        ),
        (
            {"hooks": [], "writers": [{"type": "MemoryWriter", "priority": 3}]},
            [
                (
                    "writers[0].priority",
                    "not a setting of MemoryWriter; it has scalars, lines, images, texts, config, artifacts, "
                    "resumed_at, closed",
                )
            ],
        ),
        (
            {"hooks": [], "writers": [object]},
            [("writers[0]", "type is not a writer: it has no write_scalar, write_image, write_config")],
        ),
        (
            {"hooks": [], "writers": ["MemoryWriter"], "writer": "MemoryWriter"},
            [("writer", "another name for 'writers': give one of them")],
        ),
    ],
)
def test_problems(cfg: Any, expected: list[tuple[str, str]]) -> None:
    assert problems(cfg) == expected


MANY = {
    "hoks": [],
    "seed": "x",
    "work_dir": 3,
    "writers": ["Nope", {"type": "JsonlWriter"}],
    "hooks": [
        {"type": "CheckpointHook", "intervall": 2, "save_last": "yes"},
        {"type": "EarlyStoppingHook", "monitor": "accuracy", "mode": "min"},
        {"type": "CheckpointHook", "name": "second", "save_best": True},
        {"type": "Nope"},
        7,
        {"type": "LoggerHook"},
        {"type": "LoggerHook"},
    ],
}


def test_every_problem_is_found_in_one_pass_and_nothing_is_touched(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator = tiny.trainer, tiny.evaluator
    before = state_of(trainer), state_of(evaluator)
    generator = torch.random.get_rng_state()
    with pytest.raises(ConfigError) as caught:
        attach_hooks(trainer, MANY, evaluators={"val": evaluator, "a b": 3}, runner=3, resume=7)  # type: ignore
    assert [problem.place for problem in caught.value.problems] == [
        "hoks",
        "hooks[4]",
        "work_dir",
        "seed",
        "resume",
        "runner",
        "evaluators['a b']",
        "evaluators['a b']",
        "writers[0].type",
        "writers[1].path",
        "hooks[0].intervall",
        "hooks[0].save_last",
        "hooks[3].type",
        "hooks[6]",
        "hooks[2]",
    ]
    assert str(caught.value).count("\n") == 15
    assert (state_of(trainer), state_of(evaluator)) == before
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert list(tmp_path.iterdir()) == []
    attach_hooks(trainer, [], evaluators=evaluator)


def test_the_file_is_named_in_front_of_its_problems(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("hooks:\n  - {type: EvalHok}\nhoks: 3\n")
    with pytest.raises(ConfigError) as caught:
        attach("bad.yaml")
    assert str(caught.value) == (
        "2 problems in bad.yaml:\n"
        f"  hoks: did you mean 'hooks'? {NEAR}\n"
        "  hooks[0].type: no hook is called 'EvalHok', did you mean 'EvalHook'?"
    )
    with pytest.raises(
        ConfigError, match=r"^missing\.yaml: no such file in .*did you mean|^missing\.yaml: no such file"
    ):
        attach("missing.yaml")


@pytest.mark.parametrize(
    "key",
    [
        "model",
        "dataset",
        "training",
        "optimizer",
        "scheduler",
        "imports",
        "max_epochs",
        "lr",
        "logger",
        "data",
        3,
        None,
        "",
    ],
)
def test_the_keys_of_a_script_are_left_alone(key: Any) -> None:
    runner = attach({"hooks": ["LambdaHook"], key: {"type": "cnn", "hoks": 3}})
    assert list(runner.hooks) == ["LambdaHook"]
    assert runner.get_service("config")[key] == {"type": "cnn", "hoks": 3}


@pytest.mark.parametrize("key", OURS)
def test_a_slip_in_a_key_of_ours_is_an_error(key: str) -> None:
    for slip in (key[:-1], key + "x", key.upper(), key[0] + key[2:]):
        if slip not in OURS:
            [(place, message)] = problems({slip: []})
            assert place == slip
            assert message.startswith("did you mean '")


# -- merging ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "evaluating", "names"),
    [
        (None, False, DEFAULTS),
        (None, True, [*DEFAULTS, "eval"]),
        ({}, False, DEFAULTS),
        ({"default_hooks": None}, True, [*DEFAULTS, "eval"]),
        ({"default_hooks": {}}, False, DEFAULTS),
        ({"default_hooks": {"timer": None, "eval": None}}, True, ["runtime_info", "logger", "checkpoint"]),
        ({"default_hooks": {"eval": None}}, False, DEFAULTS),
        ({"default_hooks": {"sync_buffers": None}}, False, DEFAULTS),
        ({"default_hooks": {"logger": {"interval": 3}}}, False, DEFAULTS),
        ({"default_hooks": {"stop": {"type": "EarlyStoppingHook"}}}, True, [*DEFAULTS, "eval", "stop"]),
        ({"default_hooks": {"logger": {"type": "LambdaHook"}}}, False, DEFAULTS),
        ({"default_hooks": {"logger": {"name": "log"}}}, False, ["runtime_info", "timer", "log", "checkpoint"]),
        ({"custom_hooks": ["LambdaHook"]}, False, [*DEFAULTS, "LambdaHook"]),
        ({"hooks": ["LambdaHook"], "custom_hooks": ["LoggerHook"]}, False, ["LambdaHook", "LoggerHook"]),
        ({"hooks": None}, False, []),
        ({"hooks": []}, True, []),
        ([], True, []),
        ((), True, []),
        ([BaseHook(name="mine"), "LambdaHook"], False, ["mine", "LambdaHook"]),
        ({"hooks": [], "custom_hooks": None}, False, []),
    ],
)
def test_which_hooks_a_configuration_means(cfg: Any, evaluating: bool, names: list[str]) -> None:
    assert list(attach(cfg, evaluating=evaluating).hooks) == names


def test_a_default_hook_is_merged_by_name() -> None:
    mine = BaseHook(priority=3)
    runner = attach({"default_hooks": {"logger": {"interval": 3, "priority": "LOW"}, "timer": mine}})
    assert (runner.hooks["logger"].interval, runner.hooks["logger"].priority) == (3, "LOW")
    assert runner.hooks["timer"] is mine


def test_the_default_set_is_made_anew_each_time() -> None:
    default_set()["logger"]["interval"] = 3
    assert default_set()["logger"] == {"type": "LoggerHook"}
    defaults = default_set()
    read_config({"default_hooks": {"logger": {"interval": 3}, "timer": None}}, defaults=defaults)
    assert defaults == default_set()


SEED_ONE = """
experiment_dir: experiments/my_experiment
model: {type: cnn}
dataset: {type: cifar10}
training: {epochs: 50}
hooks:
  - type: CheckpointHook
    interval: 2
    max_keep_ckpts: 3
    rule: greater
  - {type: LoggerHook, interval: 50}
  - type: IterTimerHook
    name: timer
    interval: 50
seed: 3
"""


def test_all_file_formats_mean_the_same(tmp_path: Path) -> None:
    content = yaml.safe_load(SEED_ONE)
    (tmp_path / "a.yaml").write_text(SEED_ONE)
    (tmp_path / "a.yml").write_text(SEED_ONE)
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "a.py").write_text("\n".join(f"{key} = {value!r}" for key, value in content.items()))
    (tmp_path / "a.toml").write_text(
        'experiment_dir = "experiments/my_experiment"\nseed = 3\n[model]\ntype = "cnn"\n[dataset]\ntype = "cifar10"\n'
        "[training]\nepochs = 50\n"
        '[[hooks]]\ntype = "CheckpointHook"\ninterval = 2\nmax_keep_ckpts = 3\nrule = "greater"\n'
        '[[hooks]]\ntype = "LoggerHook"\ninterval = 50\n'
        '[[hooks]]\ntype = "IterTimerHook"\nname = "timer"\ninterval = 50\n'
    )
    frozen = MappingProxyType(OrderedDict(content, hooks=tuple(MappingProxyType(hook) for hook in content["hooks"])))
    runners = [attach(cfg) for cfg in ("a.yaml", Path("a.yml"), "a.json", "a.py", "a.toml", content, frozen)]
    assert {runner.plan.digest for runner in runners} == {runners[0].plan.digest}
    assert {runner.work_dir for runner in runners} == {tmp_path / "experiments/my_experiment"}
    assert all(runner.get_service("config") == content for runner in runners)
    assert runners[0].hooks["CheckpointHook"].max_keep_ckpts == 3


def test_a_list_is_hooks_in_any_format(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- LambdaHook\n- {type: LoggerHook, interval: 3}\n")
    assert list(attach("a.yaml").hooks) == ["LambdaHook", "LoggerHook"]


def test_the_configurations_of_the_package_are_accepted() -> None:
    for path in sorted((WHERE.parent / "configs").glob("*.yaml")):
        attach(
            path,
            evaluating=True,
            work_dir="out",
            criterion=torch.nn.CrossEntropyLoss(),
            weak_augmentation=print,
            show_progress=print,
        )


# -- the caller's objects -----------------------------------------------------------------------------------------


def deep(value: Any) -> Any:
    """A comparable copy: containers by content, hooks by class and attributes, other objects by identity."""
    if isinstance(value, dict):
        return {key: deep(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value), *map(deep, value)]
    if isinstance(value, BaseHook):
        return type(value), id(value), deep({k: v for k, v in vars(value).items() if k != "_runner"})
    return value if isinstance(value, (int, float, str, type(None))) else id(value)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_objects_of_the_caller_are_not_changed(wrong: bool) -> None:
    hooks = [CheckpointHook(interval=3, name="a"), BaseHook(name="b", priority={"after_epoch": 3})]
    loader = tiny_run().val_data
    cfg = {
        "default_hooks": {"logger": {"interval": 3}, "timer": None, "checkpoint": hooks[0]},
        "custom_hooks": [
            hooks[1],
            {"type": "EvalHook", "name": "b2", "dataloader": loader, "metrics": {"a": {"type": "Accuracy"}}},
        ],
        "model": {"layers": [1, 2]},
        "writers": [MemoryWriter(), {"type": "JsonlWriter", "path": "x.jsonl"}],
        "seed": "x" if wrong else 3,
        "work_dir": "out",
    }
    before = deep(cfg)
    if wrong:
        problems(cfg, evaluating=True)
        assert not any("_runner" in vars(hook) for hook in hooks)
    else:
        runner = attach(cfg, evaluating=True)
        runner.get_service("config")["model"]["layers"].append(3)
        runner.detach()
    assert deep(cfg) == before


def test_hook_objects_have_their_name_and_priority_as_attributes_or_keywords() -> None:
    class Plain:
        name = "plain"
        priority = "HIGH"

        def after_epoch(self) -> None: ...

    class Own(BaseHook):
        priority = Priority.LOW

        def __init__(self) -> None:
            self.name = "own"

        def after_epoch(self) -> None: ...

    runner = attach([Plain(), Own(), CheckpointHook(name="c", priority="VERY_HIGH")])
    assert {slot.hook: slot.priority for slot in runner.plan} == {"plain": 30, "own": 70, "c": 10}


# -- attach_hooks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", [None, 3, "a.yaml", Engine, lambda: None])
def test_only_an_engine_can_have_hooks(trainer: Any) -> None:
    with pytest.raises(TypeError, match="attach_hooks needs an Ignite Engine to attach to, not "):
        attach_hooks(trainer, [])


@pytest.mark.parametrize("evaluators", [3, "val", [echo_trainer()], True])
def test_evaluators_are_an_engine_or_a_mapping(evaluators: Any) -> None:
    with pytest.raises(TypeError, match="evaluators is an Ignite Engine or a mapping of names to these, not "):
        attach([], evaluators=evaluators)


def test_what_is_wrong_with_evaluators() -> None:
    trainer, other = echo_trainer(), echo_trainer()
    assert problems([], trainer=trainer, evaluators=trainer) == [
        ("evaluators.val", "is the trainer: an evaluator is an engine of its own")
    ]
    assert problems([], evaluators={"a": other, "b": other, "c": 3, 4: echo_trainer(), "d e": echo_trainer()}) == [
        ("evaluators.a", "is the engine of another name too: give each its own"),
        ("evaluators.b", "is the engine of another name too: give each its own"),
        ("evaluators.c", "an Ignite Engine is needed, not int"),
        ("evaluators[4]", "a name of letters, digits and _ is needed, not 4"),
        ("evaluators['d e']", "a name of letters, digits and _ is needed, not 'd e'"),
    ]
    assert list(attach([], evaluators={}).evaluators) == []
    assert list(attach([], evaluators=other).evaluators) == ["val"]


@pytest.mark.parametrize("name", ["runner", "experiment_dir", "checkpoints_dir", "logs_dir", "visualization_dir"])
def test_a_service_of_ours_cannot_be_given(name: str) -> None:
    assert problems([], **{name: 3}) == [(name, "is a service of every run and cannot be given")]


def test_any_other_service_can_be_given() -> None:
    runner = attach([], mlflow="m", config={"mine": 1}, model=None)
    assert runner.get_service("mlflow") == "m"
    assert runner.get_service("config") == {"mine": 1}


def test_attaching_twice_is_refused_and_leaves_the_first_as_it_was() -> None:
    tiny = tiny_run()
    trainer, evaluator, data = tiny.trainer, tiny.evaluator, tiny.data
    runner = attach_hooks(trainer, ["LambdaHook"], evaluators=evaluator)
    before = state_of(trainer), state_of(evaluator)
    with pytest.raises(ConfigError, match=r"the trainer already has hooks attached: call runner.detach\(\) first, or"):
        attach_hooks(trainer, ["LoggerHook"])
    assert (state_of(trainer), state_of(evaluator)) == before
    other = echo_trainer()
    untouched = state_of(other)
    with pytest.raises(ConfigError, match="the evaluator 'val' already has hooks attached"):
        attach_hooks(other, [], evaluators=evaluator)
    assert state_of(other) == untouched
    assert state_of(evaluator) == before[1]
    trainer.run(data, max_epochs=1)
    runner.detach()
    attach_hooks(trainer, [], evaluators=evaluator)


def test_a_failure_while_attaching_leaves_everything_as_it_was(tmp_path: Path) -> None:
    class Adds(BaseHook):
        def attached(self) -> None:
            self.runner.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: None)

    class Fails(BaseHook):
        def attached(self) -> None:
            raise RuntimeError("no")

    tiny = tiny_run()
    trainer, evaluator, data = tiny.trainer, tiny.evaluator, tiny.data
    before = state_of(trainer), state_of(evaluator)
    with pytest.raises(RuntimeError, match="no"):
        attach_hooks(trainer, [Adds(), Fails()], evaluators=evaluator)
    assert (state_of(trainer), state_of(evaluator)) == before
    assert list(tmp_path.iterdir()) == []
    runner = attach_hooks(trainer, ["LambdaHook"], evaluators=evaluator)
    trainer.run(data, max_epochs=1)
    runner.detach()
    assert {event for event, entries in trainer._event_handlers.items() if entries} == before[0]["handlers"].keys()


def test_the_seed_of_the_configuration_is_set() -> None:
    attach({"hooks": [], "seed": 7})
    first = torch.rand(3)
    attach({"hooks": [], "seed": 7})
    assert torch.equal(torch.rand(3), first)
    attach({"hooks": [], "seed": 8})
    assert not torch.equal(torch.rand(3), first)


# -- where files go -----------------------------------------------------------------------------------------------


def folder(cfg: Any = (), **given: Any) -> str:
    return attach(cfg, **given).work_dir.relative_to(Path.cwd()).as_posix()


def test_the_work_directory_is_numbered(tmp_path: Path) -> None:
    assert folder() == "work_dirs/run"
    (tmp_path / "work_dirs" / "run").mkdir(parents=True)
    assert folder() == "work_dirs/run-2"
    (tmp_path / "work_dirs" / "run-2").mkdir()
    (tmp_path / "work_dirs" / "run-9").mkdir()
    for other in ("run-x", "run-", "run-03", "run-\u00b2", "running-20", "run-1.5"):
        (tmp_path / "work_dirs" / other).mkdir()
    assert folder() == "work_dirs/run-10"
    assert folder(resume=True) == folder(resume="auto") == folder({"hooks": [], "resume": "auto"}) == "work_dirs/run-9"
    assert folder({"hooks": [], "resume": True}, resume=False) == "work_dirs/run-10"


@pytest.mark.parametrize("name", ["mine.yaml", "v[1]*.yaml", "a.b.yaml"])
def test_the_work_directory_has_the_name_of_the_file(tmp_path: Path, name: str) -> None:
    stem = name.removesuffix(".yaml")
    (tmp_path / name).write_text("hooks: []")
    assert folder(name) == folder(name, resume=True) == f"work_dirs/{stem}"
    (tmp_path / "work_dirs" / stem).mkdir(parents=True)
    (tmp_path / "work_dirs" / f"{stem}-2").mkdir()
    assert folder(name) == f"work_dirs/{stem}-3"
    assert folder(tmp_path / name, resume=True) == f"work_dirs/{stem}-2"


def test_the_argument_goes_before_the_configuration() -> None:
    assert folder({"hooks": [], "work_dir": "a"}) == "a"
    assert folder({"hooks": [], "experiment_dir": "b"}) == "b"
    assert folder({"hooks": [], "work_dir": Path("b"), "experiment_dir": "b"}) == "b"
    assert folder({"hooks": [], "work_dir": "a"}, work_dir="c") == folder(work_dir=Path("c")) == "c"


def test_attaching_makes_no_folder(tmp_path: Path) -> None:
    attach(None, evaluating=True)
    attach({"hooks": ["CheckpointHook"], "writers": [{"type": "JsonlWriter", "path": "x.jsonl"}]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", [3, "", " ", ["auto"]])
def test_the_argument_resume_is_checked_too(resume: Any) -> None:
    [(place, message)] = problems([], resume=resume)
    assert (place, message) == (
        "resume",
        f"true, false, 'auto' or the path of a checkpoint is needed, not {resume!r}",
    )


# -- writers ------------------------------------------------------------------------------------------------------


class Other:
    """A writer of another family."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.seen.append((name, value, step))

    def write_image(self, name: str, image: Any, step: int) -> None: ...

    def write_config(self, config: Any) -> None: ...


def test_writers_by_name_by_mapping_and_as_objects(tmp_path: Path) -> None:
    memory, other = MemoryWriter(), Other()
    cfg = {"hooks": [], "writers": ["MemoryWriter", {"type": "JsonlWriter", "path": "sub/x.jsonl"}, memory, other]}
    runner = attach(cfg, work_dir="out")
    runner.writer.write_scalar("loss", 0.5, 3)
    runner.close_outputs()
    assert memory.scalars == other.seen == [("loss", 0.5, 3)]
    assert isinstance(runner.writer.writers[1], MemoryWriter)
    # Relative paths are relative to the work directory.
    assert [row["scalars"] for row in read_jsonl(tmp_path / "out/sub/x.jsonl")] == [{"loss": 0.5}]
    assert [row["scalars"] for row in read_jsonl(tmp_path / "out/metrics.jsonl")] == [{"loss": 0.5}]


@pytest.mark.parametrize("path", ["metrics.jsonl", "./sub/../metrics.jsonl"])
def test_the_file_that_is_always_written_is_not_written_twice(path: str, tmp_path: Path) -> None:
    runner = attach({"hooks": [], "writers": [{"type": "JsonlWriter", "path": path}]}, work_dir="out")
    runner.writer.write_scalar("loss", 0.5, 3)
    runner.close_outputs()
    assert [row["scalars"] for row in read_jsonl(tmp_path / "out/metrics.jsonl")] == [{"loss": 0.5}]


def test_one_writer_needs_no_list() -> None:
    for cfg in ({"writers": "MemoryWriter"}, {"writer": {"type": "MemoryWriter"}}, {"writer": MemoryWriter()}):
        runner = attach({"hooks": [], **cfg})
        assert [type(writer) for writer in runner.writer.writers] == [JsonlWriter, MemoryWriter]


def test_an_absolute_path_of_a_writer_stays(tmp_path: Path) -> None:
    wanted = tmp_path / "elsewhere" / "x.jsonl"
    runner = attach({"hooks": [], "writers": [{"type": "JsonlWriter", "path": str(wanted)}]}, work_dir="out")
    assert runner.writer.writers[1].path == wanted


# -- mutated configurations ---------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    # kind: values that fit, values that do not
    "positive": ([1, 2, 7, 10**6, 10**90], [0, -1, True, 1.0, "1", None, NAN, INF, [], {}, [1], 10**5000]),
    "natural": ([0, 1, 5, 10**6], [-1, False, 0.0, "0", None, NAN, [], {}]),
    "kept": ([-1, 1, 3], [0, -2, True, "3", None, 2.5, INF, []]),
    "flag": ([True, False], [0, 1, "true", "yes", None, [], {}, 1.0]),
    "amount": ([0, 0.0, 0.1, 3, 1e300], [-0.1, -1, True, "0.1", None, NAN, INF, []]),
    "number?": ([None, -1, 0.5, 1e300], [True, "0.5", NAN, INF, -INF, [], {}]),
    "text?": ([None, "sub", "a/b"], [3, True, ["a"], {}, NAN, "../up"]),
    "rule": (["greater", "max", "auto"], ["grater", "", "MAX", None, True, 1, []]),
    "mode": (["min", "auto", "less"], ["mni", "", None, True, 1, []]),
    "template": (
        ["e{}.pth", "m_{:04d}.pt"],
        ["e.pth", "../{}.pth", "{}{}", "{x}", "{0.__class__}", "", 3, None, [], "/a{}"],
    ),
    "seconds": ([1, 3600], [0, -1, True, 1.5, "60", NAN, []]),
    "mapping?": ([None], [3, "Accuracy", ["Accuracy"], True, {"a": "Acuracy"}, {"a": 3}]),
    "function?": ([None], [3, "f", [], {}, True]),
}
HOOK_KINDS = {
    "CheckpointHook": {
        "interval": "positive",
        "by_epoch": "flag",
        "start": "natural",
        "save_optimizer": "flag",
        "save_scheduler": "flag",
        "max_keep_ckpts": "kept",
        "save_last": "flag",
        "rule": "rule",
        "out_dir": "text?",
        "filename_tmpl": "template",
    },
    "EvalHook": {
        "interval": "positive",
        "by_epoch": "flag",
        "start": "natural",
        "save_best": "flag",
        "rule": "rule",
        "efficient_test": "flag",
        "metrics": "mapping?",
        "test_fn": "function?",
    },
    "EarlyStoppingHook": {
        "patience": "positive",
        "min_delta": "amount",
        "mode": "mode",
        "baseline": "number?",
        "restore_best_weights": "flag",
        "check_finite": "flag",
        "stopping_threshold": "number?",
        "divergence_threshold": "number?",
    },
    "LoggerHook": {"interval": "positive", "by_epoch": "flag", "log_metric_by_epoch": "flag", "ignore_last": "flag"},
    "IterTimerHook": {"interval": "positive", "log_eta": "flag"},
    "RuntimeInfoHook": {},
    "ignite.handlers.TimeLimit": {"limit_sec": "seconds"},
}
COMMON_KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    "priority": (
        ["HIGH", "very_low", 0, 100, 35, {"after_epoch": 3}, {"before_run": "LOW"}],
        [
            "HIHG",
            "",
            "50",
            101,
            -1,
            True,
            1.5,
            None,
            NAN,
            [50],
            {"after_epch": 3},
            {"after_epoch": "LWO"},
            {3: 3},
            10**5000,
        ],
    ),
    "on_error": (["raise", "warn", "disable"], ["wran", "", None, True, 3, ["raise"]]),
    "name": (["mine", "Mine_2"], ["", 3, True, ["a"], {}]),
}
EVERY_BAD = ["", "5", "0 iter", "-1 epoch", "1.5 epoch", "5 moons", "iter 5", 5, True, ["5 iter"], "nan s", "inf min"]
EVALUATING = [
    {
        "hooks": [
            {
                "type": "CheckpointHook",
                "interval": 1,
                "max_keep_ckpts": 3,
                "save_best": True,
                "best_metric": "accuracy",
            },
            {"type": "LoggerHook", "interval": 50},
            {"type": "EvalHook", "interval": 1, "save_best": True, "metric": "accuracy", "rule": "greater"},
            {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 10, "mode": "min"},
            {"type": "IterTimerHook", "interval": 50},
        ]
    },
    {"default_hooks": {"logger": {"interval": 1}, "checkpoint": {"max_keep_ckpts": 1}, "eval": {"interval": 1}}},
    [{"type": "EvalHook"}, {"type": "EarlyStoppingHook", "patience": 1, "min_delta": 0.1}],
]
PLAIN = [
    {
        "experiment_dir": "experiments/my_experiment",
        "model": {"type": "cnn"},
        "training": {"epochs": 50},
        "hooks": [
            {"type": "CheckpointHook", "interval": 1},
            {"type": "LoggerHook"},
            {"type": "ignite.handlers.TimeLimit", "limit_sec": 3600},
        ],
    },
    {"custom_hooks": [{"type": "ignite.handlers.TimeLimit", "limit_sec": 60, "name": "limit"}], "seed": 3},
    {"default_hooks": {"timer": None, "logger": {"interval": 1, "priority": "LOW"}}, "writers": ["MemoryWriter"]},
    [{"type": "CheckpointHook", "interval": 1, "by_epoch": False}, {"type": "IterTimerHook", "interval": 1}],
]
RUBBISH = [None, NAN, INF, -INF, 10**40, -(10**40), 10**5000, -1, 0, 1, 1.5, "", "x", "@model", "@", "\n\n", [], {}]
RUBBISH += [True, [[[]]], {"type": "x"}, {"a": {"b": [{}]}}, "é" * 1000, {1: 2}, {None: None}, [None], b"x", object()]

Mutation = Callable[[random.Random, Any], Any]


def entries_of(cfg: Any) -> list[dict[str, Any]]:
    """The entries of a configuration that say which hook they are."""
    listed = cfg if isinstance(cfg, list) else [*cfg.get("hooks", []), *cfg.get("custom_hooks", [])]
    names = default_set(evaluates=True)
    defaults = {} if isinstance(cfg, list) else cfg.get("default_hooks") or {}
    return [e for e in listed if isinstance(e, dict)] + [e for n, e in defaults.items() if e is not None and n in names]


def type_of(cfg: Any, entry: dict[str, Any]) -> str:
    if "type" in entry:
        return str(entry["type"])
    return next(default_set(evaluates=True)[n]["type"] for n, e in cfg["default_hooks"].items() if e is entry)


def an_entry(r: random.Random, cfg: Any, *, listed: bool = False) -> dict[str, Any]:
    found = [entry for entry in entries_of(cfg) if "type" in entry or not listed]
    if not found:
        return {}
    return r.choice(found)


def reordered(r: random.Random, cfg: Any) -> Any:
    """Harmless: other orders of keys and of entries."""
    if isinstance(cfg, list):
        return r.sample(cfg, len(cfg))
    keys = r.sample(list(cfg), len(cfg))
    return {key: r.sample(cfg[key], len(cfg[key])) if key == "hooks" else cfg[key] for key in keys}


def with_a_key_of_the_script(r: random.Random, cfg: Any) -> Any:
    """Harmless."""
    cfg = {"hooks": cfg} if isinstance(cfg, list) else cfg
    key = r.choice(["lr", "optimizer", "dataset", "batch_size", "note", "logging", "device", "amp", "epochs", "loader"])
    return {**cfg, key: copy.deepcopy(r.choice(RUBBISH))}


def within_range(r: random.Random, cfg: Any) -> Any:
    """Harmless: a setting, or one of every hook, with a value that fits."""
    entry = an_entry(r, cfg)
    kinds = HOOK_KINDS.get(type_of(cfg, entry) if entry else "", {})
    if kinds and r.random() < 0.7:
        setting = r.choice(list(kinds))
        if not (setting == "by_epoch" and "filename_tmpl" in entry):
            entry[setting] = copy.deepcopy(r.choice(KINDS[kinds[setting]][0]))
    elif entry:
        word = r.choice(["priority", "on_error"])
        entry[word] = copy.deepcopy(r.choice(COMMON_KINDS[word][0]))
    return cfg


def without_an_entry(r: random.Random, cfg: Any) -> Any:
    """Harmless: an evaluator is there in any case."""
    listed = cfg if isinstance(cfg, list) else cfg.get("hooks", [])
    if listed:
        listed.pop(r.randrange(len(listed)))
    return cfg


def with_a_hook_object(r: random.Random, cfg: Any) -> Any:
    """Harmless."""
    hook = BaseHook(name=f"object_{r.random()}", priority=r.randrange(101))
    if isinstance(cfg, list):
        return [*cfg, hook]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), hook]}


def misspelt(r: random.Random, word: str) -> str:
    at = r.randrange(1, len(word))
    return r.choice([word[:at] + word[at + 1 :], word[:at] + word[at - 1] + word[at:], word[:at] + "x" + word[at:]])


def _wrong_entry(mutate: Callable[[random.Random, dict[str, Any], dict[str, str]], bool]) -> Mutation:
    def mutated(r: random.Random, cfg: Any) -> Any:
        entry = an_entry(r, cfg)
        if not entry:
            cfg = [{"type": "LoggerHook"}]
            entry = cfg[0]
        kinds = HOOK_KINDS[type_of(cfg, entry)]
        return cfg if mutate(r, entry, kinds) else misspelt_type(r, [{"type": "LoggerHook"}])

    return mutated


def _misspelt_key(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    known = {*kinds, *COMMON_KINDS, "every", "frequency", "begin", "start", "by_epoch", "interval", "clock", "metric"}
    slips = [s for word in (*kinds, "priority", "on_error") if (s := misspelt(r, word)) not in known]
    if slips:
        entry[r.choice(slips)] = r.choice([1, "a", True])
    return bool(slips)


def _wrong_value(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    if not kinds:
        return False
    setting = r.choice(list(kinds))
    entry[setting] = copy.deepcopy(r.choice(KINDS[kinds[setting]][1]))
    return True


def _wrong_common(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    word = r.choice(list(COMMON_KINDS))
    entry[word] = copy.deepcopy(r.choice(COMMON_KINDS[word][1]))
    return True


def _wrong_every(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    entry.pop("interval", None)
    entry["every"] = r.choice(EVERY_BAD)
    return True


def _wrong_key(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    entry[r.choice([3, None, 1.5, True, ("a",)])] = 1
    return True


def _twice_the_same(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    if "interval" not in kinds:
        return False
    entry.pop("every", None)
    entry["interval"] = 1
    entry[r.choice(["frequency", "every"])] = 1
    return True


def misspelt_type(r: random.Random, cfg: Any) -> Any:
    wanted = r.choice(["LoggerHook", "CheckpointHook", "ignite.handlers.TimeLimit"])
    bad = [misspelt(r, wanted), "os.system", "ignite.handlers.os", "ignite.engine.Engine", "", None, 3, [], {}, NAN]
    entry = {"type": r.choice(bad), "name": "unheard_of"}
    if r.random() < 0.2:
        del entry["type"]
    if isinstance(cfg, list):
        return [*cfg, entry]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), entry]}


def rubbish_as_entry(r: random.Random, cfg: Any) -> Any:
    bad = r.choice(
        [None, 3, 1.5, True, "Nope", [], ["LoggerHook"], {}, {"a": 1}, NAN, {None: 1}, object(), {"type": {}}]
    )
    if isinstance(cfg, list):
        return [*cfg, bad]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), bad]}


def the_same_name_twice(r: random.Random, cfg: Any) -> Any:
    new = [{"type": "LambdaHook", "name": "twin"}, {"type": "RuntimeInfoHook", "name": "twin"}]
    if isinstance(cfg, list):
        return [*cfg, *new]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), *new]}


def wrong_top_level(r: random.Random, cfg: Any) -> Any:
    cfg = {"hooks": cfg} if isinstance(cfg, list) else dict(cfg)
    wrong = {
        "seed": [-1, 2**32, 1.5, "3", True, [], NAN, 10**5000],
        "resume": [3, "", [], {}, 1.5, NAN],
        "work_dir": [3, "", " ", [], {}, True, "a\0b"],
        "writers": [
            3,
            "Nope",
            [None],
            [3],
            [{}],
            [{"type": "JsonlWriter"}],
            [{"type": "MemoryWriter", "x": 1}],
            [object()],
        ],
        "custom_hooks": [3, "LoggerHook", {}, True, 1.5],
        "hoks": [[]],
        "default_hook": [{}],
        "custom_hook": [[]],
        "wrters": [[]],
        "sede": [3],
        "resum": [True],
        "wrk_dir": ["a"],
    }
    if "hooks" in cfg:
        wrong |= {"hooks": [3, "LoggerHook", {}, True], "default_hooks": [{}, None, [], 3]}
    else:
        wrong |= {
            "default_hooks": [3, [], "logger", {"logger": 3}, {"loger": None}, {"zzz": {}}, {3: None}],
            "hooks": [[]],
        }
        if "default_hooks" not in cfg:
            del wrong["hooks"]
    key = r.choice(list(wrong))
    cfg[key] = copy.deepcopy(r.choice(wrong[key]))
    return cfg


def rubbish_anywhere(r: random.Random, cfg: Any) -> Any:
    """May be right or wrong, but is never a traceback."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if key not in ("work_dir", "experiment_dir", "resume", "out_dir"):
                places.append((node, key))
                if isinstance(value, (dict, list)):
                    walk(value)

    walk(cfg)
    if places:
        node, key = r.choice(places)
        if r.random() < 0.2:
            del node[key]
        else:
            node[key] = copy.deepcopy(r.choice(RUBBISH))
    return cfg


HARMLESS: list[Mutation] = [reordered, with_a_key_of_the_script, within_range, without_an_entry, with_a_hook_object]
REFUSED: list[Mutation] = [
    _wrong_entry(_misspelt_key),
    _wrong_entry(_wrong_value),
    _wrong_entry(_wrong_value),
    _wrong_entry(_wrong_common),
    _wrong_entry(_wrong_every),
    _wrong_entry(_wrong_key),
    _wrong_entry(_twice_the_same),
    misspelt_type,
    rubbish_as_entry,
    the_same_name_twice,
    wrong_top_level,
]


def mutated(r: random.Random, base: Any) -> tuple[Any, str]:
    """A configuration made from a valid one, and what must become of it."""
    cfg = copy.deepcopy(base)
    for _ in range(r.randrange(3)):
        cfg = r.choice(HARMLESS)(r, cfg)
    verdict = r.choice(["accepted", "refused", "refused", "either"])
    if verdict == "refused":
        cfg = r.choice(REFUSED)(r, cfg)
    for _ in range(r.randrange(1, 4) if verdict == "either" else 0):
        cfg = rubbish_anywhere(r, cfg)
    return cfg, verdict


MODEL = torch.nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


def measure(engine: Engine, batch: Any) -> None:
    engine.state.metrics |= {"accuracy": 0.5, "loss": 0.7}


def outcome(cfg: Any, evaluating: bool, folder: Path, run: bool = True) -> str:
    """What becomes of a configuration; an error that should not be is raised."""
    trainer = Engine(lambda engine, batch: 0.5)
    services: dict[str, Any] = {"model": MODEL, "optimizer": OPTIMIZER}
    if evaluating:
        services |= {
            "val_loader": [0, 1],
            "criterion": torch.nn.functional.cross_entropy,
            "evaluators": Engine(measure),
        }
    before, given = state_of(trainer), deep(cfg)
    try:
        runner = attach_hooks(trainer, cfg, work_dir=folder, **services)
    except ConfigError as error:
        assert state_of(trainer) == before
        assert deep(cfg) == given
        for problem in error.problems:
            assert problem.place
            assert len(str(problem)) < 400, problem
            assert "\n" not in str(problem), problem
        return "refused"
    assert str(runner.plan)
    if run:
        try:
            trainer.run([0, 1], max_epochs=1)
        except (HookError, ConfigError):
            pass
    runner.detach()
    return "accepted"


def fuzz(seed: int, count: int, folder: Path) -> dict[str, int]:
    """Mutate ``count`` configurations; gives how many were accepted and refused."""
    r = random.Random(seed)
    recipes = [yaml.safe_load(path.read_text()) for path in sorted((WHERE.parent / "configs").glob("*.yaml"))]
    counts = {"accepted": 0, "refused": 0}
    for number in range(count):
        evaluating = r.random() < 0.5
        cfg, verdict = mutated(r, r.choice([*EVALUATING, *PLAIN] if evaluating else PLAIN))
        if r.random() < 0.05:
            cfg, verdict, evaluating = rubbish_anywhere(r, copy.deepcopy(r.choice(recipes))), "either", True
        try:
            found = outcome(cfg, evaluating, folder / str(number), run=verdict == "either" or number % 4 == 0)
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {number}, evaluating {evaluating}: {shown(cfg, 2000)}") from error
        counts[found] += 1
        assert verdict in (found, "either"), f"seed {seed}, case {number}: {found}, not {verdict}: {shown(cfg, 2000)}"
    return counts


def test_mutated_configurations_are_refused_with_a_config_error_or_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = 20260718
    monkeypatch.setattr("os.fsync", lambda file: None)  # thousands of checkpoints, none of which has to last
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    counts = fuzz(seed, 3000, tmp_path)
    print(f"seed {seed}: {counts}")
    assert counts["accepted"] > 700
    assert counts["refused"] > 1400
