"""The checkpoint points as Ignite events. Not in ``points``, which loads neither Ignite nor torch."""

from __future__ import annotations

from ignite.engine import EventEnum


class HookEvents(EventEnum):
    """The checkpoint points as Ignite events, registered on the trainer.

    Example:
        >>> HookEvents.BEFORE_SAVE_CHECKPOINT == "BEFORE_SAVE_CHECKPOINT"
        False
    """

    BEFORE_SAVE_CHECKPOINT = "hook_before_save_checkpoint"
    AFTER_SAVE_CHECKPOINT = "hook_after_save_checkpoint"
    AFTER_LOAD_CHECKPOINT = "hook_after_load_checkpoint"


for _event in HookEvents:
    # With a prefix: Ignite compares events by name, and these must not equal anybody else's.
    _event._name_ = f"HOOK_{_event._name_}"
