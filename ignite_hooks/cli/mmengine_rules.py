"""How hooks of MMEngine become ours: names, values, defaults, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ignite_hooks.results.better import rule_for

NEVER = 1_000_000_000
"""An interval that no run reaches."""


@dataclass(frozen=True)
class HookConversion:
    """The conversion of the settings of one MMEngine hook to those of ours.

    Args:
        type: Its name here, if another.
        renamed: Settings that have another name here.
        values: Settings whose value changes: a function that returns the new value and why.
        gone: Settings without a counterpart, with a remark.
        defaults: MMEngine's defaults, where ours differ.
        added: Settings of ours that MMEngine does not have, with the value that does the same and why.
        switch: The setting without which the hook does nothing there; the hook is left out then.
    """

    type: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Callable[[Any], tuple[Any, str]]] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    switch: str = ""


class Drop:
    """Stands for a value where the setting is to be left out."""


def rule_of(name: str, given: Mapping[str, Any]) -> HookConversion:
    """Return the conversion of a hook with its settings.

    Example:
        >>> rule_of("EMAHook", {"ema_type": "StochasticWeightAverage"}).type
        'SWAHook'
        >>> rule_of("CheckpointHook", {"save_best": "coco/bbox_topmost"}).added["rule"][0]
        'greater'
    """
    if name == "EMAHook":
        return _average(given.get("ema_type", "ExponentialMovingAverage"))
    rule = RULES.get(name, HookConversion())
    if name == "CheckpointHook" and (known := _rule_there(given)):
        return replace(rule, added={"rule": known})
    return rule


# -- averages ---------------------------------------------------------------------------------------------------------


def _momentum(value: Any) -> tuple[Any, str]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value, "in MMEngine the share that is new, here the share that is kept: 1 minus it"
    return round(1 - value, 12), f"1 - {value}: there the share that is new, here the share that is kept"


def _warm_up(value: Any) -> tuple[Any, str]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (int(value) + 1, "gamma + 1: the same rise of the momentum") if is_number else (value, "")


def _is_named(kind: str) -> Callable[[Any], tuple[Any, str]]:
    return lambda _: (Drop, kind)


_EXPONENTIAL = HookConversion(
    values={"momentum": _momentum, "ema_type": _is_named("EMAHook is that kind")},
    gone={"strict_load": "names of checkpoints are always compared"},
    defaults={"momentum": 0.0002},
    added={"warm_up": (0, "there the momentum does not rise")},
)
_AVERAGES: Mapping[str, HookConversion] = {
    "ExponentialMovingAverage": _EXPONENTIAL,
    "MomentumAnnealingEMA": replace(
        _EXPONENTIAL,
        renamed={"gamma": "warm_up"},
        values={**_EXPONENTIAL.values, "gamma": _warm_up, "ema_type": _is_named("EMAHook with a warm_up is that kind")},
        defaults={"momentum": 0.0002, "gamma": 100},
        added={},
    ),
    "ExpMomentumEMA": replace(
        _EXPONENTIAL,
        values={
            **_EXPONENTIAL.values,
            "ema_type": _is_named("the same momentum in the end; it rises as warm_up says, there by exp(-n / gamma)"),
        },
        gone={**_EXPONENTIAL.gone, "gamma": "warm_up says how the momentum rises"},
        added={},
    ),
    "StochasticWeightAverage": HookConversion(
        type="SWAHook",
        renamed={"begin_epoch": "start_epoch"},
        values={"ema_type": _is_named("SWAHook is the plain mean, of the weights at the ends of epochs")},
        gone={
            "begin_iter": "SWAHook begins with an epoch: start_epoch",
            "interval": "counts iterations there; SWAHook takes the weights at the ends of epochs",
            "momentum": "a plain mean has none",
            "strict_load": "names of checkpoints are always compared",
            "update_buffers": "batch norms go through the training data at the end: update_norms",
        },
        defaults={"begin_epoch": 0},
    ),
}


def _average(kind: Any) -> HookConversion:
    known = str(getattr(kind, "text", kind)).rpartition(".")[2]
    other = _is_named("a kind of its own: here an exponential average, so have a look")
    return _AVERAGES.get(known) or replace(_EXPONENTIAL, values={**_EXPONENTIAL.values, "ema_type": other})


# -- checkpoints and metrics ------------------------------------------------------------------------------------------

_GREATER = ("acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc")
_LESS = ("loss",)


def _rule_there(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the rule that MMEngine finds for the metrics by parts of their names, where ours finds none."""
    best = given.get("save_best")
    metrics = [best] if isinstance(best, str) else best if isinstance(best, list) else []
    if given.get("rule") is not None or not metrics or not all(isinstance(each, str) for each in metrics):
        return None
    if "auto" in metrics or all(map(_is_known_here, metrics)):
        return None
    rules = {
        "greater" if any(key.lower() in name.lower() for key in _GREATER) else "less"
        for name in metrics
        if any(key.lower() in name.lower() for key in (*_GREATER, *_LESS))
    }
    return (rules.pop(), "MMEngine finds it by a part of the name") if len(rules) == 1 else None


def _is_known_here(metric: str) -> bool:
    try:
        return bool(rule_for(metric, "auto", setting="rule"))
    except ValueError:
        return False


def _best(value: Any) -> tuple[Any, str]:
    if value == "auto":
        return False, "'auto' is whatever metric comes first there: name yours here"
    if value == "loss":
        return "val_loss", "'loss' there is that of the evaluation"
    if isinstance(value, list) and "loss" in value:
        return ["val_loss" if each == "loss" else each for each in value], "'loss' there is that of the evaluation"
    return value, ""


def _monitor(value: Any) -> tuple[Any, str]:
    return ("val_loss", "'loss' there is that of the evaluation") if value == "loss" else (value, "")


def _rules(value: Any) -> tuple[Any, str]:
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        return value[0], "one rule for all metrics"
    return (Drop, "here the name of each metric decides") if isinstance(value, list) else (value, "")


def _periodic(value: Any) -> tuple[Any, str]:
    return (NEVER, f"{value}: never, there") if isinstance(value, int) and value < 1 else (value, "")


def _mode(value: Any) -> tuple[Any, str]:
    return {"greater": "max", "less": "min"}.get(value, value), f"rule {value!r} there"


_STORAGE = "checkpoints and logs are written to the work directory"
_PICTURES = HookConversion(
    renamed={"test_out_dir": "out_dir"},
    switch="draw",
    gone={"wait_time": "no window waits here", "backend_args": "images are taken from the batch, not from files"},
    defaults={"interval": 50},
)

RULES: Mapping[str, HookConversion] = {
    "CheckpointHook": HookConversion(
        renamed={"save_begin": "start", "save_param_scheduler": "save_scheduler"},
        values={"save_best": _best, "rule": _rules, "interval": _periodic},
        gone={
            "file_client_args": _STORAGE,
            "backend_args": _STORAGE,
            "greater_keys": "say rule: greater",
            "less_keys": "say rule: less",
        },
        defaults={"max_keep_ckpts": -1},
    ),
    "LoggerHook": HookConversion(
        gone={
            "interval_exp_name": "the name of the run is that of its work directory",
            "out_dir": _STORAGE,
            "out_suffix": _STORAGE,
            "keep_local": _STORAGE,
            "file_client_args": _STORAGE,
            "backend_args": _STORAGE,
        },
        defaults={"interval": 10},
    ),
    "EarlyStoppingHook": HookConversion(
        renamed={"rule": "mode"},
        values={"rule": _mode, "monitor": _monitor},
        gone={"strict": "a metric that does not exist is always an error"},
        defaults={"min_delta": 0.1, "patience": 5, "restore_best_weights": False},
    ),
    "ProfilerHook": HookConversion(
        renamed={"profile_times": "profile_iters"},
        gone={
            "activity_with_cpu": "always",
            "activity_with_cuda": "always, where there is a GPU",
            "on_trace_ready": "export_chrome_trace and export_tensorboard say where it goes",
            "json_trace_path": "export_chrome_trace writes profile/trace_1.json.gz",
        },
    ),
    "DetVisualizationHook": _PICTURES,
    "SegVisualizationHook": _PICTURES,
    "VisualizationHook": HookConversion(
        switch="enable",
        gone={"wait_time": "no window waits here", "rescale_factor": "", "resize": ""},
    ),
    "NaiveVisualizationHook": HookConversion(type="VisualizationHook"),
}

NO_COUNTERPART: Mapping[str, str] = {
    "ParamSchedulerHook": "BaseTrainer steps what training.scheduler names; where nobody does, add it",
    "NPUProfilerHook": "ProfilerHook knows CPUs and GPUs of NVIDIA",
    "TrackVisualizationHook": "DetVisualizationHook draws single images",
    "GroundingVisualizationHook": "DetVisualizationHook draws boxes",
}
"""What to do instead of some of MMEngine's own hooks."""

MMENGINE_DEFAULTS = {
    "runtime_info": "RuntimeInfoHook",
    "timer": "IterTimerHook",
    "sampler_seed": "DistSamplerSeedHook",
    "logger": "LoggerHook",
    "param_scheduler": "ParamSchedulerHook",
    "checkpoint": "CheckpointHook",
}
"""The default hooks there by name: an entry need not repeat the type."""

OF_ITSELF = {"DistSamplerSeedHook": "in the default set where the run is distributed"}
"""Hooks that need not be named here."""
ORDER = "there the smaller acts first everywhere, here after_* begin with the larger: left to the hook"
