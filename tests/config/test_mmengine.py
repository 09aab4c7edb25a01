"""Configurations as MMEngine and MMDetection have them: the same where it means the same, else what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks import HOOKS, BaseHook, ConfigError, attach_hooks, build_hook
from ignite_hooks.config.describe import describe
from ignite_hooks.config.mmengine import DEFAULTS, OTHER_HOOKS, OTHERWISE, SAME, WITHOUT_EFFECT, translated
from ignite_hooks.config.read import default_set, read_config
from ignite_hooks.registry import SCOPES
from ignite_hooks.testing import tiny_run
from tests.properties import PLAIN, WORDS, tried

CONFIG = """
default_hooks = dict(
    runtime_info=dict(type='RuntimeInfoHook'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1, save_begin=1, max_keep_ckpts=3, save_param_scheduler=True),
    sampler_seed=dict(type='mmengine.DistSamplerSeedHook'),
)
custom_hooks = [
    dict(type='mmdet.CheckInvalidLossHook', interval=2, priority='VERY_LOW'),
    dict(type='NumClassCheckHook'),
    dict(type='mmengine.hooks.SyncBuffersHook'),
    dict(type='mmdet.engine.hooks.YOLOXModeSwitchHook', num_last_epochs=15, priority=48),
    dict(type='EMAHook', ema_type='ExponentialMovingAverage', momentum=0.9998, update_buffers=True, priority=49),
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=10)
model = dict(type='YOLOX', bbox_head=dict(num_classes=80))
env_cfg = dict(cudnn_benchmark=True)
"""


def test_a_configuration_as_they_are_runs_here(tmp_path: Path) -> None:
    path = tmp_path / "yolox.py"
    path.write_text(CONFIG)
    run = tiny_run()
    runner = attach_hooks(run.trainer, path, work_dir=tmp_path / "run", **run.services)
    assert [type(hook).__name__ for hook in runner.hooks.values()] == [
        "RuntimeInfoHook",
        "IterTimerHook",
        "LoggerHook",
        "CheckpointHook",
        "EvalHook",
        "ParamSchedulerHook",
        "DistSamplerSeedHook",
        "CheckInvalidLossHook",
        "NumClassCheckHook",
        "SyncBuffersHook",
        "YOLOXModeSwitchHook",
        "EMAHook",
    ]
    run.trainer.run(run.data, max_epochs=2)
    assert runner.hooks["checkpoint"].start == 1
    assert runner.report().failures == {}


def problems(config: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        build_hook(config)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_before_our_name_is_ignored(scope: str) -> None:
    assert type(build_hook(f"{scope}.LoggerHook")) is HOOKS.get("LoggerHook")
    assert [f"{scope}.{name}" in HOOKS for name in ("LoggerHook", "NoHook")] == [True, False]


def test_a_scope_that_is_registered_goes_before() -> None:
    class Mine(BaseHook):
        pass

    try:
        HOOKS.register("mmdet.LoggerHook")(Mine)
        assert type(build_hook("mmdet.LoggerHook")) is Mine
    finally:
        del HOOKS._classes["mmdet.LoggerHook"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"type": "mmengine.EMAHook"},
            ["hook.momentum: the default is 0.0002 there, which is 0.9998 here: write momentum: 0.9998 and warm_up: 0"],
        ),
        (
            {"type": "mmengine.EMAHook", "momentum": 0.0002},
            ["hook.momentum: 0.0002 is not in [0.5, 1). ", "write 0.9998"],
        ),
        (
            {"type": "EMAHook", "ema_type": "ExpMomentumEMA", "gamma": 2000},
            [
                "hook.ema_type: there is one kind here: leave it out",
                "hook.gamma: the average is warmed up by 'warm_up'",
            ],
        ),
        (
            {"type": "mmengine.EarlyStoppingHook", "monitor": "loss", "patience": 3},
            ["hook.min_delta: the default is 0.1 there and 0 here: write which is meant"],
        ),
        ({"type": "CheckpointHook", "save_best": "auto"}, ["hook.save_best: 'auto' takes whatever metric comes first"]),
        ({"type": "CheckpointHook", "interval": -1}, ["hook.interval: -1, never, is not one here"]),
        (
            {"type": "CheckpointHook", "backend_args": {"backend": "petrel"}},
            ["hook.backend_args: files go to a folder"],
        ),
        ({"type": "LoggerHook", "keep_local": False}, ["hook.keep_local: nothing is copied at the end of a run"]),
        (
            {"type": "mmengine.NaiveVisualizationHook"},
            ["hook.type: no hook is called 'mmengine.NaiveVisualizationHook': it is much like VisualizationHook here"],
        ),
        (
            {"type": "mmengine.CheckpointHook", "interval": 1},
            ["hook.max_keep_ckpts: the default is -1, all of them, there and 5 here: write which is meant"],
        ),
        (
            {"type": "mmengine.ProfilerHook", "profile_times": 2, "on_trace_ready": {"type": "tb_trace"}},
            ["hook.profile_times: write profile_iters", "hook.on_trace_ready: export_chrome_trace and"],
        ),
        (
            {"type": "SyncNormHook", "num_last_epochs": 15, "interval": 10},
            ["hook.num_last_epochs: norms are averaged before every", "hook.interval: norms are averaged before every"],
        ),
        (
            {"type": "mmyolo.YOLOXModeSwitchHook", "num_last_epochs": 15, "new_train_pipeline": []},
            ["hook.new_train_pipeline: write PipelineSwitchHook with switch_epoch and switch_pipeline"],
        ),
        (
            {"type": "PipelineSwitchHook", "switch_epoch": 280, "switch_pipeline": [{"type": "Resize"}]},
            ["hook.switch_pipeline: nothing is built from {type: ...} here: make it in the script", "write '@weak'"],
        ),
        ({"type": "mmdet.LogerHook"}, ["hook.type: no hook is called 'mmdet.LogerHook', did you mean 'LoggerHook'?"]),
        (
            {"type": "TextLoggerHook"},
            ["hook.type: no hook is called 'TextLoggerHook': it is much like LoggerHook here"],
        ),
    ],
)
def test_a_setting_with_another_meaning_says_what_to_write(config: Any, expected: list[str]) -> None:
    found = "\n".join(problems(config))
    assert [message for message in expected if message not in found] == []


@pytest.mark.parametrize(
    "config",
    [
        {"type": "mmdet.SyncRandomSizeHook", "ratio_range": [14, 26], "img_scale": [640, 640], "device": "cuda"},
        {"type": "YOLOXLrUpdaterHook", "policy": "YOLOX", "warmup": "exp", "by_epoch": False, "warmup_ratio": 1},
        {"type": "mmengine.ProfilerHook", "by_epoch": True, "activity_with_cpu": True, "json_trace_path": None},
    ],
    ids=lambda config: config["type"],
)
def test_what_asks_for_nothing_else_is_taken_as_it_is(config: dict[str, Any]) -> None:
    build_hook(config)


def test_other_names_work_but_not_beside_our_own() -> None:
    assert build_hook({"type": "EarlyStoppingHook", "rule": "greater", "monitor": "x"}).mode == "greater"
    assert build_hook({"type": "CheckpointHook", "save_begin": 5, "interval": 2}).start == 5
    given = {"type": "CheckpointHook", "save_begin": 5, "start": 4}
    assert problems(given)[0].startswith("hook.save_begin: not a setting of CheckpointHook")


@pytest.mark.parametrize("value", [None, {"interval": 2}, {"by_epoch": False}])
def test_their_default_hook_for_schedulers_is_known_by_its_name(value: Any) -> None:
    entries = read_config({"default_hooks": {"param_scheduler": value}}, defaults=default_set()).entries
    found = [entry.wanted for entry in entries if entry.default_name == "param_scheduler"]
    assert found == ([] if value is None else [{"type": "ParamSchedulerHook", **value}])


def test_tables_name_what_exists_and_hide_nothing_of_ours() -> None:
    tables: tuple[Any, ...] = (SAME, OTHERWISE, WITHOUT_EFFECT, DEFAULTS)
    for table in tables:
        for name, words in table.items():
            own = {setting.name for setting in describe(HOOKS.get(name)).settings}
            assert (set(words) <= own) if table is DEFAULTS else not set(words) & own, name
            assert table is not SAME or set(words.values()) <= own
    assert all(other in HOOKS and name not in HOOKS for name, other in OTHER_HOOKS.items())


THEIR_WORDS = sorted(
    {word for table in (SAME, WITHOUT_EFFECT, OTHERWISE, DEFAULTS) for words in table.values() for word in words}
)


@tried(200)
@given(
    scope=st.sampled_from(["", *(f"{scope}." for scope in SCOPES)]),
    name=st.sampled_from(sorted({*SAME, *WITHOUT_EFFECT, *OTHERWISE, *DEFAULTS, "SyncBuffersHook"})),
    given_=st.dictionaries(
        st.sampled_from(THEIR_WORDS) | WORDS, PLAIN | st.sampled_from([-1, "auto", True]), max_size=4
    ),
    own=st.sets(st.sampled_from([*THEIR_WORDS, "start", "mode"]), max_size=4),
)
def test_no_setting_is_lost_on_the_way(scope: str, name: str, given_: dict[str, Any], own: set[str]) -> None:
    before = dict(given_)
    found, wrong = translated(scope + name, given_, dict.fromkeys(own))
    assert given_ == before
    assert not set(found) & set(wrong)
    for word, value in given_.items():
        new = SAME.get(name, {}).get(word, word)
        told = word in wrong or new in wrong
        kept = any(key in found and found[key] is value for key in (word, new))
        without_effect = value in [*WITHOUT_EFFECT.get(name, {}).get(word, ())] and word not in own
        assert told or kept or without_effect, word
