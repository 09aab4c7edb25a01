"""The documented name of ``ignite_hooks.drawing.figures``."""

from ignite_hooks.drawing.figures import *  # noqa: F403
