"""Every path that documentation, README and notebooks name, now or before modules moved, can be imported."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

import ignite_hooks

ROOT = Path(__file__).parents[1]

AT_THE_ROOT = [
    "attach_hooks",
    "build_hook",
    "build_hooks",
    "get_default_hooks",
    "load_config",
    "scheduled",
    "BaseHook",
    "BaseTrainer",
    "Hook",
    "HookEvents",
    "Priority",
    "Runner",
    "Writer",
    "Plan",
    "Report",
    "Metrics",
    "Best",
    "Record",
    "Secret",
    "Registry",
    "HOOKS",
    "WRITERS",
    "HOOK_REGISTRY",
    "HookRegistry",
    "ConfigError",
    "HookError",
    "CheckpointError",
    "MetricError",
    "LambdaHook",
]

DEEPER = [
    "ignite_hooks.drawing",
    "ignite_hooks.drawing.explain",
    "ignite_hooks.drawing.layout.save",
    "ignite_hooks.drawing.learning.curves",
    "ignite_hooks.drawing.sheets",
    "ignite_hooks.drawing.sheets.attentions",
    "ignite_hooks.drawing.sheets.classification",
    "ignite_hooks.drawing.sheets.detections",
    "ignite_hooks.drawing.sheets.features",
    "ignite_hooks.drawing.sheets.heats",
    "ignite_hooks.drawing.sheets.segmentations",
    "ignite_hooks.hooks.base_hook.BaseHook",
    "ignite_hooks.hooks.base_hook.settings",
    "ignite_hooks.hooks.builder.build_hook",
    "ignite_hooks.hooks.builder.build_hooks",
    "ignite_hooks.hooks.builder.get_default_hooks",
    "ignite_hooks.hooks.checkpoint_hook.CheckpointHook",
    "ignite_hooks.hooks.early_stopping_hook.EarlyStoppingHook",
    "ignite_hooks.hooks.ema_hook.EMAHook",
    "ignite_hooks.hooks.eval_hook.EvalHook",
    "ignite_hooks.hooks.lambda_hook.LambdaHook",
    "ignite_hooks.hooks.logger_hook.LoggerHook",
    "ignite_hooks.hooks.profiler_hook.ProfilerHook",
    "ignite_hooks.hooks.registry.HOOKS",
    "ignite_hooks.hooks.registry.HOOK_REGISTRY",
    "ignite_hooks.hooks.registry.HookRegistry",
    "ignite_hooks.hooks.visualization_hook.DetVisualizationHook",
    "ignite_hooks.registry.HOOKS",
    "ignite_hooks.registry.Registry",
    "ignite_hooks.registry.WRITERS",
    "ignite_hooks.store.interface.Store",
    "ignite_hooks.testing.MemoryStore",
    "ignite_hooks.testing.MemoryWriter",
    "ignite_hooks.testing.RecordingHook",
    "ignite_hooks.testing.TinyRun",
    "ignite_hooks.testing.check_hook",
    "ignite_hooks.testing.failing_at",
    "ignite_hooks.testing.tiny_run",
    "ignite_hooks.testing.tiny_trainer",
    "ignite_hooks.cli.main",
    "ignite_hooks.writers.Writer",
    "ignite_hooks.writers.jsonl.JsonlWriter",
    "ignite_hooks.writers.jsonl.read_jsonl",
    "ignite_hooks.writers.memory.MemoryWriter",
]

IMPORT = re.compile(r"^\s*from (ignite_hooks[\w.]*) import (.+)$", re.MULTILINE)


def found(path: str) -> object:
    """Import a dotted path: as many modules as there are, then attributes."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(found(parent), name)


def imported(text: str) -> set[str]:
    """Return the paths that the import statements of a text name."""
    names = [
        (module, name.split(" as ")[0].strip(" ()"))
        for module, listed in IMPORT.findall(text)
        for name in listed.split(",")
    ]
    return {f"{module}.{name}" for module, name in names if name.isidentifier()}


def documented() -> set[str]:
    """Return the paths that the pages, the README and the notebooks of today name."""
    pages = [
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("ignite_hooks/**/README.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    texts = [page.read_text("utf-8") for page in pages]
    paths = {path for text in texts for path in re.findall(r"^::: (ignite_hooks[\w.]*)", text, re.MULTILINE)}
    for notebook in ROOT.glob("notebooks/*.ipynb"):
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        texts += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    texts += [example.read_text("utf-8") for example in ROOT.glob("examples/**/*.py")]
    return paths.union(*map(imported, texts))


@pytest.mark.parametrize("name", AT_THE_ROOT)
def test_names_at_the_root_stay(name: str) -> None:
    assert getattr(ignite_hooks, name) is not None
    assert name in dir(ignite_hooks)


@pytest.mark.parametrize("path", DEEPER)
def test_documented_paths_stay(path: str) -> None:
    assert found(path) is not None


@pytest.mark.parametrize("path", sorted(documented()))
def test_what_is_documented_today_can_be_imported(path: str) -> None:
    assert found(path) is not None


def test_the_command_line_has_one_name() -> None:
    from ignite_hooks.cli import app, main

    assert main is app.main
