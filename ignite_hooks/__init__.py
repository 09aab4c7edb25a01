"""Configured, ordered, explained hooks for PyTorch-Ignite engines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ignite_hooks.version import __version__

if TYPE_CHECKING:
    from ignite_hooks.attach import attach_hooks
    from ignite_hooks.config.build import build_hook, build_hooks, get_default_hooks
    from ignite_hooks.config.connected.connect import load_config
    from ignite_hooks.config.outer_form import add_arguments
    from ignite_hooks.errors import CheckpointError, ConfigError, HookError, MetricError
    from ignite_hooks.hooks.base_hook import BaseHook, Hook
    from ignite_hooks.hooks.checkpoint_hook import CheckpointHook
    from ignite_hooks.hooks.early_stopping_hook import EarlyStoppingHook
    from ignite_hooks.hooks.ema_hook import EMAHook
    from ignite_hooks.hooks.eval_hook import DistEvalHook, EvalHook
    from ignite_hooks.hooks.logger_hook import LoggerHook
    from ignite_hooks.hooks.monitors.export_hook import ExportHook
    from ignite_hooks.hooks.monitors.feature_map_hook import FeatureMapHook
    from ignite_hooks.hooks.monitors.gradient_flow_hook import GradientFlowHook
    from ignite_hooks.hooks.monitors.history_plot_hook import HistoryPlotHook
    from ignite_hooks.hooks.monitors.iter_timer_hook import IterTimerHook
    from ignite_hooks.hooks.monitors.memory_profiler_hook import MemoryProfilerHook
    from ignite_hooks.hooks.monitors.model_summary_hook import ModelSummaryHook
    from ignite_hooks.hooks.monitors.notebook_hook import NotebookHook
    from ignite_hooks.hooks.monitors.notify_hook import NotifyHook
    from ignite_hooks.hooks.monitors.oom_observer_hook import OOMObserverHook
    from ignite_hooks.hooks.monitors.progress_bar_hook import ProgressBarHook
    from ignite_hooks.hooks.monitors.report_hook import ReportHook
    from ignite_hooks.hooks.monitors.runtime_info_hook import RuntimeInfoHook
    from ignite_hooks.hooks.monitors.system_monitor_hook import SystemMonitorHook
    from ignite_hooks.hooks.monitors.throughput_hook import ThroughputHook
    from ignite_hooks.hooks.monitors.time_tracking_hook import TimeTrackingHook
    from ignite_hooks.hooks.profiler_hook import ProfilerHook
    from ignite_hooks.hooks.trackers.clearml_hook import ClearMLHook
    from ignite_hooks.hooks.trackers.mlflow_hook import MLflowHook
    from ignite_hooks.hooks.trackers.tensorboard_hook import TensorBoardHook
    from ignite_hooks.hooks.trackers.trackio_hook import TrackioHook
    from ignite_hooks.hooks.trackers.wandb_hook import WandbHook
    from ignite_hooks.hooks.training.check_invalid_loss_hook import CheckInvalidLossHook
    from ignite_hooks.hooks.training.determinism_hook import DeterminismHook
    from ignite_hooks.hooks.training.dist_sampler_seed_hook import DistSamplerSeedHook
    from ignite_hooks.hooks.training.empty_cache_hook import EmptyCacheHook
    from ignite_hooks.hooks.training.freeze_hook import FreezeHook
    from ignite_hooks.hooks.training.garbage_collection_hook import GarbageCollectionHook
    from ignite_hooks.hooks.training.grad_clip_hook import GradClipHook
    from ignite_hooks.hooks.training.lambda_hook import LambdaHook
    from ignite_hooks.hooks.training.lr_finder_hook import LRFinderHook
    from ignite_hooks.hooks.training.mean_teacher_hook import MeanTeacherHook
    from ignite_hooks.hooks.training.num_class_check_hook import NumClassCheckHook
    from ignite_hooks.hooks.training.param_scheduler_hook import ParamSchedulerHook
    from ignite_hooks.hooks.training.pipeline_switch_hook import PipelineSwitchHook
    from ignite_hooks.hooks.training.prepare_tta_hook import PrepareTTAHook
    from ignite_hooks.hooks.training.pruning_hook import PruningHook
    from ignite_hooks.hooks.training.schedule_free_hook import ScheduleFreeHook
    from ignite_hooks.hooks.training.set_epoch_info_hook import SetEpochInfoHook
    from ignite_hooks.hooks.training.swa_hook import SWAHook
    from ignite_hooks.hooks.training.sync_buffers_hook import SyncBuffersHook
    from ignite_hooks.hooks.training.sync_norm_hook import SyncNormHook
    from ignite_hooks.hooks.training.sync_random_size_hook import SyncRandomSizeHook
    from ignite_hooks.hooks.training.time_limit_hook import TimeLimitHook
    from ignite_hooks.hooks.training.yolox_lr_updater_hook import YOLOXLrUpdaterHook
    from ignite_hooks.hooks.training.yolox_mode_switch_hook import YOLOXModeSwitchHook
    from ignite_hooks.hooks.visualization_hook import DetVisualizationHook, SegVisualizationHook, VisualizationHook
    from ignite_hooks.plan.hook_events import HookEvents
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.plan.priority import Priority
    from ignite_hooks.plan.schedule import scheduled
    from ignite_hooks.registry import HOOK_REGISTRY, HOOKS, WRITERS, HookRegistry, Registry
    from ignite_hooks.results.recorded_run import RecordedRun, read_run
    from ignite_hooks.results.result import RunResult
    from ignite_hooks.run.best import Best, Record
    from ignite_hooks.run.metrics import Metrics
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.secrets import Secret
    from ignite_hooks.trainer.base_trainer import BaseTrainer
    from ignite_hooks.writers.interface import Writer

    # Names of other libraries and older guides for the same classes.
    CheckPointHook = CheckpointHook
    LogHook = LoggerHook

_HOME = {
    "add_arguments": "config.outer_form",
    "attach_hooks": "attach",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "HookError": "errors",
    "MetricError": "errors",
    "BaseHook": "hooks.base_hook",
    "Hook": "hooks.base_hook",
    "build_hook": "config.build",
    "build_hooks": "config.build",
    "get_default_hooks": "config.build",
    "HookEvents": "plan.hook_events",
    "Report": "run.report",
    "load_config": "config.connected.connect",
    "Secret": "secrets",
    "Plan": "plan.plan",
    "Priority": "plan.priority",
    "HOOKS": "registry",
    "HOOK_REGISTRY": "registry",
    "HookRegistry": "registry",
    "Registry": "registry",
    "WRITERS": "registry",
    "Best": "run.best",
    "Record": "run.best",
    "Metrics": "run.metrics",
    "RecordedRun": "results.recorded_run",
    "read_run": "results.recorded_run",
    "RunResult": "results.result",
    "Runner": "run.runner",
    "scheduled": "plan.schedule",
    "BaseTrainer": "trainer.base_trainer",
    "Writer": "writers.interface",
    "testing": "",
}


if not TYPE_CHECKING:  # a name that is not here is an error to type checkers

    def __getattr__(name: str) -> Any:
        # Loaded on demand, so that importing the package costs nothing and loads no backend.
        if name in _HOME:
            module = importlib.import_module(f"ignite_hooks.{_HOME[name] or name}")
            return getattr(module, name) if _HOME[name] else module
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        hooks = importlib.import_module("ignite_hooks.hooks")
        if name not in vars(hooks) and name not in importlib.import_module("ignite_hooks.registry").HOOKS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(hooks, name)


def __dir__() -> list[str]:
    registry = importlib.import_module("ignite_hooks.registry")
    return sorted({*_HOME, *registry.HOOKS, "__version__"})


__all__ = [
    "BaseHook",
    "Record",
    "ConfigError",
    "add_arguments",
    "attach_hooks",
    "build_hooks",
    "HOOK_REGISTRY",
    "HookEvents",
    "HookRegistry",
    "build_hook",
    "Runner",
    "WRITERS",
    "__version__",
    "Priority",
    "MetricError",
    "Plan",
    "HookError",
    "HOOKS",
    "CheckpointError",
    "Best",
    "Report",
    "Secret",
    "get_default_hooks",
    "Writer",
    "Hook",
    "Registry",
    "scheduled",
    "BaseTrainer",
    "Metrics",
    "load_config",
    "read_run",
    "RecordedRun",
    "RunResult",
    "CheckInvalidLossHook",
    "CheckpointHook",
    "ClearMLHook",
    "DetVisualizationHook",
    "DeterminismHook",
    "DistEvalHook",
    "DistSamplerSeedHook",
    "EMAHook",
    "EarlyStoppingHook",
    "EmptyCacheHook",
    "EvalHook",
    "ExportHook",
    "FeatureMapHook",
    "FreezeHook",
    "GarbageCollectionHook",
    "GradClipHook",
    "GradientFlowHook",
    "HistoryPlotHook",
    "IterTimerHook",
    "LRFinderHook",
    "LambdaHook",
    "LoggerHook",
    "MLflowHook",
    "MeanTeacherHook",
    "MemoryProfilerHook",
    "ModelSummaryHook",
    "NotebookHook",
    "NotifyHook",
    "NumClassCheckHook",
    "OOMObserverHook",
    "ParamSchedulerHook",
    "PipelineSwitchHook",
    "PrepareTTAHook",
    "ProfilerHook",
    "ProgressBarHook",
    "ReportHook",
    "RuntimeInfoHook",
    "SWAHook",
    "SegVisualizationHook",
    "ScheduleFreeHook",
    "SetEpochInfoHook",
    "SyncBuffersHook",
    "SyncNormHook",
    "SyncRandomSizeHook",
    "SystemMonitorHook",
    "TensorBoardHook",
    "ThroughputHook",
    "PruningHook",
    "TimeLimitHook",
    "TimeTrackingHook",
    "VisualizationHook",
    "TrackioHook",
    "WandbHook",
    "YOLOXLrUpdaterHook",
    "YOLOXModeSwitchHook",
    "CheckPointHook",
    "LogHook",
]
