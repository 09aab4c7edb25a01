"""The documented name for ``ignite_hooks.hooks.training.lambda_hook``."""

from ignite_hooks.hooks.training.lambda_hook import LambdaHook

__all__ = ["LambdaHook"]
