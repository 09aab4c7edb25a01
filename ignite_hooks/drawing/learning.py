"""The documented name of the module that draws training curves."""

from ignite_hooks.drawing.training_curves import *  # noqa: F403
