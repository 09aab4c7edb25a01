"""Tables of what MMEngine and its family call hooks and settings, and what these are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_hooks.registry import without_scope

OTHER_HOOKS = {
    "NaiveVisualizationHook": "VisualizationHook",
    "TrackVisualizationHook": "DetVisualizationHook",
    "GroundingVisualizationHook": "DetVisualizationHook",
    "NPUProfilerHook": "ProfilerHook",
    "TextLoggerHook": "LoggerHook",
    "TensorboardLoggerHook": "TensorBoardHook",
    "WandbLoggerHook": "WandbHook",
    "MlflowLoggerHook": "MLflowHook",
    "ExpMomentumEMAHook": "EMAHook",
    "LinearMomentumEMAHook": "EMAHook",
}
"""Hooks that resemble one of ours, which has other settings."""

SAME = {
    "CheckpointHook": {"save_param_scheduler": "save_scheduler", "save_begin": "start"},
    "EarlyStoppingHook": {"rule": "mode"},
}
"""Settings of the same meaning under another name."""

WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "CheckpointHook": {"file_client_args": (None,), "backend_args": (None,)},
    "LoggerHook": {"file_client_args": (None,), "backend_args": (None,), "out_dir": (None,)},
    "EMAHook": {"ema_type": ("ExponentialMovingAverage",), "strict_load": (False, True), "device": (None,)},
    "EarlyStoppingHook": {"strict": (True,)},
    "DetVisualizationHook": {"draw": (True,), "backend_args": (None,), "test_out_dir": (None,)},
    "SegVisualizationHook": {"draw": (True,), "backend_args": (None,)},
    "ProfilerHook": {"activity_with_cpu": (True,), "json_trace_path": (None,)},
    "SyncRandomSizeHook": {"device": ("cuda", "cpu", None)},
    "YOLOXLrUpdaterHook": {"policy": ("YOLOX",), "warmup": ("exp",)},
}
"""Values that ask for what happens here anyway."""

_FILES = "files go to a folder here: give out_dir, and mount or copy what is elsewhere"
_WARM_UP = "the average is warmed up by 'warm_up' here: min(momentum, (1 + n) / (warm_up + n)) in step n"

_BEFORE_EACH = "norms are averaged before every evaluation, which is all that sees it: leave it out"

OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "CheckpointHook": {
        "file_client_args": _FILES,
        "backend_args": _FILES,
        "greater_keys": "write rule: greater, or a name such as accuracy, of which 'rule: auto' knows it",
        "less_keys": "write rule: less, or a name such as val_loss, of which 'rule: auto' knows it",
    },
    "LoggerHook": {
        "interval_exp_name": "lines do not repeat the name of the run here: leave it out",
        "out_dir": "metrics.jsonl is written to work_dir: set that",
        "out_suffix": "nothing is copied at the end of a run: leave it out",
        "keep_local": "nothing is copied at the end of a run: leave it out",
        "file_client_args": "metrics.jsonl is written to work_dir: leave it out",
        "backend_args": "metrics.jsonl is written to work_dir: leave it out",
    },
    "EMAHook": {
        "ema_type": f"there is one kind here: leave it out; {_WARM_UP}",
        "gamma": f"{_WARM_UP}: write warm_up in place of gamma",
        "total_iter": f"{_WARM_UP}: write warm_up in place of total_iter",
        "device": "the averages are where the weights are: leave it out",
    },
    "EarlyStoppingHook": {"strict": "a metric that does not exist is always an error here: leave it out"},
    "DetVisualizationHook": {"draw": "take the hook out of the configuration where nothing is to be drawn"},
    "SegVisualizationHook": {"draw": "take the hook out of the configuration where nothing is to be drawn"},
    "ProfilerHook": {
        "profile_times": "write profile_iters for iterations; by_epoch: true alone profiles the first epoch",
        "activity_with_cpu": "the CPU is always looked at: leave it out",
        "activity_with_cuda": "a GPU is looked at where there is one: leave it out",
        "json_trace_path": "traces are profile/trace_N.json.gz in the work directory: leave it out",
    },
    "SyncNormHook": {
        "num_last_epochs": _BEFORE_EACH,
        "interval": _BEFORE_EACH,
    },
    "SyncRandomSizeHook": {"device": "nothing is sent to a device: leave it out"},
    "YOLOXLrUpdaterHook": {
        "policy": "the name of the hook says it: leave it out",
        "warmup": "the warm-up is a parabola ('exp' there), or none with warmup_iters: 0: leave it out",
    },
    "YOLOXModeSwitchHook": {
        "new_train_pipeline": "write PipelineSwitchHook with switch_epoch and switch_pipeline for other transforms"
    },
}
"""Settings that are written otherwise here: what to write."""

DEFAULTS = {
    "CheckpointHook": {"max_keep_ckpts": "-1, all of them, there and 5 here: write which is meant"},
    "EMAHook": {"momentum": "0.0002 there, which is 0.9998 here: write momentum: 0.9998 and warm_up: 0 for the same"},
    "EarlyStoppingHook": {
        "min_delta": "0.1 there and 0 here: write which is meant",
        "patience": "5 there and 10 here: write which is meant",
    },
}
"""Settings whose defaults differ enough to change a run; reported if the entry names MMEngine's hook by its scope."""


_AS_SERVICE = "nothing is built from {type: ...} here: make it in the script, give it as attach_hooks(..., weak=it)"

MEANT_OTHERWISE = {
    "PipelineSwitchHook": {"switch_pipeline": f"{_AS_SERVICE} and write '@weak'"},
    "ProfilerHook": {"on_trace_ready": "export_chrome_trace and export_tensorboard say where it goes: write these"},
}
"""Settings of ours that MMEngine builds from a mapping with ``type``."""


def other_name(name: str) -> str:
    """Say which hook of ours resembles one of MMEngine's family; return an empty text if none does.

    Example:
        >>> other_name("mmengine.NaiveVisualizationHook"), other_name("LoggerHook")
        (': it is much like VisualizationHook here', '')
    """
    found = OTHER_HOOKS.get(without_scope(name))
    return f": it is much like {found} here" if found else ""


def translated(type_: str, given: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings of an entry under our names, and what is wrong with the others.

    Args:
        type_: The type as the entry has it.
        given: Its settings.
        own: The settings that the hook has here.

    Example:
        >>> translated("mmengine.CheckpointHook", {"save_begin": 5, "greater_keys": ["x"]}, {"start": 0})[0]
        {'start': 5}
        >>> translated("mmengine.EMAHook", {}, {})[1]["momentum"]
        'the default is 0.0002 there, which is 0.9998 here: write momentum: 0.9998 and warm_up: 0 for the same'
    """
    name = without_scope(type_)
    same, otherwise, nothing = SAME.get(name, {}), OTHERWISE.get(name, {}), WITHOUT_EFFECT.get(name, {})
    found: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for word, value in given.items():
        if word in own:
            found[word] = value
        elif word in same and same[word] not in given:
            found[same[word]] = value
        elif word in nothing and any(value is one or value == one for one in nothing[word]):
            continue
        elif word in otherwise:
            wrong[word] = otherwise[word]
        else:
            found[word] = value
    for word, message in MEANT_OTHERWISE.get(name, {}).items():
        if _has_types(found.get(word)):
            wrong[word] = message
            del found[word]
    if name == "CheckpointHook" and found.get("save_best") == "auto":
        wrong["save_best"] = "'auto' takes whatever metric comes first: name it, or write true and best_metric"
        del found["save_best"]
    if name == "CheckpointHook" and found.get("interval") == -1:
        wrong["interval"] = "-1, never, is not one here: leave the hook out, or save seldom and the last (save_last)"
        del found["interval"]
    if name != type_:
        for word, message in DEFAULTS.get(name, {}).items():
            if word not in given:
                wrong[word] = f"the default is {message}"
    return found, wrong


def _has_types(value: Any) -> bool:
    """Return whether a value describes something to be built, or a list that contains such a value."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(one, Mapping) and "type" in one for one in values)
