"""The registry under the name the first specification gives it."""

from ignite_hooks.registry import HOOK_REGISTRY, HOOKS, HookRegistry

__all__ = ["HOOKS", "HOOK_REGISTRY", "HookRegistry"]
