"""The hooks of MMEngine configurations as ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ignite_hooks.cli.app import main
from ignite_hooks.cli.conversion import converted
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
# Not read: '../_base_/default_runtime.py' (_base_): convert these too and join the results
default_hooks:
  timer: {}
  logger:
    interval: 50
    log_metric_by_epoch: true
  # param_scheduler: ParamSchedulerHook is left out: BaseTrainer steps what training.scheduler names; \
where nobody does, add it
  checkpoint:
    interval: 10
    max_keep_ckpts: 3
    save_best: true     # 'auto' is the first metric there, here that of best_metric
    # no counterpart: backend_args=None (checkpoints and logs are written to the work directory)
  # sampler_seed: in the default set where the run is distributed
  visualization:
    type: DetVisualizationHook
    interval: 50        # the default there
    out_dir: vis        # test_out_dir there
  eval:                 # the loop evaluates there (train_cfg), here it is a hook
    interval: 10
custom_hooks:
  - type: TheirOwnHook  # not one of ours: register your class with @HOOKS.register_module()
    num_last_epochs: 15
    switch: 285
    priority: 48
  - type: SyncNormHook
    # priority 48: there the smaller acts first everywhere, here after_* begin with the larger: left to the hook
  - type: EMAHook
    # left out: ema_type='ExpMomentumEMA': there is one kind of average here, with a warm_up
    momentum: 0.9999    # 1 - 0.0001: there the share that is new, here the share that is kept
    update_buffers: true
    # priority 49: there the smaller acts first everywhere, here after_* begin with the larger: left to the hook
  - type: ProfilerHook
    profile_iters: 5    # profile_times there
    # no counterpart: on_trace_ready={'type': 'tb_trace'} (export_chrome_trace and export_tensorboard say where it goes)
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
    "momentum": ("dict(type='EMAHook', momentum=0.0002)", {"type": "EMAHook", "momentum": 0.9998}),
    "momentum by default": ("dict(type='EMAHook')", {"type": "EMAHook", "momentum": 0.9998}),
    "early stopping": (
        "dict(type='EarlyStoppingHook', monitor='loss', rule='less', strict=True)",
        {
            "type": "EarlyStoppingHook",
            "min_delta": 0.1,
            "patience": 5,
            "restore_best_weights": False,
            "monitor": "loss",
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
        {"type": "CheckpointHook", "max_keep_ckpts": -1, "save_best": ["acc", "loss"]},
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
    "what draws nothing": ("dict(type='DetVisualizationHook')", "DetVisualizationHook draws nothing there"),
    "left out": ("dict(type='NPUProfilerHook')", "NPUProfilerHook is left out: ProfilerHook knows"),
    "a value that is computed": ("dict(type='SyncNormHook', interval=len(names))", "interval"),
    "no entry": ("make_hook(3)", "line 1: not read: make_hook(3)"),
    "a value that does not fit": ("dict(type='MemoryProfilerHook', interval='x')", "does not fit here: interval='x'"),
    "no type": ("dict(interval=3)", "no type that can be read"),
    "what it cannot do without": (
        "dict(type='mmdet.PipelineSwitchHook', switch_epoch=5, switch_pipeline=[dict(type='Resize')])",
        "PipelineSwitchHook is left out: it needs switch_pipeline",
    ),
}


@pytest.mark.parametrize(("written", "remark"), REMARKS.values(), ids=REMARKS)
def test_what_cannot_be_converted_is_said(written: str, remark: str, write: Path) -> None:
    text = text_of(f"custom_hooks = [{written}, dict(type='SyncNormHook')]\n")
    assert remark in text
    assert {"type": "SyncNormHook"} in yaml.safe_load(text)["custom_hooks"]


def test_the_file_itself_is_not_written_over(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("yolox.py").write_text(YOLOX)
    assert main(["convert", "yolox.py", "-o", "../" + write.name + "/yolox.py"]) == 2
    assert "-o: that is the file that is read" in capsys.readouterr().err
    assert Path("yolox.py").read_text() == YOLOX


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = 1\n", "it says nothing about hooks: default_hooks or custom_hooks are needed"),
        ("_base_ = 'x.py'\n", "it says nothing about hooks: convert the files that _base_ names"),
        ("custom_hooks = [\n", "not valid Python"),
        ("custom_hooks = []\n", "it says nothing about hooks: default_hooks or custom_hooks are needed"),
        ("custom_hooks = [hook(i) for i in all_of_them]\n", r"none of its hooks can be converted: .* not read: \[hook"),
        ("a = " + "(" * 5000 + ")" * 5000, "not valid Python"),
    ],
    ids=["no hooks", "only a base", "not Python", "empty", "computed", "too deep"],
)
def test_a_file_without_hooks_is_2(content: str, message: str, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=message):
        text_of(content)
    assert main(["convert", "mm.py"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert main(["convert", "nowhere.py"]) == 2
