"""BaseTrainer: a configuration alone -> engines, data and a model. Thin: Ignite does the work, hooks do the rest."""

from ignite_hooks.trainer.base_trainer import BaseTrainer

__all__ = ["BaseTrainer"]
