"""BaseTrainer: a configuration alone -> engines, data and a model. Thin: Ignite does the work, hooks do the rest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ignite_hooks.trainer.base_trainer import BaseTrainer

__all__ = ["BaseTrainer"]


def __getattr__(name: str) -> Any:
    """Import the trainer when it is asked for: checking a configuration needs no torch."""
    if name in __all__:
        from ignite_hooks.trainer import base_trainer

        return base_trainer.BaseTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
