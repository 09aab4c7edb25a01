"""Map names to classes; the modules of our own hooks are imported when a configuration names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ignite_hooks.text import did_you_mean, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Class = TypeVar("Class", bound=Callable[..., Any])

SCOPES = ("mmengine", "mmcv", "mmdet", "mmdet3d", "mmseg", "mmcls", "mmpretrain", "mmpose", "mmyolo", "mmrotate")
"""Libraries of MMEngine's family, which may stand before the name of a hook: ``mmdet.CheckInvalidLossHook``."""


class Registry:
    """Classes by name, with all the usual ways to register one.

    Example:
        >>> TOYS = Registry("toy", {})
        >>> @TOYS.register_module()
        ... class Ball: ...
        >>> @TOYS.register("Rope")
        ... class AnyRope: ...
        >>> TOYS.get("Ball").__name__, sorted(TOYS)
        ('Ball', ['Ball', 'Rope'])
    """

    def __init__(
        self,
        kind: str,
        built_in: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        plain: Callable[[str], str] = str,
        free: Collection[str] = (),
        plugins: str = "",
    ) -> None:
        self.kind = kind
        # The group of entry points in which installed packages name their classes.
        self._group = plugins
        # Names that published guides let scripts define: a script's class replaces ours.
        self._free = frozenset(free)
        # Removes the scope of another library from a name.
        self._plain = plain
        self._modules = dict(built_in)
        # Our aliases stay free: a script may register its own classes under them.
        self._aliases = dict(aliases or {})
        self._classes: dict[str, Callable[..., Any]] = {}

    def register(
        self, name: str | Iterable[str] | Class | None = None, *, force: bool = False, module: Class | None = None
    ) -> Any:
        """Register a class, as a decorator with or without a name, or by a call with ``module``."""
        if name is not None and not callable(name) and not isinstance(name, Iterable):
            raise TypeError(f"a {self.kind} is registered under a name, or a list of names, not {shown(name)}")
        if module is not None:
            return self._add(module, name if isinstance(name, str) or not callable(name) else None, force)
        if callable(name) and not isinstance(name, str):
            return self._add(name, None, force)
        names = name
        return lambda cls: self._add(cls, names, force)

    register_module = register

    def _add(self, cls: Class, names: str | Iterable[str] | None, force: bool) -> Class:
        if not callable(cls):
            raise TypeError(f"only a class can be registered as a {self.kind}, not {shown(cls)}")
        own = [getattr(cls, "__name__", "")]
        wanted = [names] if isinstance(names, str) else list(names or own)
        for name in wanted:
            if not isinstance(name, str) or not name:
                raise TypeError(f"a {self.kind} is registered under a name, not {shown(name)}")
            known = self._classes.get(name)
            taken = self._modules.get(name) or getattr(known, "__module__", None)
            # A notebook cell that is run again defines the same class again, and so does a module that is reloaded.
            again = name not in self._modules and (taken == "__main__" or _qualified(known) == _qualified(cls))
            again = again and taken == getattr(cls, "__module__", None)
            taken = None if name in self._free else taken
            if taken and not force and not again and self._classes.get(name) is not cls:
                raise KeyError(f"{self.kind} {name!r} is already registered by {taken}: use another name or force=True")
        for name in wanted:
            self._modules.pop(name, None)
            self._classes[name] = cls
        return cls

    def get(self, name: str) -> Callable[..., Any]:
        """Return the class of this name; raise a LookupError that suggests the nearest name."""
        if name not in self._classes and self._plain(name) in self:
            name = self._plain(name)
        if name not in self._classes and name in self._aliases:
            return self.get(self._aliases[name])
        if name not in self._classes and name in self._modules:
            # The class stays known as built in, so that its name stays taken.
            return getattr(importlib.import_module(self._modules[name]), name)  # type: ignore[no-any-return]
        plugins = self._plugins() if name not in self._classes else {}
        if name in plugins:
            return self._loaded(name, plugins[name])
        if name not in self._classes:
            names = ", ".join(self)
            all_of_them = f"; there are {names}"
            if self.kind in ("hook", "writer") and len(names) > 100:
                all_of_them = "; 'ignite-hooks list' shows all"
            elif len(names) > 250:
                all_of_them = f"; there are {len(self)} others"
            hint = did_you_mean(name, [*self, *plugins]) or all_of_them
            raise LookupError(f"no {self.kind} is called {shown(name)}{hint}")
        return self._classes[name]

    def is_plugin(self, name: str) -> bool:
        """Return whether an installed package offers a class of this name; nothing is imported."""
        return name in self._plugins()

    def _plugins(self) -> dict[str, list[EntryPoint]]:
        """Return what installed packages offer by name; it is asked for a name only that nobody here knows."""
        found: dict[str, list[EntryPoint]] = {}
        if self._group:
            from importlib.metadata import entry_points

            for one in entry_points(group=self._group):
                found.setdefault(one.name, []).append(one)
        return found

    def _loaded(self, name: str, offers: list[EntryPoint]) -> Callable[..., Any]:
        """Import the class of a plugin; raise a LookupError if it is not clear which one is meant."""
        if len({offer.value for offer in offers}) > 1:
            packages = " and ".join(
                sorted(f"{offer.dist.name if offer.dist else '?'} ({offer.value})" for offer in offers)
            )
            raise LookupError(f"the {self.kind} {shown(name)} is in more than one installed package: {packages}")
        cls: Any = offers[0].load()
        if not callable(cls):
            raise LookupError(f"the {self.kind} {shown(name)} of an installed package is {shown(cls)}, not a class")
        # Its module may have registered it as well.
        return self._classes.setdefault(name, cls)

    def source_of(self, name: str) -> tuple[str, str] | None:
        """Return the module of a name and what it is called there; None if it was registered as an object.

        Example:
            >>> HOOKS.source_of("EMAHook")
            ('ignite_hooks.hooks.ema_hook', 'EMAHook')
        """
        plain = name if name in self._classes or name in self._modules else self._plain(name)
        plain = plain if plain in self._classes else self._aliases.get(plain, plain)
        return None if plain in self._classes or plain not in self._modules else (self._modules[plain], plain)

    def __contains__(self, name: object) -> bool:
        plain = self._plain(name) if isinstance(name, str) else name
        return name in self._classes or plain in self._modules or plain in self._aliases or plain in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._classes, *self._modules, *self._aliases}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self)})"


def _qualified(cls: object) -> str | None:
    return getattr(cls, "__qualname__", None)


def without_scope(name: str) -> str:
    """Return the name of a hook without the name of a library of MMEngine's family in front.

    Example:
        >>> (
        ...     without_scope("mmdet.CheckInvalidLossHook"),
        ...     without_scope("mmengine.hooks.EMAHook"),
        ...     without_scope("my.Hook"),
        ... )
        ('CheckInvalidLossHook', 'EMAHook', 'my.Hook')
    """
    return name.rpartition(".")[2] if name.split(".")[0] in SCOPES else name


_HERE = "ignite_hooks.hooks."

HOOKS = Registry(
    "hook",
    {
        "CheckpointHook": _HERE + "checkpoint_hook",
        "CheckInvalidLossHook": _HERE + "training.check_invalid_loss_hook",
        "DetVisualizationHook": _HERE + "visualization_hook",
        "ClearMLHook": _HERE + "trackers.clearml_hook",
        "DistSamplerSeedHook": _HERE + "training.dist_sampler_seed_hook",
        "DistEvalHook": _HERE + "eval_hook",
        "EarlyStoppingHook": _HERE + "early_stopping_hook",
        "EMAHook": _HERE + "ema_hook",
        "EvalHook": _HERE + "eval_hook",
        "ExportHook": _HERE + "monitors.export_hook",
        "GradientFlowHook": _HERE + "monitors.gradient_flow_hook",
        "FeatureMapHook": _HERE + "monitors.feature_map_hook",
        "HistoryPlotHook": _HERE + "monitors.history_plot_hook",
        "IterTimerHook": _HERE + "monitors.iter_timer_hook",
        "LambdaHook": _HERE + "training.lambda_hook",
        "LoggerHook": _HERE + "logger_hook",
        "MemoryProfilerHook": _HERE + "monitors.memory_profiler_hook",
        "ProfilerHook": _HERE + "profiler_hook",
        "MLflowHook": _HERE + "trackers.mlflow_hook",
        "NotebookHook": _HERE + "monitors.notebook_hook",
        "NumClassCheckHook": _HERE + "training.num_class_check_hook",
        "ParamSchedulerHook": _HERE + "training.param_scheduler_hook",
        "PipelineSwitchHook": _HERE + "training.pipeline_switch_hook",
        "ProgressBarHook": _HERE + "monitors.progress_bar_hook",
        "ReportHook": _HERE + "monitors.report_hook",
        "PruningHook": _HERE + "training.pruning_hook",
        "RuntimeInfoHook": _HERE + "monitors.runtime_info_hook",
        "SegVisualizationHook": _HERE + "visualization_hook",
        "SetEpochInfoHook": _HERE + "training.set_epoch_info_hook",
        "SyncBuffersHook": _HERE + "training.sync_buffers_hook",
        "SyncNormHook": _HERE + "training.sync_norm_hook",
        "SyncRandomSizeHook": _HERE + "training.sync_random_size_hook",
        "SystemMonitorHook": _HERE + "monitors.system_monitor_hook",
        "TimeTrackingHook": _HERE + "monitors.time_tracking_hook",
        "VisualizationHook": _HERE + "visualization_hook",
        "TensorBoardHook": _HERE + "trackers.tensorboard_hook",
        "TrackioHook": _HERE + "trackers.trackio_hook",
        "WandbHook": _HERE + "trackers.wandb_hook",
        "DeterminismHook": _HERE + "training.determinism_hook",
        "EmptyCacheHook": _HERE + "training.empty_cache_hook",
        "FreezeHook": _HERE + "training.freeze_hook",
        "GarbageCollectionHook": _HERE + "training.garbage_collection_hook",
        "GradClipHook": _HERE + "training.grad_clip_hook",
        "LRFinderHook": _HERE + "training.lr_finder_hook",
        "MeanTeacherHook": _HERE + "training.mean_teacher_hook",
        "ModelSummaryHook": _HERE + "monitors.model_summary_hook",
        "NotifyHook": _HERE + "monitors.notify_hook",
        "OOMObserverHook": _HERE + "monitors.oom_observer_hook",
        "PrepareTTAHook": _HERE + "training.prepare_tta_hook",
        "ScheduleFreeHook": _HERE + "training.schedule_free_hook",
        "SWAHook": _HERE + "training.swa_hook",
        "ThroughputHook": _HERE + "monitors.throughput_hook",
        "TimeLimitHook": _HERE + "training.time_limit_hook",
        "YOLOXLrUpdaterHook": _HERE + "training.yolox_lr_updater_hook",
        "YOLOXModeSwitchHook": _HERE + "training.yolox_mode_switch_hook",
    },
    {"CheckPointHook": "CheckpointHook", "LogHook": "LoggerHook"},
    without_scope,
    free=["CheckInvalidLossHook"],
    plugins="ignite_hooks.hooks",
)
"""Every hook that a configuration can name."""

HookRegistry = HOOK_REGISTRY = HOOKS

WRITERS = Registry(
    "writer",
    {
        "ClearMLWriter": "ignite_hooks.writers.trackers.clearml",
        "ConsoleWriter": "ignite_hooks.writers.console",
        "JsonlWriter": "ignite_hooks.writers.jsonl",
        "MLflowWriter": "ignite_hooks.writers.trackers.mlflow",
        "MemoryWriter": "ignite_hooks.writers.memory",
        "TensorboardWriter": "ignite_hooks.writers.tensorboard",
        "TrackioWriter": "ignite_hooks.writers.trackers.trackio",
        "WandbWriter": "ignite_hooks.writers.trackers.wandb",
    },
    plugins="ignite_hooks.writers",
)
"""Every writer that a configuration can name."""
