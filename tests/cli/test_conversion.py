"""The hooks of MMEngine configurations as ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ignite_hooks.cli.app import main
from ignite_hooks.cli.conversion import converted
from ignite_hooks.cli.mmengine_rules import NEVER
from ignite_hooks.config.build import build_all
from ignite_hooks.config.read import default_set, read_config
from ignite_hooks.errors import ConfigError
from ignite_hooks.hooks.base_hook import Situation

YOLOX = """\
_base_ = ['../_base_/default_runtime.py']
max_epochs = 300
num_last_epochs = 15
interval = 10
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=interval)
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=True),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=interval, max_keep_ckpts=3, save_best='auto', backend_args=None),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='DetVisualizationHook', draw=True, test_out_dir='vis'))
custom_hooks = [
    dict(type='TheirOwnHook', num_last_epochs=num_last_epochs, switch=max_epochs - num_last_epochs, priority=48),
    dict(type='SyncNormHook', priority=48),
    dict(type='EMAHook', ema_type='ExpMomentumEMA', momentum=0.0001, update_buffers=True, priority=49),
    dict(type='ProfilerHook', profile_times=5, on_trace_ready=dict(type='tb_trace')),
]
"""

RESULT = """\
# From yolox.py. Have a look: ignite-hooks validate FILE, ignite-hooks explain FILE
# Not read: '../_base_/default_runtime.py' (_base_): it is not there: convert it too and join the results
default_hooks:
  timer: {}
  logger:
    interval: 50
    log_metric_by_epoch: true
  # param_scheduler: left out: ParamSchedulerHook: BaseTrainer steps what training.scheduler names; where nobody \
does, add it
  checkpoint:
    interval: 10
    max_keep_ckpts: 3
    save_best: false  # 'auto' is whatever metric comes first there: name yours here
    # left out: backend_args=None: it has no counterpart (checkpoints and logs are written to the work directory)
  # left out: sampler_seed: {'type': 'DistSamplerSeedHook'}: in the default set where the run is distributed
  visualization:
    type: DetVisualizationHook
    interval: 50      # the default there
    out_dir: vis      # test_out_dir there
    # left out: draw=True: a hook acts here
  eval:               # the loop evaluates there (train_cfg), here it is a hook
    interval: 10
custom_hooks:
  # line 14: left out: TheirOwnHook(num_last_epochs=15, switch=285, priority=48): not one of ours: register your \
class with @HOOKS.register_module() and add it
  - type: SyncNormHook
    # left out: priority=48: there the smaller acts first everywhere, here after_* begin with the larger: left to \
the hook
  - type: EMAHook
    # left out: ema_type='ExpMomentumEMA': the same momentum in the end; it rises as warm_up says, there by exp(-n \
/ gamma)
    momentum: 0.9999  # 1 - 0.0001: there the share that is new, here the share that is kept
    update_buffers: true
    # left out: priority=49: there the smaller acts first everywhere, here after_* begin with the larger: left to \
the hook
  - type: ProfilerHook
    profile_iters: 5  # profile_times there
    # left out: on_trace_ready={'type': 'tb_trace'}: it has no counterpart (export_chrome_trace and \
export_tensorboard say where it goes)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text_of(content: str) -> str:
    Path("mm.py").write_text(content)
    return converted("mm.py")


def test_every_line_says_what_changed(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("yolox.py").write_text(YOLOX)
    assert main(["convert", "yolox.py"]) == 0
    assert capsys.readouterr().out == RESULT
    assert main(["convert", "yolox.py", "-o", "ours.yaml"]) == 0
    assert Path("ours.yaml").read_text() == RESULT
    assert main(["validate", "ours.yaml"]) == 0


ENTRIES = {
    "momentum": ("dict(type='EMAHook', momentum=0.0002)", {"type": "EMAHook", "momentum": 0.9998, "warm_up": 0}),
    "momentum by default": ("dict(type='EMAHook')", {"type": "EMAHook", "momentum": 0.9998, "warm_up": 0}),
    "a rising momentum": (
        "dict(type='EMAHook', ema_type='MomentumAnnealingEMA', gamma=200)",
        {"type": "EMAHook", "momentum": 0.9998, "warm_up": 201},
    ),
    "a plain mean": (
        "dict(type='EMAHook', ema_type='StochasticWeightAverage', begin_epoch=8, interval=10)",
        {"type": "SWAHook", "start_epoch": 8},
    ),
    "never": (
        "dict(type='CheckpointHook', interval=-1)",
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "interval": NEVER},
    ),
    "whatever metric comes first": (
        "dict(type='CheckpointHook', save_best='auto')",
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "save_best": False},
    ),
    "the loss of the evaluation": (
        "dict(type='CheckpointHook', save_best=['loss', 'acc'])",
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "save_best": ["val_loss", "acc"]},
    ),
    "a rule by a part of the name": (
        "dict(type='CheckpointHook', save_best='myaccount')",
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "save_best": "myaccount", "rule": "greater"},
    ),
    "early stopping": (
        "dict(type='EarlyStoppingHook', monitor='loss', rule='less', strict=True)",
        {
            "type": "EarlyStoppingHook",
            "min_delta": 0.1,
            "patience": 5,
            "restore_best_weights": False,
            "monitor": "val_loss",
            "mode": "min",
        },
    ),
    "a scope": ("dict(type='mmengine.SyncBuffersHook')", {"type": "SyncBuffersHook"}),
    "save_begin": (
        "dict(type='CheckpointHook', save_begin=5, interval=2)",
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "start": 5, "interval": 2},
    ),
    "rules": (
        "dict(type='CheckpointHook', save_best=['acc', 'loss'], rule=['greater', 'less'])",
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "save_best": ["acc", "val_loss"]},
    ),
    "a dictionary in braces": (
        "{'type': 'MemoryProfilerHook', 'interval': 50}",
        {"type": "MemoryProfilerHook", "interval": 50},
    ),
    "arithmetic": ("dict(type='MemoryProfilerHook', interval=2 * 5)", {"type": "MemoryProfilerHook", "interval": 10}),
}


@pytest.mark.parametrize(("written", "ours"), ENTRIES.values(), ids=ENTRIES)
def test_an_entry_becomes_one_that_can_be_built(written: str, ours: dict[str, object], write: Path) -> None:
    found = yaml.safe_load(text_of(f"custom_hooks = [{written}]\n"))
    assert found == {"custom_hooks": [ours]}
    settings = read_config(found, defaults=default_set(evaluates=True))
    assert build_all(settings.entries, {}, Situation(complete=False))[1] == []


REMARKS = {
    "what draws nothing": (
        "dict(type='DetVisualizationHook', draw=False, interval=2)",
        "left out: DetVisualizationHook(draw=False, interval=2): it draws nothing there",
    ),
    "left out": (
        "dict(type='NPUProfilerHook', begin=1)",
        "line 1: left out: NPUProfilerHook(begin=1): ProfilerHook knows",
    ),
    "a hook of theirs": ("dict(type='TheirHook', at=3)", "line 1: left out: TheirHook(at=3): not one of ours"),
    "a value that is computed": ("dict(type='SyncNormHook', interval=len(names))", "left out: interval=len(names)"),
    "a computed value inside": (
        "dict(type='PipelineSwitchHook', switch_epoch=1, switch_pipeline=[make(3)])",
        "left out: switch_pipeline=[make(3)]: it cannot be read",
    ),
    "no entry": ("make_hook(3)", "left out: line 1: make_hook(3): it cannot be read"),
    "a value that does not fit": (
        "dict(type='MemoryProfilerHook', interval='x')",
        "left out: interval='x': it does not",
    ),
    "no type": ("dict(interval=3)", "left out: {'interval': 3}: it has no type that can be read"),
    "an average of their own": (
        "dict(type='EMAHook', ema_type='Mine')",
        "left out: ema_type='Mine': a kind of its own",
    ),
    "what it cannot do without": (
        "dict(type='mmdet.PipelineSwitchHook', switch_epoch=5, switch_pipeline=[dict(type='Resize')])",
        "left out: PipelineSwitchHook(switch_epoch=5): it needs switch_pipeline",
    ),
}


@pytest.mark.parametrize(("written", "remark"), REMARKS.values(), ids=REMARKS)
def test_what_cannot_be_converted_is_said(written: str, remark: str, write: Path) -> None:
    text = text_of(f"custom_hooks = [{written}, dict(type='SyncNormHook')]\n")
    assert remark in text
    assert {"type": "SyncNormHook"} in yaml.safe_load(text)["custom_hooks"]


LOOPS = {
    "an interval": ("val_interval=3", {"interval": 3}, ""),
    "iterations": ("type='IterBasedTrainLoop'", None, ""),
    "iterations by default": (
        "type='IterBasedTrainLoop', val_begin=1",
        {"interval": 1000, "by_epoch": False},
        "interval: 1000  # the default there",
    ),
    "a beginning": (
        "val_interval=10, val_begin=20",
        {"interval": 10, "start": 20},
        "start: 20  # val_begin=20 there",
    ),
    "a beginning between": (
        "val_interval=10, val_begin=15",
        {"interval": 10, "start": 20},
        "val_begin=15 there: the first multiple of 10 from there on",
    ),
    "several intervals": (
        "val_interval=10, dynamic_intervals=[(280, 1)]",
        {"interval": 10},
        "left out: dynamic_intervals=[[280, 1]]: one interval holds for the whole run",
    ),
    "a float": ("val_interval=1e3, by_epoch=False", {"interval": 1000, "by_epoch": False}, ""),
    "what is computed": ("val_interval=f()", {"interval": 1}, "left out: val_interval=f(): it cannot be read"),
}


@pytest.mark.parametrize(("loop", "ours", "remark"), LOOPS.values(), ids=LOOPS)
def test_evaluations_of_the_loop_become_a_hook(loop: str, ours: object, remark: str, write: Path) -> None:
    text = text_of(f"train_cfg = dict({loop})\n")
    assert yaml.safe_load(text)["default_hooks"].get("eval") == ours
    assert remark in text


def test_an_unknown_type_is_the_only_problem_of_its_file(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ours.yaml").write_text("default_hooks: {pictures: {type: PoseVisualizationHook}, eval: {interval: 5}}\n")
    assert main(["validate", "ours.yaml"]) == 2
    problems = "".join(capsys.readouterr()).splitlines()
    assert [line for line in problems if "default_hooks" in line] == [line for line in problems if "Pose" in line] != []


def test_the_file_itself_is_not_written_over(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("yolox.py").write_text(YOLOX)
    assert main(["convert", "yolox.py", "-o", "../" + write.name + "/yolox.py"]) == 2
    assert "-o: that is the file that is read" in capsys.readouterr().err
    assert Path("yolox.py").read_text() == YOLOX


@pytest.mark.parametrize(
    ("content", "remark"),
    [
        ("a = 1\n", "it says nothing about hooks: the default set acts"),
        ("_base_ = 'x.py'\n", "Not read: 'x.py' (_base_): it is not there: convert it too and join the results"),
        ("custom_hooks = []\n", "it says nothing about hooks"),
        ("custom_hooks = [hook(i) for i in all_of_them]\n", "left out: line 1: [hook(i) for i in all_of_them]"),
        ("default_hooks = make()\n", "left out: default_hooks = make(): it cannot be read"),
    ],
    ids=["no hooks", "only a base", "empty", "computed", "computed defaults"],
)
def test_a_file_without_hooks_has_the_default_set(
    content: str, remark: str, write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_of(content)
    assert yaml.safe_load(text) == {"default_hooks": {}}
    assert remark in text
    assert main(["convert", "mm.py", "-o", "ours.yaml"]) == 0
    assert main(["validate", "ours.yaml"]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [("custom_hooks = [\n", "not valid Python"), ("a = " + "(" * 5000 + ")" * 5000, "not valid Python")],
    ids=["not Python", "too deep"],
)
def test_a_file_that_cannot_be_read_is_2(
    content: str, message: str, write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=message):
        text_of(content)
    assert main(["convert", "mm.py"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert main(["convert", "nowhere.py"]) == 2
