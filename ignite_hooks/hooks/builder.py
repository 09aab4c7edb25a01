"""The specification's name for ``ignite_hooks.config.build``."""

from ignite_hooks.config.build import build_hook, build_hooks, get_default_hooks

__all__ = ["build_hook", "build_hooks", "get_default_hooks"]
