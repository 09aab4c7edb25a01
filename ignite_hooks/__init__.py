"""Configured, ordered, explained hooks for PyTorch-Ignite engines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ignite_hooks.version import __version__

if TYPE_CHECKING:
    from ignite_hooks.attach import attach_hooks
    from ignite_hooks.config.build import build_hook, build_hooks, get_default_hooks
    from ignite_hooks.config.files import load_config
    from ignite_hooks.errors import CheckpointError, ConfigError, HookError, MetricError
    from ignite_hooks.hooks.base_hook import BaseHook, Hook
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

_HOME = {
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
    "load_config": "config.files",
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
]
