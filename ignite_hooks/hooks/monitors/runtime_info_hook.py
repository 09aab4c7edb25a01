"""Logs the environment of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.environment import device_of, processes, size_of, versions
from ignite_hooks.plan.priority import Priority

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class RuntimeInfoHook(BaseHook):
    """Log one line about the environment of the run.

    Reads: config, model, device.
    """

    priority: PriorityLike = Priority.VERY_HIGH
    on_error: OnError = "warn"

    def before_run(self, runner: Runner, config: Any = None, model: Any = None, device: Any = None) -> None:
        if is_main_process():
            seed = config.get("seed") if isinstance(config, Mapping) else None
            facts = [*versions(), device_of(model, device), *processes(), *size_of(model)]
            facts += [] if seed is None else [f"seed {seed}"]
            runner.logger.info("  ".join([*facts, f"work_dir {runner.work_dir}"]))
