"""Helpers for tests of configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine

from ignite_hooks import BaseHook, ConfigError, Runner, attach_hooks
from ignite_hooks.testing import tiny_run

CONFIGS = Path(__file__).parents[2] / "configs"


def attach(cfg: Any = None, *, evaluating: bool = False, trainer: Engine | None = None, **given: Any) -> Runner:
    tiny = tiny_run()
    made, val_data, model = tiny.trainer, tiny.val_data, tiny.model
    services = {"val_loader": val_data, "model": model} if evaluating else {}
    runner = attach_hooks(trainer or made, cfg, **{**services, **given})
    runner._kept_alive = trainer or made  # type: ignore[attr-defined]
    return runner


def problems(cfg: Any, **given: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        attach(cfg, **given)
    assert all("\n" not in message for _, message in caught.value.problems)
    return [tuple(problem) for problem in caught.value.problems]


def state_of(engine: Engine) -> dict[str, Any]:
    """Return everything of an engine that attaching hooks may change."""
    return {
        "handlers": {event: list(entries) for event, entries in engine._event_handlers.items()},
        "run": vars(engine).get("run"),
        "events": list(engine._allowed_events),
        "attributes": sorted(vars(engine)),
        "state": sorted(vars(engine.state)),
    }


def deep(value: Any) -> Any:
    """Return a comparable copy: containers by content, hooks by class and attributes, other objects by identity."""
    if isinstance(value, dict):
        return {key: deep(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value), *map(deep, value)]
    if isinstance(value, BaseHook):
        return type(value), id(value), deep({k: v for k, v in vars(value).items() if k != "_runner"})
    return value if isinstance(value, (int, float, str, type(None))) else id(value)
