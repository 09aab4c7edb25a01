"""A configuration is read, merged and checked as a whole, before anything of the script is touched."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from ignite.engine import Engine

from ignite_hooks import BaseHook, ConfigError, Priority, attach_hooks
from ignite_hooks.config.keys import OURS
from ignite_hooks.config.read import checked_folder, default_set, read_config
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.checkpoint_hook import CheckpointHook
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.memory import MemoryWriter
from tests.config.tools import CONFIGS, attach, deep, problems, state_of

DEFAULTS = ["runtime_info", "timer", "logger", "checkpoint"]
NO_LOADER = "there is no service 'val_loader': pass val_loader=... to attach_hooks()"

pytestmark = pytest.mark.usefixtures("_elsewhere")


# -- what is wrong, where, and what would have worked -------------------------------------------------------------

KEYS_ARE_TEXT = "the keys of a configuration are text; hooks are listed as 'hooks: [...]'"
NEAR = "If not, rename it: it is too close to that key"


@pytest.mark.parametrize(
    ("cfg", "expected"),
    [
        # the outer form
        (3, [("cfg", "a path, a mapping, a list of hooks or None is needed, not 3")]),
        (b"x", [("cfg", "a path, a mapping, a list of hooks or None is needed, not b'x'")]),
        ({"EvalHook"}, [("cfg", "a path, a mapping, a list of hooks or None is needed, not {'EvalHook'}")]),
        ({1: [CheckpointHook()]}, [("[1]", KEYS_ARE_TEXT)]),
        ({None: [], "hooks": []}, [("[None]", KEYS_ARE_TEXT)]),
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
        (
            [{"_target_": "ignite_hooks.LoggerHook", "interval": 3}],
            [
                (
                    "hooks[0]",
                    "needs 'type', the name of a hook; '_target_' is for Hydra: write type: LoggerHook, or pass "
                    "hydra.utils.instantiate(cfg.hooks)",
                )
            ],
        ),
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
                    "cannot tell whether a higher or lower 'blub' is better: set rule to 'greater' or 'less'",
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
                    "checkpoint, eval, notebook, sampler_seed, sync_buffers, param_scheduler",
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
            [("default_hooks.eval.dataloader", NO_LOADER)],
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
        (
            {"hooks": [], "resume_settings": "file"},
            [("resume_settings", "'config', 'checkpoint' or 'refuse' is needed, not 'file'")],
        ),
        (
            {"hooks": [], "resume": 3},
            [("resume", "true, false, 'auto', 'required' or the path of a checkpoint is needed, not 3")],
        ),
        (
            {"hooks": [], "resume": " "},
            [("resume", "true, false, 'auto', 'required' or the path of a checkpoint is needed, not ' '")],
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
                ("writers[0].path", "a string or a path is needed, not 3"),
                ("writers[0].pth", "not a setting of JsonlWriter, did you mean 'path'?"),
            ],
        ),
        (
            {"hooks": [], "writers": [{"type": "MemoryWriter", "priority": 3}]},
            [
                (
                    "writers[0].priority",
                    "not a setting of MemoryWriter; it has scalars, lines, images, texts, tables, results, media, "
                    "config, artifacts, resumed_at, closed",
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


def test_all_problems_are_found_at_once_and_nothing_is_touched(tmp_path: Path) -> None:
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


def test_the_default_set_is_a_new_object_each_time() -> None:
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
    runners = []
    for cfg in ("a.yaml", Path("a.yml"), "a.json", "a.py", "a.toml", content, frozen):
        runners.append(attach(cfg))
        runners[-1].detach()  # the folder is free for the next one
    assert {runner.plan.digest for runner in runners} == {runners[0].plan.digest}
    assert {runner.work_dir for runner in runners} == {tmp_path / "experiments/my_experiment"}
    assert all(runner.get_service("config") == content for runner in runners)
    assert runners[0].hooks["CheckpointHook"].max_keep_ckpts == 3


def test_a_list_is_hooks_in_any_format(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- LambdaHook\n- {type: LoggerHook, interval: 3}\n")
    assert list(attach("a.yaml").hooks) == ["LambdaHook", "LoggerHook"]


def test_the_configurations_of_the_package_are_accepted() -> None:
    for path in sorted((CONFIGS).glob("*.yaml")):
        attach(
            path,
            evaluating=True,
            work_dir="out",
            criterion=torch.nn.CrossEntropyLoss(),
            weak_augmentation=print,
            show_progress=print,
            trial=SimpleNamespace(report=print, should_prune=bool),
            **({"model": {"g": torch.nn.Linear(1, 1), "d": torch.nn.Linear(1, 1)}} if path.stem == "gan" else {}),
        )


# -- the caller's objects -----------------------------------------------------------------------------------------


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


def test_hook_objects_have_name_and_priority_as_attributes_or_keywords() -> None:
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


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5, "the path of a folder is needed, not 5"),
        ("taken.txt", "taken.txt is a file: give the path of a folder"),
        ("taken.txt/below", "taken.txt is a file: give the path of a folder"),
        ("$NOT_SET_HERE/runs", "$NOT_SET_HERE is not set: set this variable, or write the path without it"),
        ("${NOT_SET_HERE}", "${NOT_SET_HERE} is not set: set this variable, or write the path without it"),
    ],
)
@pytest.mark.parametrize("is_argument", [True, False])
def test_a_folder_that_cannot_be_one_is_named_before_anything_is_attached(
    value: Any, words: str, is_argument: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    Path("taken.txt").touch()
    trainer = Engine(lambda engine, batch: None)
    cfg, work_dir = ({}, value) if is_argument else ({"work_dir": value}, None)
    with pytest.raises(ConfigError) as caught:
        attach_hooks(trainer, cfg, work_dir=work_dir)
    assert [(problem.place, problem.message) for problem in caught.value.problems] == [("work_dir", words)]
    assert os.listdir() == ["taken.txt"]
    assert not any(trainer._event_handlers.values())


def test_a_folder_may_be_named_by_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNS", str(tmp_path))
    problems: list[Problem] = []
    assert checked_folder("$RUNS/a", problems) == checked_folder("${RUNS}/a", problems) == str(tmp_path / "a")
    assert checked_folder("cost$", problems) == "cost$"
    assert not problems
