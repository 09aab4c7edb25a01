"""The hooks, one file each. Their base class is in ``base_hook``; ``builder`` builds them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ignite_hooks.hooks.base_hook import BaseHook, Hook, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ignite_hooks.registry import Registry

    HOOKS: Registry
    HookRegistry: Registry
    HOOK_REGISTRY: Registry
    build_hook: Callable[..., Any]
    build_hooks: Callable[..., list[Any]]
    get_default_hooks: Callable[..., dict[str, Any]]

_ELSEWHERE = {
    "HOOKS": "ignite_hooks.registry",
    "HOOK_REGISTRY": "ignite_hooks.registry",
    "HookRegistry": "ignite_hooks.registry",
    "build_hook": "ignite_hooks.config.build",
    "build_hooks": "ignite_hooks.config.build",
    "get_default_hooks": "ignite_hooks.config.build",
}


def __getattr__(name: str) -> Any:
    # Loaded on demand, because the module of a hook must not depend on the builder, which is in a higher layer.
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    registry = importlib.import_module("ignite_hooks.registry")
    if name in registry.HOOKS:
        return registry.HOOKS.get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "HOOKS",
    "HOOK_REGISTRY",
    "BaseHook",
    "Hook",
    "HookRegistry",
    "Priority",
    "build_hook",
    "build_hooks",
    "get_default_hooks",
    "scheduled",
    "settings",
]
