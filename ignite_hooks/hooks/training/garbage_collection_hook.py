"""Lets Python collect garbage when it suits the training."""

from __future__ import annotations

import gc
from typing import Annotated, Literal

from annotated_types import Ge

from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled


@settings
class GarbageCollectionHook(BaseHook):
    """Collect garbage in iterations that are the same on all ranks, and not whenever Python would.

    A collection may take a tenth of a second. Where each rank makes its own in its own iterations, all of them wait
    for each of these. Epochs end with a whole collection.

    Args:
        interval: How many iterations lie between two collections.
        generation: The oldest objects that are looked at in these: 0 for the young ones alone, 2 for all.
    """

    interval: Annotated[int, Ge(1)] = 100
    generation: Literal[0, 1, 2] = 1
    # Last of all hooks: what these let go of is collected too.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"

    def __post_init__(self) -> None:
        self._was_enabled = False

    def before_train(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()
        gc.collect()

    @scheduled
    def after_train_iter(self) -> None:
        gc.collect(self.generation)

    def after_train_epoch(self) -> None:
        gc.collect()

    def cleanup(self) -> None:
        if self._was_enabled:
            self._was_enabled = False
            gc.enable()
