"""Gives cached device memory back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ignite_hooks.hooks.base_hook import BaseHook, OnError, settings
from ignite_hooks.plan.schedule import NEVER, When, scheduled


def empty_cache() -> None:
    """Release the memory that PyTorch has cached on the accelerator, if there is one."""
    import torch

    if torch.accelerator.is_available():
        torch.get_device_module(torch.accelerator.current_accelerator()).empty_cache()


@settings
class EmptyCacheHook(BaseHook):
    """Give back memory that PyTorch has cached on the accelerator: around epochs or after iterations, evaluations too.

    This helps where another process needs the memory, or where sizes vary so much that it is in pieces; it takes time.

    Args:
        before_epoch: Whether before each epoch and each evaluation.
        after_epoch: Whether after each epoch and each evaluation.
        after_iter: Whether after each iteration, those of evaluations included.
    """

    before_epoch: bool = False  # type: ignore[assignment]
    after_epoch: bool = True  # type: ignore[assignment]
    after_iter: bool = False
    on_error: OnError = "warn"
    empty: Callable[[], None] = field(init=False, repr=False, default_factory=lambda: empty_cache)

    @property
    def when(self) -> When:
        """How often iterations count."""
        return When(1 if self.after_iter else NEVER, "iter")

    def before_train_epoch(self) -> None:
        if self.before_epoch:
            self.empty()

    before_val_epoch = before_test_epoch = before_train_epoch

    def after_train_epoch(self) -> None:
        if self.after_epoch:
            self.empty()

    after_val_epoch = after_test_epoch = after_train_epoch

    @scheduled
    def after_train_iter(self) -> None:
        self.empty()

    after_val_iter = after_test_iter = after_train_iter
